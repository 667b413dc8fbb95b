"""Input pipelines: each module has `build(dtype, *, options) -> Input`; dtype is the float type of the model.

Raw examples (uint8 pixels, int32 tokens, table features) are stored unchanged in memory, or on disk for images.
Normalisation, augmentation and masking run in the graph, with stateless random numbers derived from a key. A `build`
that declares the parameter `statistics` receives `Dataset.feature_statistics`; `rate`, that of the codec.

A module describes its input by constants, plain values that recipe checks read without importing it:

- `DATA`: the `KIND` of the supported codecs, such as "images"; absent: any.
- `FORM`: the form of a model input: "map" [height, width, channels], "tokens" [positions, channels], "vector"
  [features], "words" [positions] of ids.
- `TARGETS`: "label", those of the task, one for each example; or "positions", one word at each position. It determines
  the metrics and the form of the outputs.
- `HIDDEN`: the positions that a layer must not see, such as "the padding", so attention is rejected; absent: none.
- `TASK`: "next_word" if the targets of positions are the next words; absent: the words themselves.
- `PER_CHANNEL`: names of the options that have one number for each channel, or one for all.
- `ON_DEVICE`: True if `devices.on_device` can make its batches.
- `REQUIRES`, `CONFLICTS`, `UNUSED`: rules for other keys of the recipe, see `methods`.
"""

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tensorflow as tf

from hetero_tf.data.disk_array import DiskArray


@dataclass(frozen=True)
class Input:
    """Converts stored examples to model inputs and loss targets.

    Attributes:
        batch: `(x, y, rows, start, key, labels, training, length=None) -> (inputs, targets)`. x, y: the stored split,
            images are read by `gather_examples`, since they may be on disk; rows: int32 [..., batch]; start: int32 [],
            first position (text); key: int32 [..., words] for random numbers; labels: a `Labels`; training: whether to
            augment; length: number of positions as a Python int, for XLA; None: all remaining ones of the segment. rows
            and key share their leading axes, one for the clients of a block or none; the results have them too.
        length: `(x, start) -> number of positions` read from `start`, int32; the default of 1 is for whole examples.
        shape: `x -> shape` of one model input; None for axes of variable length.
        dtype: Type of model inputs; None: the float type of the recipe.
        starts: `x -> first positions` of the segments of an example; the default of (0,) is for whole examples.
        shuffle: Whether clients shuffle their examples in each epoch.
        normalised_by: "mean" and "std" of the normalisation, one value per channel or feature, or one for all; empty
            without normalisation.
        spectrogram: `audio.Spectrogram` that converts clips to maps before the normalisation; None for others.
    """

    batch: Callable
    length: Callable = lambda x, start: tf.constant(1)
    shape: Callable = lambda x: tuple(x.shape[1:])
    dtype: str | None = None
    starts: Callable = lambda x: (0,)
    shuffle: bool = True
    normalised_by: dict[str, list[float]] = field(default_factory=dict)
    spectrogram: Any = None


@dataclass(frozen=True)
class Labels:
    """The label axis of a client: `local(targets)` maps labels to its positions; `count` is its length."""

    local: Callable
    count: int


def stored(x: np.ndarray | DiskArray) -> tf.Tensor | DiskArray:
    """Return the examples of a split in the form that graphs use: a tensor, or an unchanged `DiskArray`.

    Graphs capture the tensor. A constant inside a graph would be copied into it, and TensorFlow's graph optimizer would
    compute on it before the first call, which takes minutes for 100 MB.
    """
    if isinstance(x, DiskArray):
        return x
    with tf.init_scope():
        return tf.constant(x)


def gather_examples(x: tf.Tensor | DiskArray, rows: tf.Tensor) -> tf.Tensor:
    """Gather stored examples [*rows.shape, ...] in the graph; a `DiskArray` is read at run time, without XLA.

    Args:
        x: Result of `stored`.
        rows: int32 of any shape.
    """
    if not isinstance(x, DiskArray):
        return tf.gather(x, rows)
    # Declare the op stateless: TensorFlow runs stateful ops one after the other.
    examples = tf.numpy_function(x.__getitem__, [rows], x.dtype, stateful=False)
    return tf.ensure_shape(examples, [*rows.shape, *x.row])


def gather_segment(x: tf.Tensor, rows: tf.Tensor, start: tf.Tensor, length: int | tf.Tensor) -> tf.Tensor:
    """Gather `length` positions from `start` on of stored rows of tokens, [*rows.shape, length].

    XLA would compile a slice for each `start`.
    """
    return tf.gather(tf.gather(x, rows), start + tf.range(length), axis=-1)


def all_labels(classes: int) -> Labels:
    """Return the label axis of the global model: the identity."""
    return Labels(local=lambda targets: targets, count=classes)


def first_inputs(source: Input, x: np.ndarray | DiskArray, classes: int, count: int) -> np.ndarray:
    """Return the model inputs of the first examples without augmentation, [at most count, ...].

    Args:
        x: The examples of a split.
        classes: Number of labels; of text, the number of words.
    """
    count = min(count, len(x))
    rows, targets = tf.range(count), tf.zeros([count], tf.int32)
    key, labels = tf.zeros([4], tf.int32), all_labels(classes)
    inputs, _ = source.batch(tf.constant(x[:count]), targets, rows, tf.constant(0), key, labels, training=False)
    return inputs.numpy()


def batch_shapes(
    source: Input, x: np.ndarray | DiskArray, sizes: np.ndarray, batch_size: int
) -> tuple[tuple[int, int], ...]:
    """Return (examples, positions) of every possible batch of any client, in descending order.

    Args:
        source: The input pipeline.
        x: The stored examples.
        sizes: int [clients], number of examples of each client.
        batch_size: Examples of a full batch.
    """
    counts = np.unique(sizes)
    examples = {batch_size} if (counts >= batch_size).any() else set()
    examples |= set((counts % batch_size).tolist()) - {0}
    lengths = {int(source.length(x, start)) for start in source.starts(x)}
    return tuple(sorted(itertools.product(examples, lengths), reverse=True))


@dataclass(frozen=True)
class Examples:
    """The stored training split and its per-client metadata.

    Attributes:
        input: The input pipeline.
        x, y: The training split; `y` is None for text. If `x` is on disk, each call receives the rows that it reads.
        min_rows: Smallest number of rows of such a call; fewer rows are padded.
        labels: int32 [clients, max labels], each client's labels, padded with -1; None: label axes are not cut.
        present: bool [clients, label axis], the labels of its label axis that a client has.
        counts: float [clients], the weight of each client in the merge; None: every client has weight 1.
        batch_shapes: All possible (examples, positions) of a batch; (None,): the shape is known only at run time.
        sizes: int32 [clients], number of examples of each client.
        weights: Weight of each training example in the loss; None: 1.
    """

    input: Input
    x: tf.Tensor | DiskArray
    y: tf.Tensor | None
    min_rows: int
    labels: tf.Tensor | None
    present: tf.Tensor
    counts: tf.Tensor | None
    batch_shapes: tuple[tuple[int, int] | None, ...]
    sizes: tf.Tensor
    weights: tf.Tensor | None = None

    @property
    def on_disk(self) -> bool:
        """True if the examples stay on disk, so that the round receives their rows in each call."""
        return isinstance(self.x, DiskArray)
