"""Rows of tokens, read in segments of which a share of the positions is hidden (masked language model)."""

import tensorflow as tf

from hetero_tf import noise
from hetero_tf.inputs import Input


def build(dtype, *, segment: int = 64, mask_share: float = 0.15, uniform=noise.uniform):
    """Segments in which hidden positions hold the mask token; targets are all original tokens.

    Args:
        segment: positions that a model sees at once; the last segment of a row may be shorter.
        mask_share: chance of each position to be hidden, at test time too.
        uniform: source of the random numbers, `(key, shape) -> float32 in [0, 1)`.

    The mask token's id is the number of labels, one behind the last word. There is no 80/10/10 rule and no forced
    minimum (HeteroFL authors' code).
    """

    def batch(x, y, rows, start, key, labels, training):
        tokens = labels.local(tf.gather(x, rows)[:, start:start + segment])
        hidden = uniform(key, tf.shape(tokens)) < mask_share
        return tf.where(hidden, labels.count, tokens), tokens

    return Input(batch, shape=lambda x: (None,), dtype="int32",
                 starts=lambda x: tuple(range(0, x.shape[1], segment)), shuffle=False)
