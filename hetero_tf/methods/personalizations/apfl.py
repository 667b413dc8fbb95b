"""APFL: the client's model is a mixture of a personal model and the global one, in adaptive shares."""

from typing import Annotated

import tensorflow as tf

from hetero_tf.base.constraints import Range
from hetero_tf.methods.personalizations import LocalStep, LocalUpdate

TWIN = True
PASSES = 2


def personalize(
    local: LocalStep, *, alpha: Annotated[float, Range(low=0.0, high=1.0)] = 0.5, adaptive: bool = True
) -> LocalUpdate:
    """Step the twin along `alpha * gradient(mixture)`, and alpha along `<twin - weights, gradient(mixture)>`.

    The mixture is `alpha * twin + (1 - alpha) * weights`. The weights train as usual.

    Args:
        alpha: share of the twin in the mixture at the beginning; 0: the global model, 1: the twin.
        adaptive: whether each step moves alpha, by the learning rate and within 0 to 1.

    Reference: Deng et al. 2020 (arXiv 2003.13461), algorithm 1 and section 4.2.
    """
    mixture = local.alpha * local.twin + (1 - local.alpha) * local.weights
    gradient = local.gradient(mixture).values
    slope = tf.reduce_sum((local.twin - local.weights) * gradient, 1, keepdims=True)
    moved = tf.clip_by_value(local.alpha - local.rate * slope, 0, 1) if adaptive else None
    return LocalUpdate(local.gradient(local.weights), local.step(local.twin, local.alpha * gradient), moved)
