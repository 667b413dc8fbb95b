"""F1 score in percent, mean over the labels."""

import tensorflow as tf

TARGETS = ("label", "label_set", "label_map")
BETTER = "higher"
UNIT = "%"


def metric(scores: tf.Tensor, targets: tf.Tensor) -> tf.Tensor:
    """Return the mean over labels that occur in targets or predictions of `2 TP / (2 TP + FP + FN)`.

    As `sklearn.metrics.f1_score(average="macro")`. A label of a label set that occurs in neither counts 0.
    """
    true, predicted, both = counts(scores, targets)
    f1 = tf.math.divide_no_nan(2 * both, true + predicted)
    if targets.dtype == tf.bool:
        return 100 * tf.reduce_mean(f1)
    return 100 * tf.reduce_mean(tf.boolean_mask(f1, true + predicted > 0))


def counts(scores: tf.Tensor, targets: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Return the number of times that each label is a target, is predicted, and is both: float64 [labels].

    Args:
        scores: [..., labels]; those of a label set predict the labels with a positive score, others the highest one.
        targets: bool [n, labels], or integers in the leading axes of the scores.
    """
    if targets.dtype == tf.bool:
        true, predicted = targets, scores > 0
        return tuple(tf.reduce_sum(tf.cast(each, tf.float64), 0) for each in (true, predicted, true & predicted))
    labels = scores.shape[-1]
    true, predicted = tf.reshape(targets, [-1]), tf.reshape(tf.argmax(scores, -1, tf.int32), [-1])
    correct = tf.boolean_mask(true, tf.equal(true, predicted))
    sums = (tf.math.bincount(each, minlength=labels, dtype=tf.float64) for each in (true, predicted, correct))
    return tuple(tf.ensure_shape(each, [labels]) for each in sums)
