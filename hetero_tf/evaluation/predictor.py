"""The parts of an evaluation, and the prediction model of a level: its values, its statistics, and its metrics."""

import dataclasses
import functools
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import keras
import numpy as np
import tensorflow as tf

from hetero_tf.base import seeds
from hetero_tf.base.replicas import Replicas
from hetero_tf.data.dataset import Dataset
from hetero_tf.data.disk_array import DiskArray
from hetero_tf.data.inputs import Examples, stored
from hetero_tf.data.partitions.partition import Partition
from hetero_tf.evaluation.fairness import ClientTests, client_tests
from hetero_tf.evaluation.global_metrics import Measures, SplitBatches, build_text_metrics
from hetero_tf.evaluation.statistics_query import StatisticsQuery, noise_seed, statistics_batches, statistics_rng
from hetero_tf.models.entry_masks import build_entry_mask, masked_values
from hetero_tf.models.family import ModelFamily
from hetero_tf.models.state import State
from hetero_tf.models.variables import carried, is_seed, is_table, queried
from hetero_tf.planning.plan import assign_levels
from hetero_tf.recipe.schema import Recipe

# Divisor of the training set for `evaluate.statistics: sample`, and the smallest number of its examples.
SAMPLE_DIVISOR, MIN_SAMPLE = 10, 1000


@dataclass(frozen=True)
class EvaluationSetup:
    """The models, the examples and the metrics of an evaluation.

    Attributes:
        replicas: The replicas that share the work, and the number of batches or clients that each has in flight.
        local: The examples as clients see them; `dataset` without noise of clients.
    """

    dataset: Dataset
    partition: Partition
    family: ModelFamily
    examples: Examples
    measures: Measures
    replicas: Replicas
    local: Dataset

    @property
    def recipe(self) -> Recipe:
        """The recipe of the models."""
        return self.family.recipe

    @functools.cached_property
    def statistics_rows(self) -> Iterable[np.ndarray]:
        """The training examples of the statistics query: int32 arrays, see `statistics_batches`."""
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
        """`{name: (x, y)}` of the test split, and of the clients' test and validation examples if they differ."""
        ids, splits = self.partition.held_out.ids, {"test": self.dataset.test}
        splits |= {} if self.local is self.dataset else {"local_test": self.local.test}
        splits |= {"validation": self.local.train.select(ids)} if ids.size else {}
        return {name: (stored(split.x), split.y) for name, split in splits.items()}

    def batches(self, split: str) -> SplitBatches:
        """Return the batches of one of the `splits`."""
        size = self.recipe.evaluate.batch_size
        return SplitBatches(self.examples.input, self.splits[split][0], size, self.replicas)

    @functools.cached_property
    def levels(self) -> np.ndarray | None:
        """int [clients], positions in the mix of the clients' levels; None with dynamic assignment."""
        mix, clients = self.recipe.levels, len(self.partition.train)
        if mix.assignment == "dynamic":
            return None
        return assign_levels(mix, clients, self.recipe.seed, 0, np.arange(clients))

    @functools.cached_property
    def tests_by_split(self) -> dict[str, ClientTests]:
        """The examples of each client in each of the splits, with the clients' levels if these are fixed.

        The validation split has the held-out examples in the order of their clients.
        """
        held_out = self.partition.held_out
        validation = dataclasses.replace(held_out, ids=np.arange(len(held_out.ids), dtype=np.int32))
        shares = {"test": self.partition.test, "local_test": self.partition.test, "validation": validation}
        mask, names = self.partition.label_mask, self.recipe.levels.names
        return {split: client_tests(share, mask, self.levels, names) for split, share in shares.items()}


@dataclass(frozen=True, eq=False)
class LevelPredictor:
    """The prediction model of one level; its functions are compiled once, on first use."""

    setup: EvaluationSetup
    level: str

    @functools.cached_property
    def model(self) -> keras.Model:
        """The Keras model with initial values; compiled functions receive those of a state."""
        return self._build()

    def trainable(self, state: State) -> list[tf.Tensor]:
        """Return the trainable values, in order; 0 outside the level's mask, which the global level lacks."""
        recipe, variables = self.setup.recipe, self.model.trainable_variables
        weights = [self._value(state, variable) for variable in variables]
        is_global = self.level == recipe.levels.global_level
        mask = None if is_global or recipe.round.mask is None else build_entry_mask(recipe, self.level, variables)
        if mask is None:
            return weights
        # A prediction is for no client: id -1.
        return masked_values(mask, weights, tf.constant([seeds.seed32(recipe.seed, "round"), state.round, -1]))

    def values(self, state: State) -> list[tf.Tensor]:
        """Return the values of the level's model, in the order of `variables.values`."""
        return [*self.trainable(state), *(self._value(state, variable) for variable in carried(self.model))]

    def others(self, state: State, statistics: dict) -> list[tf.Tensor]:
        """Return the non-trainable values, in order; `statistics`: those of this level."""
        values = []
        for variable in self.model.non_trainable_variables:
            if is_seed(variable) or is_table(variable):
                values.append(tf.convert_to_tensor(variable))
            else:
                queried = statistics.get(variable.path)
                values.append(self._value(state, variable) if queried is None else queried)
        return values

    def _value(self, state, variable):
        """Return the first channels of the global value; of personal values the clients' mean."""

        def value(path):
            personal = state.clients.get("personal", {}).get(path)
            return state.weights[path] if personal is None else tf.reduce_mean(personal, 0)

        return self.setup.family.prediction_value(variable, value)

    def statistics(
        self, state: State, rows: Iterable[np.ndarray] | None = None, rng: np.random.Generator | None = None
    ) -> dict[str, tf.Tensor]:
        """Run the statistics query with this level's activations: `{path: value}`.

        Args:
            rows: int32 arrays of training examples, see `statistics_batches`; by default those of the recipe.
            rng: Shuffles them; by default the generator of the recipe's seed and the round.
        """
        paths, recipe = [variable.path for variable in queried(self.model)], self.setup.recipe
        if not paths:
            return {}
        rows = self.setup.statistics_rows if rows is None else rows
        rng = statistics_rng(recipe.seed, state.round) if rng is None else rng
        # Full batches run in groups, short ones one by one.
        full, short = statistics_batches(rows, recipe.evaluate.statistics_batch, rng)
        averages = self.calibrate(self.values(state), full, short, noise_seed(recipe.seed, state.round))
        return dict(zip(paths, averages))

    def measure(self, split: str, state: State, statistics: dict | None = None) -> dict[str, tf.Tensor]:
        """Return the loss and the metrics of the task, or perplexity, on a split under all labels."""
        statistics = self.statistics(state) if statistics is None else statistics
        return self.compiled(split)(self.trainable(state), self.others(state, statistics))

    @functools.cached_property
    def compiled(self) -> Callable:
        """Function from a split to the compiled function `(trainable, others) -> metrics`."""
        return functools.cache(self._compile)

    def _compile(self, split):
        setup, (_, y) = self.setup, self.setup.splits[split]
        if y is None:
            metrics = build_text_metrics(self.model, setup.batches(split), setup.family.classes, setup.recipe.seed)
        else:
            metrics = setup.measures.build_metrics(self.model, setup.batches(split), y)
        return setup.replicas.compiled(metrics)

    @functools.cached_property
    def calibrate(self) -> StatisticsQuery:
        """The statistics query of the level's model."""
        size, replicas = self.setup.recipe.evaluate.statistics_batch, self.setup.replicas
        return StatisticsQuery(self.model, self._build(), self.setup.examples, size, replicas)

    def _build(self):
        return self.setup.family.fast(self.setup.family.predictor(self.level))
