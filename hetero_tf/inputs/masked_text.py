"""Rows of tokens, read in segments of which a share of the positions is hidden (masked language model)."""

import tensorflow as tf

from hetero_tf.base import graph_random
from hetero_tf.base.constraints import Count, Probability
from hetero_tf.inputs import Input


def build(
    dtype: tf.DType, *, segment: Count = 64, mask_share: Probability = 0.15, uniform=graph_random.uniform
) -> Input:
    """Makes segments in which hidden positions hold the mask token; targets are all original tokens.

    Args:
        segment: positions that a model sees at once; the last segment of a row may be shorter.
        mask_share: chance of each position to be hidden, at test time too.
        uniform: source of the random numbers, `(key, shape) -> float32 in [0, 1)`, as `graph_random.uniform`.

    The mask token's id is the number of labels, one behind the last word. There is no 80/10/10 rule and no forced
    minimum (HeteroFL authors' code).
    """

    def length_at(x, start):
        return tf.minimum(segment, tf.shape(x)[1] - start)

    def batch(x, y, rows, start, key, labels, training, length=None):
        length = length_at(x, start) if length is None else length
        whole = tf.gather(x, rows)
        ahead = [0] * (whole.shape.rank - 1)
        tokens = labels.local(tf.slice(whole, [*ahead, start], [*(size - 1 for size in ahead), length]))
        hidden = uniform(key, tf.shape(tokens)[-2:]) < mask_share
        return tf.where(hidden, labels.count, tokens), tokens

    return Input(
        batch,
        length_at,
        shape=lambda x: (None,),
        dtype="int32",
        starts=lambda x: tuple(range(0, x.shape[1], segment)),
        shuffle=False,
        random=True,
        takes="text",
    )
