"""Random: every client draws new coordinates in every round."""

import tensorflow as tf

from hetero_tf.base.graph_random import uniform


def keep(size: int, count: int, round: tf.Tensor, client: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
    """Draw `count` of `size` coordinates without replacement, in ascending order.

    Reference: Federated Dropout, Caldas et al. 2018 (arXiv 1812.07210), drawn per client.
    """
    if count == size:
        return tf.range(size)
    draws = uniform(tf.stack([seed, round, client, size]), [size])
    return tf.sort(tf.argsort(draws, stable=True)[:count])
