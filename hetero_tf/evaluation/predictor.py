"""The model by which a level predicts: its values in any state, its statistics, and how good it is on a split."""

import dataclasses
import functools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import keras
import numpy as np
import tensorflow as tf

from hetero_tf.base import seeds
from hetero_tf.base.replicas import Replicas
from hetero_tf.evaluation import calibration
from hetero_tf.evaluation.global_metrics import build_metrics
from hetero_tf.inputs.examples import Examples
from hetero_tf.models.entry_masks import build_entry_mask, masked_values
from hetero_tf.models.family import ModelFamily, predicted
from hetero_tf.models.state import State
from hetero_tf.models.variables import carried, is_seed
from hetero_tf.recipe.schema import Recipe


@dataclass(frozen=True, eq=False)
class Predictor:
    """One level's model; what it compiles is compiled once, when it is first asked for.

    Attributes:
        recipe: How to measure.
        family: The models of all levels.
        examples: The training split as the round has it.
        splits: `{name: (x, y)}` of what can be measured on; y is None for text.
        replicas: Who measures, and how many batches each has in flight at once.
        level: Name of the level.
        members: So many of its networks predict, the first ones; None: as many as the level has.
    """

    recipe: Recipe
    family: ModelFamily
    examples: Examples
    splits: dict
    replicas: Replicas
    level: str
    members: int | None = None

    @functools.cached_property
    def model(self) -> keras.Model:
        """The Keras model, which holds initial values: those of a state are handed to what is compiled."""
        return self._build()

    def trainable(self, state: State) -> list[tf.Tensor]:
        """The values of the trainable variables, in order; 0 outside the level's mask, which the global level lacks."""
        variables = self.model.trainable_variables
        weights = [value_of(state, variable) for variable in variables]
        whole = self.level == self.recipe.levels.global_level
        mask = None if whole else build_entry_mask(self.recipe, self.level, variables)
        if mask is None:
            return weights
        # A level predicts for no client.
        return masked_values(mask, weights, tf.constant([seeds.seed32(self.recipe.seed, "round"), state.round, -1]))

    def values(self, state: State) -> list[tf.Tensor]:
        """What the level predicts by, in the order of `variables.values`."""
        return [*self.trainable(state), *(value_of(state, variable) for variable in carried(self.model))]

    def others(self, state: State, statistics: dict) -> list[tf.Tensor]:
        """The values of the variables that are not trainable, in order; `statistics`: those of this level."""
        found = []
        for variable in self.model.non_trainable_variables:
            if is_seed(variable):
                found.append(tf.convert_to_tensor(variable))
            else:
                queried = statistics.get(variable.path)
                found.append(value_of(state, variable) if queried is None else queried)
        return found

    def statistics(
        self, state: State, rows: Iterable[np.ndarray], rng: np.random.Generator | None = None
    ) -> dict[str, tf.Tensor]:
        """The statistics query of static batch normalisation with this level's own activations: `{path: value}`.

        Args:
            state: The state of a run.
            rows: int32 arrays of training examples, as `calibration.statistics_batches` takes them.
            rng: Shuffles them; None: the generator of the recipe's seed and the round.
        """
        paths = calibration.statistics_paths(self.model)
        if not paths:
            return {}
        rng = statistics_rng(self.recipe, state.round) if rng is None else rng
        full, short = calibration.statistics_batches(rows, self.recipe.evaluate.statistics_batch, rng)
        averages = self.calibrate(self.values(state), full, short, noise_seed(self.recipe, state))
        return dict(zip(paths, averages))

    def measure(self, split: str, state: State, statistics: dict) -> dict[str, tf.Tensor]:
        """Loss, and accuracy or perplexity, on a split under all labels, see `global_metrics.build_metrics`."""
        return self.compiled(split)(self.trainable(state), self.others(state, statistics))

    def compiled(self, split: str) -> Callable:
        """`(trainable, others) -> metrics` on a split, which is compiled once."""
        if split not in self._compiled:
            (x, y), source, settings = self.splits[split], self.examples.input, self.recipe.evaluate
            self._compiled[split] = build_metrics(
                self.model, source, x, y, self.family.classes, settings.batch_size, self.recipe.seed, self.replicas
            )
        return self._compiled[split]

    @functools.cached_property
    def calibrate(self) -> Callable:
        """The compiled query, see `calibration.build_calibrate`."""
        train, size = self.examples, self.recipe.evaluate.statistics_batch
        return calibration.build_calibrate(
            self.model, self._build(), train.input, train.x, train.y, size, self.replicas
        )

    @functools.cached_property
    def _compiled(self):
        return {}

    def _build(self):
        return self.family.fast(self.family.predictor(self.level, self.members))


def statistics_rng(recipe: Recipe, round: int) -> np.random.Generator:
    """The generator that shuffles the examples of the statistics query, client after client."""
    return seeds.rng(recipe.seed, "statistics", round)


def noise_seed(recipe: Recipe, state: State) -> int:
    """The seed of the random numbers of the statistics query, such as masked words."""
    return seeds.seed32(recipe.seed, "statistics noise", state.round)


def value_of(state: State, variable: keras.Variable) -> tf.Tensor:
    """A predictor's value: the first channels of the global one; the clients' mean of what they keep."""

    def value(path):
        personal = state.clients.get("personal", {}).get(path)
        return state.weights[path] if personal is None else tf.reduce_mean(personal, 0)

    return predicted(variable, value)


def chosen(state: State, order: Sequence[int] | np.ndarray) -> State:
    """Returns the state with these of its networks, in this order."""
    weights = {path: tf.gather(value, order) for path, value in state.weights.items()}
    return dataclasses.replace(state, weights=weights)


def best_first(state: State, networks: int, accuracy: Callable[[State], float]) -> State:
    """Returns the state with its networks sorted by accuracy, the best first.

    Args:
        state: Of an ensemble whose networks are all merged.
        networks: How many there are.
        accuracy: Of the first network of a state.

    Reference: authors' code of SplitMix, which reverses the ascending order.
    """
    found = [accuracy(chosen(state, [network])) for network in range(networks)]
    return chosen(state, np.argsort(found, kind="stable")[::-1])
