"""How examples become batches: `build(dtype, *, options) -> Input`, dtype = float type of the model.

Raw examples stay as they are (uint8 pixels, int32 tokens, table columns), in memory, or images on disk; normalisation,
augmentation and masking run in the graph from random numbers that are a function of a key. What a build knows of the
data is what it has a parameter for: `statistics`, which are `Dataset.feature_statistics`.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import tensorflow as tf

from hetero_tf.data.disk_array import DiskArray


@dataclass(frozen=True)
class Input:
    """Turns stored examples into what a model takes and what the loss compares.

    Attributes:
        batch: `(x, y, rows, start, key, labels, training, length=None) -> (inputs, targets)`. x, y: the stored split,
            whose images `rows_of` reads, since they may stay on disk; rows: int32 [..., batch]; start: int32 [], first
            position (text); key: int32 [..., words] for random numbers; labels: a `Labels`; training: whether to
            augment; length: positions to read as a Python int, for XLA; None: as many as there are. rows and key have
            the same leading axes, one for the clients of a stack or none, and the results have them too.
        length: `(x, start) -> positions` that are read from `start` on, int32; 1 for images and tables.
        shape: `x -> shape` of one model input, None where it varies.
        dtype: Of model inputs, None for the float type of the recipe.
        starts: `x -> first positions` of the pieces that one example is read in; (0,) for images and tables.
        shuffle: Whether a client draws its examples in a new order each epoch.
        random: Whether training batches depend on the key.
        takes: What data it is for, a `Dataset.kind` such as "images"; None: any.
        normalised_by: "mean" and "std" that it normalises by, a value for each channel or feature or one for all; empty
            where it does not.
    """

    batch: Callable
    length: Callable
    shape: Callable
    dtype: str | None
    starts: Callable
    shuffle: bool
    random: bool
    takes: str | None = None
    normalised_by: dict[str, list[float]] = field(default_factory=dict)


@dataclass(frozen=True)
class Labels:
    """A client's own label axis: `local(targets)` maps labels to its positions; `count` is its length."""

    local: Callable
    count: int


def stored(x: np.ndarray | DiskArray) -> tf.Tensor | DiskArray:
    """Returns the examples of a split as graphs take them: as a tensor, or on disk as they are."""
    return x if isinstance(x, DiskArray) else tf.constant(x)


def rows_of(x: tf.Tensor | DiskArray, rows: tf.Tensor) -> tf.Tensor:
    """Returns stored examples [*rows.shape, ...], for the graph; those on disk are read when it runs, not by XLA.

    Args:
        x: As `stored` gives it.
        rows: int32 of any shape.
    """
    if not isinstance(x, DiskArray):
        return tf.gather(x, rows)
    # Stateless for TensorFlow: otherwise batches would wait for each other.
    found = tf.numpy_function(x.__getitem__, [rows], x.dtype, stateful=False)
    return tf.ensure_shape(found, [*rows.shape, *x.row])


def all_labels(classes: int) -> Labels:
    """Returns the label axis of the global model, on which every label is its own position."""
    return Labels(local=lambda targets: targets, count=classes)
