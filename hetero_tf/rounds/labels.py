"""Label axes: where a client's is cut to its own labels, and which positions its labels have there."""

import numpy as np
import tensorflow as tf

from hetero_tf.base import registry
from hetero_tf.inputs import Labels, all_labels
from hetero_tf.recipe.schema import Recipe
from hetero_tf.rounds.cut import Cut, inverse
from hetero_tf.rounds.parts import Examples


def may_cut_labels(recipe: Recipe) -> bool:
    """Whether clients may train with a label axis of their own labels only, without any other result.

    Weight decay moves the rows of absent labels: a client that keeps its rows keeps that, and a correction answers it.
    A coupling that reads logits sees those of absent labels.
    """
    masks = registry.find("losses", recipe.client.loss.name).MASKS_LABELS
    reads = registry.find("couplings", recipe.client.coupling.name).READS_LOGITS
    follows = recipe.round.personal or recipe.client.correction or recipe.client.update or recipe.round.mask
    return bool(recipe.client.label_cut and recipe.round.label_rows == "own" and masks and not reads and not follows)


def label_table(label_mask: np.ndarray) -> np.ndarray:
    """Each client's labels as int32 [clients, most labels], -1 behind them.

    Args:
        label_mask: bool [clients, classes].
    """
    client, label = np.nonzero(label_mask)
    sizes = np.bincount(client, minlength=len(label_mask))
    table = np.full((len(sizes), sizes.max()), -1, np.int32)
    table[client, np.arange(len(label)) - np.repeat(np.cumsum(sizes) - sizes, sizes)] = label
    return table


def labels_of(examples: Examples, client: tf.Tensor) -> tf.Tensor:
    """The labels of a client's label axis, int32 [label axis], -1 = padding.

    Args:
        client: Scalar int32.
    """
    return tf.range(examples.present.shape[1]) if examples.labels is None else tf.gather(examples.labels, client)


def label_axis_of(examples: Examples, cut: Cut, labels: list[tf.Tensor]) -> Labels:
    """The `Labels` of the clients of a stack.

    Args:
        labels: `labels_of` each client.
    """
    if examples.labels is None:
        return all_labels(examples.present.shape[1])
    count, classes = labels[0].shape[0], global_classes(examples, cut)
    # An idle client reads an example of somebody else, whose label it may not have.
    positions = tf.stack([tf.minimum(inverse(own, classes), count - 1) for own in labels])
    return Labels(local=lambda targets: tf.gather(positions, targets, batch_dims=1), count=count)


def global_classes(examples: Examples, cut: Cut) -> int:
    """Length of the global label axis."""
    if examples.labels is None:
        return examples.present.shape[1]
    return next(axis for axis in cut.distinct if axis.label).size
