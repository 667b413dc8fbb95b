"""The parts of an evaluation, and the prediction model of a level: its values, its statistics, and its metrics."""

import dataclasses
import functools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import keras
import numpy as np
import tensorflow as tf

from hetero_tf.base import seeds
from hetero_tf.base.replicas import Replicas
from hetero_tf.data.dataset import Dataset
from hetero_tf.data.disk_array import DiskArray
from hetero_tf.data.inputs import Input, all_labels, stored
from hetero_tf.data.inputs.examples import Examples
from hetero_tf.data.partitions.partition import Partition
from hetero_tf.evaluation.fairness import ClientTests, client_tests
from hetero_tf.evaluation.global_metrics import Measures, SplitBatches, build_text_metrics
from hetero_tf.models.entry_masks import build_entry_mask, masked_values
from hetero_tf.models.family import ModelFamily
from hetero_tf.models.state import State
from hetero_tf.models.variables import all_layers, carried, is_seed, is_table, queried, values, with_values
from hetero_tf.planning.plan import assign_levels
from hetero_tf.recipe.schema import Recipe

# Divisor of the training set for `evaluate.statistics: sample`, and the smallest number of its examples.
SAMPLE_DIVISOR, MIN_SAMPLE = 10, 1000
# Batches in one call: fewer leave small models waiting for kernels, more do not fit into the caches.
BATCHES_PER_CALL = 20


@dataclass(frozen=True)
class EvaluationSetup:
    """The models, the examples and the metrics of an evaluation.

    Attributes:
        replicas: The replicas that share the work, and the number of batches or clients that each has in flight.
    """

    dataset: Dataset
    partition: Partition
    family: ModelFamily
    examples: Examples
    measures: Measures
    replicas: Replicas

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
        """`{name: (x, y)}` of the test split, and of the clients' validation examples, if there are any."""
        train, ids = self.dataset.train, self.partition.held_out.ids
        splits = {"test": (self.dataset.test.x, self.dataset.test.y)}
        if ids.size:
            held_out = train.select(ids)
            splits["validation"] = (held_out.x, held_out.y)
        return {name: (stored(x), y) for name, (x, y) in splits.items()}

    def batches(self, split: str) -> SplitBatches:
        """Return the batches of "test" or "validation"."""
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
        """The examples "test" and "validation" of each client, with the clients' levels if these are fixed.

        The validation split has the held-out examples in the order of their clients.
        """
        held_out = self.partition.held_out
        validation = dataclasses.replace(held_out, ids=np.arange(len(held_out.ids), dtype=np.int32))
        shares = {"test": self.partition.test, "validation": validation}
        mask, names = self.partition.label_mask, self.recipe.levels.names
        return {split: client_tests(share, mask, self.levels, names) for split, share in shares.items()}


