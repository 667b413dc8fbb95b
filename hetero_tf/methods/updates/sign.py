"""Sign: sends the sign of each value of an update and their mean magnitude, and the error in later rounds."""

import tensorflow as tf

UNBIASED = False


def update(
    weights: tf.Tensor, start: tf.Tensor, steps: tf.Tensor, key: tf.Tensor, *, entries, error_feedback: bool = True
) -> tf.Tensor:
    """Return `start + sign(change) * mean(|change|)` with the mean over the client's values; the sign of 0 is +1.

    Args:
        error_feedback: store the error of a message and add it to the client's next update.

    Reference: Karimireddy et al. 2019 (arXiv 1901.09847), EF-signSGD.
    """
    change = weights - start
    count = tf.cast(entries, change.dtype)[:, None]
    mean = tf.math.divide_no_nan(tf.reduce_sum(tf.abs(change), axis=1, keepdims=True), count)
    return start + tf.where(change < 0, -mean, mean)


def message_bits(count: float, *, error_feedback: bool = True) -> float:
    """The mean in 32 bits, and one for each value."""
    return 32 + count
