"""FIARSE: a client trains the entries of largest magnitude; the mask is updated as they change."""

import tensorflow as tf


def prepare(start: tf.Tensor, key: tf.Tensor, maskable: tf.Tensor, number: int, *, surrogate: bool = True) -> tf.Tensor:
    """Return the threshold of every entry, [K, P]: the `number`-th largest magnitude of the maskable ones, else 0."""
    # -1 sorts the unmaskable entries last; their threshold 0 keeps them above the threshold at any value.
    magnitudes = tf.where(maskable, tf.abs(start), -tf.ones([], start.dtype))
    threshold = tf.math.top_k(magnitudes, number).values[:, -1:]
    return tf.where(maskable, threshold, tf.zeros([], start.dtype))


def mask(weights: tf.Tensor, state: tf.Tensor, *, surrogate: bool = True) -> tf.Tensor:
    """1 where the magnitude reaches the threshold t, else 0.

    With the surrogate, the derivative of an active entry's mask by its magnitude is `2t / (|w| + t)^2`, that of
    `(|w| - t) / (|w| + t)`. The gradient of `w * mask` is then `1 + 2t|w| / (|w| + t)^2` for active entries, else 0.

    Args:
        surrogate: whether the mask has this derivative; the public code intends it but does not apply it.

    Reference: Wu et al. 2024 (NeurIPS), with the details of the public code.
    """
    magnitude = tf.abs(weights)
    above_threshold = tf.cast(magnitude >= state, weights.dtype)
    if not surrogate:
        return above_threshold
    soft = above_threshold * tf.math.divide_no_nan(magnitude - state, magnitude + state)
    return above_threshold + (soft - tf.stop_gradient(soft))


def counts(weights: tf.Tensor, start: tf.Tensor, state: tf.Tensor, *, surrogate: bool = True) -> tf.Tensor:
    """Return the entries that changed: the server averages each entry over the clients that changed it."""
    return tf.not_equal(weights, start)
