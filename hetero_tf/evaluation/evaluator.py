"""What the values of a recipe's run predict, and how well: models, the statistics query, Global and Local."""

import functools
from dataclasses import dataclass

import numpy as np
import tensorflow as tf

from hetero_tf.base import registry, seeds
from hetero_tf.evaluation import calibration
from hetero_tf.evaluation.global_test import build_image_test, build_text_test, local_test
from hetero_tf.evaluation.personal_test import Settings, build_personal_test
from hetero_tf.inputs import Input
from hetero_tf.models.family import predicted
from hetero_tf.models.variables import is_seed, values
from hetero_tf.planning import levels
from hetero_tf.rounds import layout
from hetero_tf.rounds.parts import RoundParts


@dataclass(frozen=True)
class Measured:
    """Everything built once for a recipe, with the methods that look at a `process.State` without changing it.

    Attributes:
        recipe: `recipe.schema.Recipe`.
        dataset: `data.dataset.Dataset`.
        partition: `partitions.partition.Partition`.
        input: `inputs.Input`.
        family: `models.family.ModelFamily`.
        parts: `RoundParts`.
        parallel: Clients in flight at once.
    """

    recipe: object
    dataset: object
    partition: object
    input: Input
    family: object
    parts: RoundParts
    parallel: int

    @functools.cached_property
    def paths(self):
        """Paths of the global values, in order."""
        return tuple(layout.shapes(self.family, self.recipe.levels.global_level, self.dataset.classes))

    @functools.cached_property
    def global_model(self):
        """The Keras model by which the global level predicts, with the initial values where it is one network."""
        return self.build(self.recipe.levels.global_level)

    def evaluate(self, state):
        """Measures the global model; where units stay with the clients, Local measures every client's own model.

        Returns:
            Metrics by name, and the statistics of static batch normalisation by variable path (empty without it).
        """
        model, statistics = self.global_model, self.statistics(state)
        fixed = [
            statistics[v.path] if v.path in statistics else self._value(state, v)
            for v in model.non_trainable_variables
            if not is_seed(v)
        ]
        found = self._test(self._weights(state, model), fixed)
        if self.parts.placement.personal and self.dataset.test.y is not None:
            given, key = self.in_order(state), seeds.seed32(self.recipe.seed, "statistics noise", state.round)
            found |= self._test_personal(given["weights"], given["tables"]["personal"], tf.constant(key))
        metrics = {name: float(value) for name, value in found.items() if value.shape.rank == 0}
        return metrics, statistics

    def statistics(self, state, level=None):
        """The statistics query of static batch normalisation: `{path: value}`.

        A narrower level's activations have other moments than the first channels of the global model's, so its
        statistics are queried with its own sub-model.
        """
        top = self.recipe.levels.global_level
        level = top if level is None else level
        model = self.global_model if level == top else self.build(level)
        paths = calibration.statistics_paths(model)
        if not paths:
            return {}
        settings, seed = self.recipe.evaluate, self.recipe.seed
        pooled = settings.statistics == "pooled"
        examples = [np.arange(len(self.dataset.train.x), dtype=np.int32)] if pooled else self.partition.train
        full, short = calibration.statistics_batches(
            examples, settings.statistics_batch, seeds.rng(seed, "statistics", state.round)
        )
        key = seeds.seed32(seed, "statistics noise", state.round)
        calibrate = self._calibrate if level == top else self._build_calibrate(model, level)
        return dict(zip(paths, calibrate(self._weights(state, model), full, short, key)))

    def model(self, state, level=None, statistics=None):
        """The trained Keras model at any level, with all classes and the first channels of the global weights.

        Args:
            state: `State`.
            level: Name of a level of the recipe; None for the global model.
            statistics: As `statistics` gives them for this level; None queries them.
        """
        level = self.recipe.levels.global_level if level is None else level
        statistics = self.statistics(state, level) if statistics is None else statistics
        model = self.build(level)
        for variable in values(model):
            variable.assign(self._value(state, variable))
        for variable in model.non_trainable_variables:
            if variable.path in statistics:
                variable.assign(statistics[variable.path])
        return model

    def build(self, level):
        """A new Keras model at a level, for inference: all classes, Scalers inert."""
        return self.family.predictor(level)

    def _value(self, state, variable):
        """A predictor's value: the first channels of the global one; the clients' mean of what they keep."""

        def given(path):
            own = state.clients.get("personal", {}).get(path)
            return state.weights[path] if own is None else tf.reduce_mean(own, 0)

        return predicted(variable, given)

    def _weights(self, state, model):
        """The values of a predictor's trainable variables, in its order."""
        return [self._value(state, variable) for variable in model.trainable_variables]

    def _build_calibrate(self, model, level):
        return calibration.build_calibrate(
            model,
            self.build(level),
            self.input,
            self.parts.examples.x,
            self.parts.examples.y,
            self.recipe.evaluate.statistics_batch,
            self.parallel,
        )

    @functools.cached_property
    def _calibrate(self):
        return self._build_calibrate(self.global_model, self.recipe.levels.global_level)

    @functools.cached_property
    def _test(self):
        size, test = self.recipe.evaluate.batch_size, self.dataset.test
        if test.y is None:
            return build_text_test(
                self.global_model,
                self.input,
                tf.constant(test.x),
                self.dataset.classes,
                size,
                self.recipe.seed,
                self.parallel,
            )
        masks = registry.find("losses", self.recipe.client.loss.name).MASKS_LABELS
        return build_image_test(
            self.global_model,
            self.input,
            tf.constant(test.x),
            tf.constant(test.y),
            size,
            self._local_test(),
            masks,
            self.parallel,
        )

    @functools.cached_property
    def _test_personal(self):
        recipe, test, pairs = self.recipe, self.dataset.test, self._local_test()
        # Who draws a level anew each round is tested at that of the global model.
        chosen = self._fixed_levels
        names = (recipe.levels.global_level,) if chosen is None else recipe.levels.names
        chosen = np.zeros(len(self.partition.train), int) if chosen is None else chosen
        settings = Settings(
            recipe.evaluate.batch_size,
            recipe.evaluate.statistics_batch,
            registry.find("losses", recipe.client.loss.name).MASKS_LABELS,
            self.parallel,
        )
        return build_personal_test(
            [self.build(name) for name in names],
            chosen,
            self.parts.examples,
            self.paths,
            self.partition.train,
            (tf.constant(test.x), tf.constant(test.y)),
            pairs,
            settings,
        )

    def _local_test(self):
        """The `evaluation.LocalTest`, with the clients' levels where they have them for the whole run."""
        return local_test(self.partition, self._fixed_levels, self.recipe.levels.names)

    @property
    def _fixed_levels(self):
        """int [clients], positions in the mix of the clients' levels; None where they draw them anew each round."""
        given, clients = self.recipe.levels, len(self.partition.train)
        if given.assignment == "dynamic":
            return None
        return levels.assign(given, clients, self.recipe.seed, 0, np.arange(clients))
