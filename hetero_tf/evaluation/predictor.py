"""The prediction model of a level: its values in any state, its statistics, and its metrics on a split."""

import dataclasses
import functools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import keras
import numpy as np
import tensorflow as tf

from hetero_tf.base import seeds
from hetero_tf.base.replicas import Replicas
from hetero_tf.data.inputs.examples import Examples
from hetero_tf.evaluation import calibration
from hetero_tf.evaluation.global_metrics import Measures, build_text_metrics
from hetero_tf.models.entry_masks import build_entry_mask, masked_values
from hetero_tf.models.family import ModelFamily, prediction_value
from hetero_tf.models.state import State
from hetero_tf.models.variables import carried, is_seed


@dataclass(frozen=True, eq=False)
class Predictor:
    """The prediction model of one level; its functions are compiled once, on first use.

    Attributes:
        family: The models of all levels.
        examples: The training split of the round.
        measures: The metrics of the task.
        splits: `{name: (x, y)}` of the splits to measure on; y is None for text.
        replicas: The replicas that share the work, and the number of batches that each has in flight.
        level: Name of the level.
        members: Number of networks that predict, the first ones; by default those of the level.
    """

    family: ModelFamily
    examples: Examples
    measures: Measures
    splits: dict
    replicas: Replicas
    level: str
    members: int | None = None

    @functools.cached_property
    def model(self) -> keras.Model:
        """The Keras model with initial values; compiled functions receive those of a state."""
        return self._build()

    def trainable(self, state: State) -> list[tf.Tensor]:
        """Return the trainable values, in order; 0 outside the level's mask, which the global level lacks."""
        variables = self.model.trainable_variables
        weights = [value_of(state, variable) for variable in variables]
        is_global = self.level == self.family.recipe.levels.global_level
        mask = None if is_global else build_entry_mask(self.family.recipe, self.level, variables)
        if mask is None:
            return weights
        # A prediction is for no client: id -1.
        return masked_values(
            mask, weights, tf.constant([seeds.seed32(self.family.recipe.seed, "round"), state.round, -1])
        )

    def values(self, state: State) -> list[tf.Tensor]:
        """Return the values of the level's model, in the order of `variables.values`."""
        return [*self.trainable(state), *(value_of(state, variable) for variable in carried(self.model))]

    def others(self, state: State, statistics: dict) -> list[tf.Tensor]:
        """Return the non-trainable values, in order; `statistics`: those of this level."""
        values = []
        for variable in self.model.non_trainable_variables:
            if is_seed(variable):
                values.append(tf.convert_to_tensor(variable))
            else:
                queried = statistics.get(variable.path)
                values.append(value_of(state, variable) if queried is None else queried)
        return values

    def statistics(
        self, state: State, rows: Iterable[np.ndarray], rng: np.random.Generator | None = None
    ) -> dict[str, tf.Tensor]:
        """Run the statistics query of static batch normalisation with this level's activations: `{path: value}`.

        Args:
            state: The state of a run.
            rows: int32 arrays of training examples, see `calibration.statistics_batches`.
            rng: Shuffles them; by default the generator of the recipe's seed and the round.
        """
        paths = calibration.statistics_paths(self.model)
        if not paths:
            return {}
        rng = statistics_rng(self.family.recipe.seed, state.round) if rng is None else rng
        # Full batches run in groups, short ones one by one.
        full, short = calibration.statistics_batches(rows, self.family.recipe.evaluate.statistics_batch, rng)
        averages = self.calibrate(self.values(state), full, short, noise_seed(self.family.recipe.seed, state.round))
        return dict(zip(paths, averages))

    def measure(self, split: str, state: State, statistics: dict) -> dict[str, tf.Tensor]:
        """Return the loss and the metrics of the task, or perplexity, on a split under all labels."""
        return self.compiled(split)(self.trainable(state), self.others(state, statistics))

    def compiled(self, split: str) -> Callable:
        """Return `(trainable, others) -> metrics` on a split, compiled once."""
        if split not in self._compiled:
            self._compiled[split] = self.replicas.compiled(self._build_metrics(*self.splits[split]))
        return self._compiled[split]

    def _build_metrics(self, x, y):
        source, size = self.examples.input, self.family.recipe.evaluate.batch_size
        if y is None:
            classes, seed = self.family.classes, self.family.recipe.seed
            return build_text_metrics(self.model, source, x, classes, size, seed, self.replicas)
        return self.measures.build_metrics(self.model, source, (x, y), size, self.replicas)

    @functools.cached_property
    def calibrate(self) -> calibration.StatisticsQuery:
        """The compiled query."""
        train, size = self.examples, self.family.recipe.evaluate.statistics_batch
        return calibration.StatisticsQuery(
            self.model, self._build(), train.input, train.x, train.y, size, self.replicas
        )

    @functools.cached_property
    def _compiled(self):
        return {}

    def _build(self):
        return self.family.fast(self.family.predictor(self.level, self.members))


def statistics_rng(seed: int, round: int) -> np.random.Generator:
    """Return the generator that shuffles the examples of the statistics query, client by client."""
    return seeds.rng(seed, "statistics", round)


def noise_seed(seed: int, round: int) -> int:
    """Return the seed of the random numbers of the statistics query, such as masked words."""
    return seeds.seed32(seed, "statistics noise", round)


def value_of(state: State, variable: keras.Variable) -> tf.Tensor:
    """Return a predictor's value: the first channels of the global one; of personal values the clients' mean."""

    def value(path):
        personal = state.clients.get("personal", {}).get(path)
        return state.weights[path] if personal is None else tf.reduce_mean(personal, 0)

    return prediction_value(variable, value)


def select_networks(state: State, order: Sequence[int] | np.ndarray) -> State:
    """Return the state with these of its networks, in this order."""
    weights = {path: tf.gather(value, order) for path, value in state.weights.items()}
    return dataclasses.replace(state, weights=weights)


def sort_networks(state: State, networks: int, accuracy: Callable[[State], float]) -> State:
    """Return the state with its networks sorted by accuracy, the best first.

    Args:
        state: State of an ensemble whose networks are all merged.
        networks: Number of networks.
        accuracy: Accuracy of the first network of a state.

    Reference: authors' code of SplitMix, which reverses the ascending order.
    """
    accuracies = [accuracy(select_networks(state, [network])) for network in range(networks)]
    return select_networks(state, np.argsort(accuracies, kind="stable")[::-1])
