"""Random: every client and round draws its coordinates anew."""

import tensorflow as tf

from hetero_tf.base.graph_random import uniform


def keep(size: int, kept: int, round: tf.Tensor, client: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
    """`kept` of `size` coordinates without replacement, in ascending order.

    Reference: Federated Dropout, Caldas et al. 2018 (arXiv 1812.07210), drawn per client.
    """
    if kept == size:
        return tf.range(size)
    draws = uniform(tf.stack([seed, round, client, size]), [size])
    return tf.sort(tf.argsort(draws, stable=True)[:kept])
