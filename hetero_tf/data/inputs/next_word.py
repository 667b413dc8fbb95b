"""Input pipeline for next-word language models: segments of token rows; each position predicts the next word."""

import tensorflow as tf

from hetero_tf.base.constraints import Count
from hetero_tf.base.errors import InputError
from hetero_tf.data.inputs import Input, gather_segment

DATA = "text"
FORM = "words"
TARGETS = "positions"
TASK = "next_word"
HIDDEN = "the words to predict"


def build(dtype: tf.DType, *, segment: Count = 64) -> Input:
    """Make segments of words; targets are the words one position later.

    Args:
        segment: positions per model input; the last segment of a row may be shorter.

    No model state is carried over between segments. Perplexity is computed as for masked text, as the mean of exp(loss)
    over batches.
    """

    def length_at(x, start):
        # The last word of a row has no next word.
        return tf.minimum(segment, tf.shape(x)[1] - 1 - start)

    def batch(x, y, rows, start, key, labels, training, length=None):
        length = length_at(x, start) if length is None else length
        words = gather_segment(x, rows, start, length + 1)
        words = labels.local(words)
        return words[..., :-1], words[..., 1:]

    def starts(x):
        if x.shape[1] < 2:
            raise InputError(f"input: next_word needs rows of at least 2 words. Received: {x.shape[1]} in a row")
        return tuple(range(0, x.shape[1] - 1, segment))

    return Input(batch, length_at, shape=lambda x: (None,), dtype="int32", starts=starts, shuffle=False)
