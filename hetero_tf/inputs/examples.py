"""Training examples as the compiled round reads them: stored arrays, passes over them, and the shapes of batches."""

import itertools
from dataclasses import dataclass

import numpy as np
import tensorflow as tf

from hetero_tf.data.dataset import Dataset
from hetero_tf.data.disk_array import DiskArray
from hetero_tf.inputs import Input
from hetero_tf.partitions.partition import Partition
from hetero_tf.recipe.schema import Recipe


@dataclass(frozen=True)
class Pass:
    """One pass of a client over its examples.

    Attributes:
        batches: How many.
        batch: Most examples of a batch.
    """

    batches: int
    batch: int

    @classmethod
    def of(cls, examples: int, batch_size: int) -> "Pass":
        """The pass of a client that has so many examples."""
        return cls(-(-examples // batch_size), min(batch_size, examples))


def batch_shapes(recipe: Recipe, dataset: Dataset, partition: Partition, source: Input) -> tuple[tuple[int, int], ...]:
    """(examples, positions) of every batch that some client can read, the largest first."""
    size, counts = recipe.client.batch_size, np.unique(partition.train.sizes)
    examples = {size} if (counts >= size).any() else set()
    examples |= set((counts % size).tolist()) - {0}
    lengths = {int(source.length(dataset.train.x, start)) for start in source.starts(dataset.train.x)}
    return tuple(sorted(itertools.product(examples, lengths), reverse=True))


@dataclass(frozen=True)
class Examples:
    """The stored training split and what clients know of it.

    Attributes:
        input: How examples become batches.
        x, y: The training split; `y` is None for text. Where `x` stays on disk, a call is given the rows that it reads.
        min_rows: So many rows at least is it given then.
        labels: int32 [clients, most labels], each client's labels with -1 behind them; None: label axes are not cut.
        present: bool [clients, label axis], which labels of its label axis a client has.
        counts: float [clients], the weight of each client in the merge; None: every client weighs 1.
        batch_shapes: Every (examples, positions) that a batch can have; (None,): a shape is known when it is read.
        sizes: int32 [clients], how many examples each client has.
        longest: The pass of the client with the most examples.
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
