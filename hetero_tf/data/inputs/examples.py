"""Training examples of the compiled round: stored arrays, local epochs, and batch shapes."""

import itertools
from dataclasses import dataclass

import numpy as np
import tensorflow as tf

from hetero_tf.data.disk_array import DiskArray
from hetero_tf.data.inputs import Input


@dataclass(frozen=True)
class Pass:
    """One pass of a client over its examples.

    Attributes:
        batches: Number of batches.
        batch: Largest number of examples in a batch.
    """

    batches: int
    batch: int

    @classmethod
    def of(cls, examples: int, batch_size: int) -> "Pass":
        """Return the pass of a client with a given number of examples."""
        return cls(-(-examples // batch_size), min(batch_size, examples))


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
        longest: The pass of the client with the most examples.
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
    longest: Pass
    weights: tf.Tensor | None = None

    @property
    def on_disk(self) -> bool:
        """True if the examples stay on disk, so that the round receives their rows in each call."""
        return isinstance(self.x, DiskArray)
