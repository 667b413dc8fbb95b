"""pFedMe: the personal model minimises the loss plus its distance to the shared model, which follows it."""

import tensorflow as tf

from hetero_tf.base.constraints import Positive
from hetero_tf.methods.personalizations import Gradient, LocalStep, LocalUpdate

TWIN = True
PASSES = "steps"
REQUIRES = {"optimizer.name": "sgd", "optimizer.momentum": 0}
CONFLICTS = {"a step reports the loss of the twin": {"round.selection.READS_LOSSES": True}}


def personalize(local: LocalStep, *, strength: Positive = 15.0, steps: int = 5, rate: Positive = 0.01) -> LocalUpdate:
    """Take inner steps on the loss plus `strength / 2 * |twin - weights|^2`; the gradient of the weights is
    `strength * (weights - twin)`, that of the Moreau envelope.

    In each round the twin starts from the global values, and in each step from its last values. The server `sgd` with
    a learning rate other than 1 is beta of the paper.

    Args:
        strength: lambda of the paper; a larger one keeps personal models closer to the shared one.
        steps: inner gradient steps on each batch, K of the paper.
        rate: learning rate of the inner steps.

    Reference: Dinh et al. 2020 (arXiv 2006.08848), algorithm 1, and the authors' code.
    """

    def inner_step(count, twin, loss):
        gradient = local.gradient(twin)
        twin -= rate * (gradient.values + strength * (twin - local.weights))
        return count + 1, twin, tf.where(tf.equal(count, 0), gradient.loss, loss)

    start = tf.where(local.number[:, None] == 0, local.start, local.twin)
    zeros = tf.zeros_like(start[:, 0])
    _, twin, loss = tf.while_loop(lambda count, *_: count < steps, inner_step, (0, start, zeros), parallel_iterations=1)
    return LocalUpdate(Gradient(loss, strength * (local.weights - twin)), (twin, ()))
