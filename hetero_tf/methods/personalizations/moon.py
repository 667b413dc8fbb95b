"""MOON: representations are pulled to those of the global model, and away from those of the client's last model."""

import tensorflow as tf

from hetero_tf.base.constraints import NotNegative, Positive
from hetero_tf.methods.personalizations import LocalStep, LocalUpdate

TWIN = True
PREVIOUS = True
# Two forward passes without a gradient cost at most as much as one with it.
PASSES = 2
CONFLICTS = {"it compares representations of one width": {"client.stages": ["nested", "slimmable"]}}


def personalize(local: LocalStep, *, mu: NotNegative = 5.0, temperature: Positive = 0.5) -> LocalUpdate:
    """Step along the gradient of the loss plus `mu * log(1 + exp((cos(z, z_previous) - cos(z, z_start)) / T))`.

    z is an example's representation by the client's values, z_start by the global values of the round's start, and
    z_previous by the values that the client returned last. The last two have no gradient.

    Args:
        mu: weight of the contrastive term; 0: FedAvg.
        temperature: T, by which cosines are divided.

    Reference: Li et al. 2021 (arXiv 2103.16257), equation 3, and the authors' code.
    """

    def contrast(features, start, previous):
        terms = tf.math.softplus((_cosine(features, previous) - _cosine(features, start)) / temperature)
        return mu * tf.reduce_mean(terms, list(range(1, terms.shape.rank)))

    return LocalUpdate(local.gradient(local.weights, contrast, (local.start, local.twin)))


def _cosine(first, second):
    """Return the cosines of two representations of each example."""
    product, *squares = (tf.reduce_sum(a * b, -1) for a, b in ((first, second), (first, first), (second, second)))
    return product / tf.sqrt(tf.maximum(squares[0] * squares[1], 1e-16))
