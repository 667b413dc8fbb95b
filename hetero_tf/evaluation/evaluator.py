"""Measures a state of a run: the statistics query, Global and Local metrics, and the models by which levels predict."""

import functools
from collections.abc import Callable
from dataclasses import dataclass

import keras
import numpy as np
import tensorflow as tf

from hetero_tf.base import registry, seeds
from hetero_tf.data.dataset import Dataset
from hetero_tf.evaluation import calibration
from hetero_tf.evaluation.client_metrics import Batches, build_client_logits
from hetero_tf.evaluation.fairness import ClientTests, client_tests
from hetero_tf.evaluation.global_metrics import build_image_logits, build_text_metrics, global_metrics, local_metrics
from hetero_tf.models.family import ModelFamily, predicted
from hetero_tf.models.variables import carried, is_seed, values
from hetero_tf.partitions.partition import Partition
from hetero_tf.planning import levels
from hetero_tf.recipe.schema import Recipe
from hetero_tf.rounds.entry_mask import build_entry_mask, masked_values
from hetero_tf.rounds.parts import Examples
from hetero_tf.rounds.state import State


@dataclass(frozen=True)
class Evaluator:
    """Looks at a `State` without changing it; what it compiles is compiled once, when it is first asked for.

    Attributes:
        recipe: How and how often to measure.
        dataset: The examples.
        partition: Which client has which of them.
        family: The models of all levels.
        examples: The training split as the round has it.
        parallel: Batches or clients in flight at once.
    """

    recipe: Recipe
    dataset: Dataset
    partition: Partition
    family: ModelFamily
    examples: Examples
    parallel: int

    @functools.cached_property
    def global_model(self) -> keras.Model:
        """The Keras model by which the global level predicts, with the initial values where it is one network."""
        return self.family.predictor(self.recipe.levels.global_level)

    def evaluate(self, state: State) -> tuple[dict[str, float], dict[str, tf.Tensor]]:
        """Measures the global model; where units stay with the clients, Local measures every client's own model.

        Returns:
            Metrics by name, and the statistics of static batch normalisation by variable path (empty without it).
        """
        statistics = self.statistics(state)
        metrics = self.measure_global(*self.global_values(state, statistics))
        if state.clients.get("personal") and self.dataset.test.y is not None and self.tests.clients.size:
            metrics |= self.measure_clients(*self.client_values(state))
        return {name: float(value) for name, value in metrics.items()}, statistics

    def statistics(self, state: State, level: str | None = None) -> dict[str, tf.Tensor]:
        """The statistics query of static batch normalisation: `{path: value}`.

        A narrower level's activations have other moments than the first channels of the global model's, so its
        statistics are queried with its own sub-model.
        """
        top = self.recipe.levels.global_level
        level = top if level is None else level
        model = self.global_model if level == top else self.family.predictor(level)
        paths = calibration.statistics_paths(model)
        if not paths:
            return {}
        settings, seed = self.recipe.evaluate, self.recipe.seed
        pooled = settings.statistics == "pooled"
        rows = [np.arange(len(self.dataset.train.x), dtype=np.int32)] if pooled else self.partition.train
        rng = seeds.rng(seed, "statistics", state.round)
        full, short = calibration.statistics_batches(rows, settings.statistics_batch, rng)
        calibrate = self._calibrate if level == top else self._build_calibrate(model, level)
        averages = calibrate(self._values(state, model, level), full, short, self._noise_seed(state))
        return dict(zip(paths, averages))

    def model(self, state: State, level: str | None = None, statistics: dict | None = None) -> keras.Model:
        """The trained Keras model at any level, with all classes and the first channels of the global weights.

        Args:
            state: The state of a run.
            level: Name of a level of the recipe; None for the global model.
            statistics: As `statistics` gives them for this level; None queries them.
        """
        level = self.recipe.levels.global_level if level is None else level
        statistics = self.statistics(state, level) if statistics is None else statistics
        model = self.family.predictor(level)
        for variable, value in zip(values(model), self._values(state, model, level), strict=True):
            variable.assign(value)
        for variable in model.non_trainable_variables:
            if variable.path in statistics:
                variable.assign(statistics[variable.path])
        return model

    def global_values(self, state: State, statistics: dict) -> tuple[list, list]:
        """The values of the global model's trainable and of its other variables, in its order."""
        model, others = self.global_model, []
        for variable in model.non_trainable_variables:
            if is_seed(variable):
                others.append(tf.convert_to_tensor(variable))
            else:
                queried = statistics.get(variable.path)
                others.append(_value(state, variable) if queried is None else queried)
        return self._trainable(state, model, self.recipe.levels.global_level), others

    def client_values(self, state: State) -> tuple[dict, dict, tf.Tensor]:
        """What `client_logits` takes of a state: global values, what stays with the clients, and a seed."""
        personal = {path: tf.convert_to_tensor(table) for path, table in state.clients["personal"].items()}
        weights = {path: tf.convert_to_tensor(value) for path, value in state.weights.items()}
        return weights, personal, tf.constant(self._noise_seed(state))

    def _trainable(self, state, model, level):
        """The trainable values by which a level predicts; 0 outside its mask, which the global level has not."""
        weights = [_value(state, variable) for variable in model.trainable_variables]
        if self.recipe.round.mask is None or level == self.recipe.levels.global_level:
            return weights
        mask = build_entry_mask(self.recipe, level, model.trainable_variables)
        # A level predicts for no client.
        return masked_values(mask, weights, tf.constant([seeds.seed32(self.recipe.seed, "round"), state.round, -1]))

    def _values(self, state, model, level):
        """What a level predicts by, in the order of `variables.values`."""
        return [*self._trainable(state, model, level), *(_value(state, variable) for variable in carried(model))]

    def _noise_seed(self, state):
        return seeds.seed32(self.recipe.seed, "statistics noise", state.round)

    def _build_calibrate(self, model, level):
        train, batch_size = self.examples, self.recipe.evaluate.statistics_batch
        grouped = self.family.predictor(level)
        return calibration.build_calibrate(model, grouped, train.input, train.x, train.y, batch_size, self.parallel)

    @functools.cached_property
    def _calibrate(self):
        return self._build_calibrate(self.global_model, self.recipe.levels.global_level)

    @functools.cached_property
    def global_logits(self) -> Callable:
        """`(trainable, others) -> logits` of the test images, for the graph, see `build_image_logits`."""
        size = self.recipe.evaluate.batch_size
        return build_image_logits(self.global_model, self.examples.input, self.dataset.test.x, size, self.parallel)

    @functools.cached_property
    def client_logits(self) -> Callable:
        """`(weights, personal, seed) -> logits` of the clients' own models, see `build_client_logits`."""
        recipe, train, test = self.recipe, self.examples, self.dataset.test
        batches = Batches(
            train.input,
            (train.x, train.y),
            (tf.constant(test.x), tf.constant(test.y)),
            recipe.evaluate.batch_size,
            recipe.evaluate.statistics_batch,
        )
        # A client that draws its level anew each round is tested at that of the global model.
        assigned = self._levels
        names = (recipe.levels.global_level,) if assigned is None else recipe.levels.names
        positions = np.zeros(len(self.partition.train), int) if assigned is None else assigned
        models = [self.family.predictor(name) for name in names]
        return build_client_logits(models, positions, batches, self.partition.train, self.tests, self.parallel)

    @functools.cached_property
    def tests(self) -> ClientTests:
        """The clients' test examples, with the clients' levels where they have them for the whole run."""
        return client_tests(self.partition, self._levels, self.recipe.levels.names)

    @functools.cached_property
    def measure_global(self) -> Callable:
        """`(trainable, others) -> metrics` of the global model, compiled."""
        recipe, test = self.recipe, self.dataset.test
        if test.y is None:
            size, classes = recipe.evaluate.batch_size, self.dataset.classes
            model, source = self.global_model, self.examples.input
            of_text = build_text_metrics(model, source, test.x, classes, size, recipe.seed, self.parallel)
            return tf.function(of_text, autograph=False)

        # Models and data must be built outside of the graph.
        logits_of, targets = self.global_logits, tf.constant(test.y)

        @tf.function(autograph=False)
        def metrics(trainable, others):
            logits = logits_of(trainable, others)
            found = global_metrics(logits, targets)
            # Of no examples there is neither loss nor accuracy.
            return found | self._local(tf.gather(logits, self.tests.examples)) if self.tests.clients.size else found

        return metrics

    @functools.cached_property
    def measure_clients(self) -> Callable:
        """`(weights, personal, seed) -> metrics` of the clients' own models, compiled."""

        logits_of = self.client_logits

        @tf.function(autograph=False)
        def metrics(weights, personal, seed):
            return self._local(logits_of(weights, personal, seed))

        return metrics

    def _local(self, logits):
        """Local metrics of logits [pairs, classes] of the clients' test examples."""
        masks = registry.find("losses", self.recipe.client.loss.name).MASKS_LABELS
        targets = tf.gather(tf.constant(self.dataset.test.y), self.tests.examples)
        return local_metrics(logits, targets, self.tests, masks)

    @property
    def _levels(self):
        """int [clients], positions in the mix of the clients' levels; None where they draw them anew each round."""
        mix, clients = self.recipe.levels, len(self.partition.train)
        if mix.assignment == "dynamic":
            return None
        return levels.assign(mix, clients, self.recipe.seed, 0, np.arange(clients))


def _value(state, variable):
    """A predictor's value: the first channels of the global one; the clients' mean of what they keep."""

    def value(path):
        personal = state.clients.get("personal", {}).get(path)
        return state.weights[path] if personal is None else tf.reduce_mean(personal, 0)

    return predicted(variable, value)
