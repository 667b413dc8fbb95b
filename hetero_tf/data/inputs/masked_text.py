"""Input pipeline for masked language models: segments of token rows with masked positions."""

import tensorflow as tf

from hetero_tf.base import graph_random
from hetero_tf.base.constraints import Count, Probability
from hetero_tf.data.inputs import Input, gather_segment

DATA = "text"
FORM = "words"
TARGETS = "positions"
ON_DEVICE = True
CONFLICTS = {"it has no row for the mask; use MaskedTokenEmbedding": {"model.layers": "Embedding"}}


def build(
    dtype: tf.DType, *, segment: Count = 64, mask_share: Probability = 0.15, uniform=graph_random.uniform
) -> Input:
    """Make segments with masked positions; the targets are all original tokens.

    Args:
        segment: positions per model input; the last segment of a row may be shorter.
        mask_share: probability that a position is masked, also at test time.
        uniform: random generator `(key, shape) -> float32 in [0, 1)`, such as `graph_random.uniform`.

    The mask token has the id after the last word, the number of labels. As in the HeteroFL authors' code, there is no
    80/10/10 rule and no minimum number of masked positions.
    """

    def length_at(x, start):
        return tf.minimum(segment, tf.shape(x)[1] - start)

    def batch(x, y, rows, start, key, labels, training, length=None):
        length = length_at(x, start) if length is None else length
        tokens = labels.local(gather_segment(x, rows, start, length))
        masked = uniform(key, tf.shape(tokens)[-2:]) < mask_share
        return tf.where(masked, labels.count, tokens), tokens

    def starts(x):
        return tuple(range(0, x.shape[1], segment))

    return Input(batch, length_at, shape=lambda x: (None,), dtype="int32", starts=starts, shuffle=False)
