"""FedNova: normalizes the update of each client by the number of its local steps."""

import tensorflow as tf

from hetero_tf.methods.merges import covered_mean, entry_weights

REQUIRES = {"client.stages": "joint", "optimizer.name": "sgd"}
CONFLICTS = {"its normalization is that of plain momentum": {"optimizer.nesterov": True}}


def aggregate(
    old: tf.Tensor, rows: tf.Tensor, covered: tf.Tensor, weight: tf.Tensor, *, steps, rate, momentum, mu
) -> tf.Tensor:
    """`old + mean(a) * mean((row - old) / a)`, weighted means over the clients that cover an entry.

    a is the sum of the coefficients of a client's gradients in its update: the number of its steps for plain SGD. So
    clients with more steps do not pull the global weights towards their own minimum. With equal steps it is the mean.

    Reference: Wang et al. 2020 (arXiv 2007.07481), entry by entry.
    """
    weights = entry_weights(covered, weight)
    a = coefficient_sum(steps, rate, momentum, mu)[:, None]
    return old + covered_mean(a, weights) * covered_mean(tf.math.divide_no_nan(rows - old, a), weights)


def coefficient_sum(steps: tf.Tensor, rate: tf.Tensor, momentum: float, mu: float) -> tf.Tensor:
    """Return the sum of the coefficients of each client's gradients in its update, divided by the rate, [K].

    It is the update under a constant gradient and the proximal term. The authors' code differs with both momentum and
    a proximal term.

    Args:
        steps: int32 [K].
    """

    def step(number, velocity, total):
        velocity = momentum * velocity + 1 - rate * mu * total
        return number + 1, velocity, tf.where(number < steps, total + velocity, total)

    zeros = tf.zeros(tf.shape(steps), rate.dtype)
    return tf.while_loop(lambda number, *_: number < tf.reduce_max(steps), step, (0, zeros, zeros))[2]
