"""FIARSE: a client trains the entries of largest magnitude, and the mask follows them while they change."""

import tensorflow as tf


def prepare(start: tf.Tensor, key: tf.Tensor, maskable: tf.Tensor, number: int, *, surrogate: bool = True) -> tf.Tensor:
    """The threshold of every entry, [K, P]: of maskable ones the `number`-th largest magnitude."""
    # No magnitude is below 0, so what is not maskable comes last among them, and is inside whatever its value.
    magnitudes = tf.where(maskable, tf.abs(start), -tf.ones([], start.dtype))
    threshold = tf.math.top_k(magnitudes, number).values[:, -1:]
    return tf.where(maskable, threshold, tf.zeros([], start.dtype))


def mask(weights: tf.Tensor, state: tf.Tensor, *, surrogate: bool = True) -> tf.Tensor:
    """1 where the magnitude reaches the threshold t, else 0.

    With the surrogate its derivative by the magnitude is `2t / (|w| + t)^2` inside, that of `(|w| - t) / (|w| + t)`, so
    that the gradient of `w * mask` is `1 + 2t|w| / (|w| + t)^2` there, and 0 outside.

    Args:
        surrogate: whether the mask has that derivative; the public code means to have it and has none.

    Reference: Wu et al. 2024 (NeurIPS), with the details of the public code.
    """
    magnitude = tf.abs(weights)
    inside = tf.cast(magnitude >= state, weights.dtype)
    if not surrogate:
        return inside
    soft = inside * tf.math.divide_no_nan(magnitude - state, magnitude + state)
    return inside + (soft - tf.stop_gradient(soft))


def counts(weights: tf.Tensor, start: tf.Tensor, state: tf.Tensor, *, surrogate: bool = True) -> tf.Tensor:
    """The entries that changed: the server divides the sum of all changes by how many clients made one."""
    return tf.not_equal(weights, start)
