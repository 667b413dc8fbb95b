"""q-FedAvg: clients with a larger loss move the global weights further."""

import tensorflow as tf

from hetero_tf.base.constraints import NotNegative
from hetero_tf.methods.merges import covered_mean, entry_weights


def aggregate(
    old: tf.Tensor, rows: tf.Tensor, covered: tf.Tensor, weight: tf.Tensor, *, loss, rate, q: NotNegative = 1.0
) -> tf.Tensor:
    """`old + sum(p F^q c) / sum(p (F^q + q F^(q-1) |c|^2 / rate))` over the clients that cover an entry.

    p is the weight of a client, F its loss and c its update `row - old`, whose norm is over the entries that it covers.
    It is the paper's step with the Lipschitz constant 1 / rate. F is the mean loss of the local steps, which costs
    nothing, and not that of the global model over all examples of the client, as in the paper.

    Args:
        q: strength of the fairness; 0: the mean.

    Reference: q-FFL (Li et al. 2020, arXiv 1905.10497), algorithm 2.
    """
    change = rows - old
    squares = tf.reduce_sum(tf.square(change), 1)
    weights = entry_weights(covered, weight * tf.pow(loss, tf.constant(q, loss.dtype)))
    divisor = covered_mean((1 + q * tf.math.divide_no_nan(squares, rate * loss))[:, None], weights)
    return old + tf.math.divide_no_nan(covered_mean(change, weights), divisor)