@dataclass(frozen=True, eq=False)
class LevelPredictor:
    """The prediction model of one level; its functions are compiled once, on first use.

    Attributes:
        members: Number of networks that predict, the first ones; by default those of the level.
    """

    setup: EvaluationSetup
    level: str
    members: int | None = None

    @functools.cached_property
    def model(self) -> keras.Model:
        """The Keras model with initial values; compiled functions receive those of a state."""
        return self._build()

    def trainable(self, state: State) -> list[tf.Tensor]:
        """Return the trainable values, in order; 0 outside the level's mask, which the global level lacks."""
        recipe, variables = self.setup.recipe, self.model.trainable_variables
        weights = [value_of(self.setup.family, state, variable) for variable in variables]
        is_global = self.level == recipe.levels.global_level
        mask = None if is_global else build_entry_mask(recipe, self.level, variables)
        if mask is None:
            return weights
        # A prediction is for no client: id -1.
        return masked_values(mask, weights, tf.constant([seeds.seed32(recipe.seed, "round"), state.round, -1]))

    def values(self, state: State) -> list[tf.Tensor]:
        """Return the values of the level's model, in the order of `variables.values`."""
        return [
            *self.trainable(state),
            *(value_of(self.setup.family, state, variable) for variable in carried(self.model)),
        ]

    def others(self, state: State, statistics: dict) -> list[tf.Tensor]:
        """Return the non-trainable values, in order; `statistics`: those of this level."""
        values = []
        for variable in self.model.non_trainable_variables:
            if is_seed(variable) or is_table(variable):
                values.append(tf.convert_to_tensor(variable))
            else:
                queried = statistics.get(variable.path)
                values.append(value_of(self.setup.family, state, variable) if queried is None else queried)
        return values

    def statistics(
        self, state: State, rows: Iterable[np.ndarray] | None = None, rng: np.random.Generator | None = None
    ) -> dict[str, tf.Tensor]:
        """Run the statistics query of static batch normalisation with this level's activations: `{path: value}`.

        Args:
            rows: int32 arrays of training examples, see `statistics_batches`; by default those of the recipe.
            rng: Shuffles them; by default the generator of the recipe's seed and the round.
        """
        paths, recipe = statistics_paths(self.model), self.setup.recipe
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

    def compiled(self, split: str) -> Callable:
        """Return `(trainable, others) -> metrics` on a split, compiled once."""
        setup = self.setup
        if split not in self._compiled:
            batches, y = setup.batches(split), setup.splits[split][1]
            if y is None:
                metrics = build_text_metrics(self.model, batches, setup.family.classes, setup.recipe.seed)
            else:
                metrics = setup.measures.build_metrics(self.model, batches, y)
            self._compiled[split] = setup.replicas.compiled(metrics)
        return self._compiled[split]

    @functools.cached_property
    def calibrate(self) -> "StatisticsQuery":
        """The compiled query."""
        size, replicas = self.setup.recipe.evaluate.statistics_batch, self.setup.replicas
        return StatisticsQuery(self.model, self._build(), self.setup.examples, size, replicas)

    @functools.cached_property
    def _compiled(self):
        return {}

    def _build(self):
        return self.setup.family.fast(self.setup.family.predictor(self.level, self.members))


def statistics_paths(model: keras.Model) -> list[str]:
    """Return the paths of the non-trainable values that the statistics query gathers, in model order."""
    return [variable.path for variable in queried(model)]


def statistics_batches(
    examples: Iterable[np.ndarray], batch_size: int, rng: np.random.Generator | None = None
) -> tuple[np.ndarray, list[np.ndarray]]:
    """Return the batches of the statistics query.

    Args:
        examples: int32 arrays; one array for the pooled training set, or one per client. Batches do not
            cross arrays; the last batch of each may be short.
        rng: Shuffles each array unless None.

    Returns:
        (full, short): int32 [batches, batch_size], and a list of shorter int32 arrays.
    """
    full, short = [], []
    for ids in examples:
        ids = ids if rng is None else rng.permutation(ids)
        full_size = len(ids) // batch_size * batch_size
        full.append(np.asarray(ids[:full_size], np.int32).reshape(-1, batch_size))
        if full_size < len(ids):
            short.append(np.asarray(ids[full_size:], np.int32))
    return np.concatenate(full), short


