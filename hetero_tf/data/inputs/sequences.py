"""Input pipeline for labelled sequences of words, such as sentences and their topics."""

import tensorflow as tf

from hetero_tf.data.inputs import Input

DATA = "sequences"
FORM = "words"
TARGETS = "label"
HIDDEN = "the padding"
CONFLICTS = {"it has one row for each label; use Embedding": {"model.layers": "MaskedTokenEmbedding"}}


def build(dtype: tf.DType) -> Input:
    """Make batches of complete rows, padded after the last word, see the layer Embedding."""

    def batch(x, y, rows, start, key, labels, training, length=None):
        return tf.gather(x, rows), labels.local(tf.gather(y, rows))

    return Input(batch, dtype="int32")
