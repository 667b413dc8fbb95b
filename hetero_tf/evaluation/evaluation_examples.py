"""The examples on which models are evaluated: test, validation, and those of the statistics query."""

import dataclasses
import functools
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import tensorflow as tf

from hetero_tf.base import seeds
from hetero_tf.data.dataset import Dataset
from hetero_tf.data.disk_array import DiskArray
from hetero_tf.data.inputs import stored
from hetero_tf.data.partitions.partition import Partition
from hetero_tf.evaluation.fairness import ClientTests, client_tests
from hetero_tf.planning.level_assignment import assign_levels
from hetero_tf.recipe.schema import Recipe

# Divisor of the training set for `evaluate.statistics: sample`, and the smallest number of its examples.
SAMPLE_DIVISOR, MIN_SAMPLE = 10, 1000


@dataclass(frozen=True)
class EvaluationExamples:
    """The splits of a data set that evaluations read, and the clients that own their examples.

    Attributes:
        dataset: The examples.
        partition: The examples of each client.
        recipe: Its sections `evaluate` and `levels`, and its seed.
    """

    dataset: Dataset
    partition: Partition
    recipe: Recipe

    @functools.cached_property
    def statistics_rows(self) -> Iterable[np.ndarray]:
        """The training examples of the statistics query: int32 arrays, see `calibration.statistics_batches`."""
        if self.recipe.evaluate.statistics == "clients":
            return self.partition.train
        # Pooled: all training examples except the held-out ones.
        everything = np.arange(len(self.dataset.train.x), dtype=np.int32)
        pool = np.setdiff1d(everything, self.partition.held_out.ids)
        if self.recipe.evaluate.statistics == "pooled":
            return [pool]
        size = max(len(pool) // SAMPLE_DIVISOR, MIN_SAMPLE)
        return [seeds.rng(self.recipe.seed, "statistics sample").permutation(pool)[:size]]

    @functools.cached_property
    def splits(self) -> dict[str, tuple[tf.Tensor | DiskArray, np.ndarray | None]]:
        """`{name: (x, y)}` of the test split, and of the clients' validation examples, if there are any."""
        train, ids = self.dataset.train, self.partition.held_out.ids
        splits = {"test": (self.dataset.test.x, self.dataset.test.y)}
        if ids.size:
            held_out = train.select(ids)
            splits["validation"] = (held_out.x, held_out.y)
        return {name: (stored(x), y) for name, (x, y) in splits.items()}

    @functools.cached_property
    def levels(self) -> np.ndarray | None:
        """int [clients], positions in the mix of the clients' levels; None with dynamic assignment."""
        mix, clients = self.recipe.levels, len(self.partition.train)
        if mix.assignment == "dynamic":
            return None
        return assign_levels(mix, clients, self.recipe.seed, 0, np.arange(clients))

    @functools.cached_property
    def tests(self) -> dict[str, ClientTests]:
        """The examples "test" and "validation" of each client, with the clients' levels if these are fixed.

        The validation split has the held-out examples in the order of their clients.
        """
        held_out = self.partition.held_out
        validation = dataclasses.replace(held_out, ids=np.arange(len(held_out.ids), dtype=np.int32))
        return {"test": self._client_tests(self.partition.test), "validation": self._client_tests(validation)}

    def _client_tests(self, shares):
        return client_tests(shares, self.partition.label_mask, self.levels, self.recipe.levels.names)