@dataclass(frozen=True, eq=False)
class StatisticsQuery:
    """The query for the statistics of static batch normalisation: one pass over the data, after training.

    Attributes:
        grouped_model: A second one, which is changed to normalise groups of `batch_size` examples separately, so that
            many batches run as one.
        replicas: The replicas that share the work, and the number of calls that each has in flight.
    """

    model: keras.Model
    grouped_model: keras.Model
    examples: Examples
    batch_size: int
    replicas: Replicas

    def __call__(self, weights: list, full: np.ndarray, short: list[np.ndarray], seed: int) -> list[tf.Tensor]:
        """Return the mean of the batch means and of the unbiased batch variances, in the order of `statistics_paths`.

        Every batch counts 1 (the cumulative average of the authors' code).
        """
        # Short batches as one padded matrix, with their lengths.
        lengths = np.array([len(rows) for rows in short], np.int32)
        padded = np.full((len(short), self.batch_size), -1, np.int32)
        for number, rows in enumerate(short):
            padded[number, : len(rows)] = rows
        # A Python number would cause a new trace for every seed.
        return self._compiled(weights, *map(tf.constant, (full, padded, lengths)), tf.constant(seed))

    @functools.cached_property
    def _compiled(self):
        for layer in all_layers(self.grouped_model):
            if getattr(layer, "QUERIED", ()):
                layer.group_size = self.batch_size
        # Unknown numbers of batches, so that a run needs one trace.
        rows = tf.TensorSpec([None, None], tf.int32)
        signature = [
            [tf.TensorSpec(value.shape, value.dtype) for value in values(self.model)],
            *(rows, rows, tf.TensorSpec([None], tf.int32), tf.TensorSpec([], tf.int32)),
        ]
        return self.replicas.compiled(self._averages, input_signature=signature)

    def _averages(self, weights, full, short, lengths, seed):
        zeros = [tf.zeros(variable.shape, weights[0].dtype) for variable in queried(self.model)]

        def group(index):
            """Moments of `BATCHES_PER_CALL` full batches, times their number."""
            first = index * BATCHES_PER_CALL
            rows = full[first : first + BATCHES_PER_CALL]
            count = tf.cast(tf.shape(rows)[0], weights[0].dtype)
            key = tf.stack([seed, first])
            return [count * value for value in self._moments(self.grouped_model, weights, tf.reshape(rows, [-1]), key)]

        def short_batch(index):
            # A sum that would leave the range of its type wraps to 0.
            key = tf.cast((tf.cast(seed, tf.int64) + tf.cast(index, tf.int64) + 1) % 2**31, tf.int32)
            return self._moments(self.model, weights, short[index, : lengths[index]], tf.stack([key, -1]))

        groups = (tf.shape(full)[0] + BATCHES_PER_CALL - 1) // BATCHES_PER_CALL
        total = self.replicas.sum_range(groups, group, zeros)
        total = self.replicas.sum_range(tf.shape(short)[0], short_batch, total)
        count = tf.cast(tf.shape(full)[0] + tf.shape(short)[0], weights[0].dtype)
        return [value / count for value in self.replicas.all_reduce_sum(total)]

    def _moments(self, model, weights, rows, key):
        """Return the moments of one batch, or their means over a group of batches."""
        return batch_moments(model, with_values(model, weights), self.examples, rows, key)


def batch_moments(model: keras.Model, values: tuple, examples: Examples, rows: tf.Tensor, key: tf.Tensor) -> list:
    """Return the moments that a training step of a model on rows of the training split leaves.

    Args:
        rows: int32 [batch].
        key: int32 [words], seed of the noise of the inputs.
    """
    source: Input = examples.input
    inputs, _ = source.batch(examples.x, examples.y, rows, 0, key, all_labels(0), training=True)
    _, after = model.stateless_call(*values, inputs, training=True)
    return [after[index] for index in queried_positions(model)]


def queried_positions(model: keras.Model) -> list[int]:
    """Return the positions of the values of the statistics query among the non-trainable ones."""
    paths = statistics_paths(model)
    return [index for index, variable in enumerate(model.non_trainable_variables) if variable.path in paths]


def statistics_rng(seed: int, round: int) -> np.random.Generator:
    """Return the generator that shuffles the examples of the statistics query, client by client."""
    return seeds.rng(seed, "statistics", round)


def noise_seed(seed: int, round: int) -> int:
    """Return the seed of the random numbers of the statistics query, such as masked words."""
    return seeds.seed32(seed, "statistics noise", round)


def value_of(family: ModelFamily, state: State, variable: keras.Variable) -> tf.Tensor:
    """Return a predictor's value: the first channels of the global one; of personal values the clients' mean."""

    def value(path):
        personal = state.clients.get("personal", {}).get(path)
        return state.weights[path] if personal is None else tf.reduce_mean(personal, 0)

    return family.prediction_value(variable, value)


def select_networks(state: State, order: Sequence[int] | np.ndarray) -> State:
    """Return the state with these of its networks, in this order."""
    weights = {path: tf.gather(value, order) for path, value in state.weights.items()}
    return dataclasses.replace(state, weights=weights)


def sort_networks(state: State, networks: int, accuracy: Callable[[State], float]) -> State:
    """Return the state with its networks sorted by accuracy, the best first.

    Args:
        state: State of an ensemble whose networks are all merged.
        accuracy: Accuracy of the first network of a state.

    Reference: authors' code of SplitMix, which reverses the ascending order.
    """
    accuracies = [accuracy(select_networks(state, [network])) for network in range(networks)]
    return select_networks(state, np.argsort(accuracies, kind="stable")[::-1])
