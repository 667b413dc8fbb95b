"""Rows of tokens, read in segments whose positions predict the word after each of them (language model)."""

import tensorflow as tf

from hetero_tf.base.constraints import Count
from hetero_tf.base.errors import InputError
from hetero_tf.inputs import Input


def build(dtype: tf.DType, *, segment: Count = 64) -> Input:
    """Makes segments of words; targets are the words one position later.

    Args:
        segment: positions that a model sees at once; the last segment of a row may be shorter.

    A model begins each segment anew: no state goes from one to the next. Perplexity is measured as that of masked text,
    a mean over batches of exp(loss).
    """

    def length_at(x, start):
        # The last word of a row has none behind it.
        return tf.minimum(segment, tf.shape(x)[1] - 1 - start)

    def batch(x, y, rows, start, key, labels, training, length=None):
        length = length_at(x, start) if length is None else length
        whole = tf.gather(x, rows)
        ahead = [0] * (whole.shape.rank - 1)
        words = tf.slice(whole, [*ahead, start], [*(size - 1 for size in ahead), length + 1])
        words = labels.local(words)
        return words[..., :-1], words[..., 1:]

    def starts(x):
        if x.shape[1] < 2:
            raise InputError(f"next words need rows of at least 2 words of text. Received: {x.shape[1]} in a row")
        return tuple(range(0, x.shape[1] - 1, segment))

    return Input(
        batch,
        length_at,
        shape=lambda x: (None,),
        dtype="int32",
        starts=starts,
        shuffle=False,
        random=False,
        takes="text",
    )
