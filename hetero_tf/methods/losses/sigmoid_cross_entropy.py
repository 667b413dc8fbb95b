"""Cross-entropy of independent labels, each with the sigmoid of its logit as probability."""

import tensorflow as tf

TARGETS = ("label_set",)
MASKS_LABELS = False


def loss(logits: tf.Tensor, targets: tf.Tensor, present: tf.Tensor | None, outside: int) -> tf.Tensor:
    """Return the mean binary cross-entropy over the labels, of every example.

    As `keras.losses.BinaryCrossentropy(from_logits=True)` without reduction.
    """
    return tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(tf.cast(targets, logits.dtype), logits), -1)
