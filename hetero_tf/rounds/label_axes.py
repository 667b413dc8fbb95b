"""Label axes of clients: their labels, and the position of each label on the axis."""

import tensorflow as tf

from hetero_tf.inputs import Labels, all_labels
from hetero_tf.inputs.examples import Examples
from hetero_tf.models.cut import Cut
from hetero_tf.rounds.gather import positions_in


def labels_of(examples: Examples, client: tf.Tensor) -> tf.Tensor:
    """Return the labels of a client's label axis, int32 [label axis], -1 = padding.

    Args:
        client: Scalar int32.
    """
    return tf.range(examples.present.shape[1]) if examples.labels is None else tf.gather(examples.labels, client)


def label_axis_of(examples: Examples, cut: Cut, labels: list[tf.Tensor]) -> Labels:
    """Return the `Labels` of a block's clients.

    Args:
        labels: The result of `labels_of` for each client.
    """
    if examples.labels is None:
        return all_labels(examples.present.shape[1])
    count, classes = labels[0].shape[0], global_classes(examples, cut)
    # An idle client reads another client's example, whose label may be missing on its axis.
    positions = tf.stack([tf.minimum(positions_in(label, classes), count - 1) for label in labels])
    return Labels(local=lambda targets: tf.gather(positions, targets, batch_dims=1), count=count)


def global_classes(examples: Examples, cut: Cut) -> int:
    """Return the length of the global label axis."""
    if examples.labels is None:
        return examples.present.shape[1]
    return next(axis for axis in cut.distinct if axis.label).size
