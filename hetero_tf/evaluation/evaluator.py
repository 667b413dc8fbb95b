"""Evaluation of a run's state: the statistics query, Global and Local metrics, and the levels' prediction models."""

import functools
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import keras
import numpy as np
import tensorflow as tf

from hetero_tf.base.errors import InputError
from hetero_tf.base.replicas import Replicas
from hetero_tf.data.dataset import Dataset
from hetero_tf.data.inputs.examples import Examples
from hetero_tf.data.partitions.partition import Partition
from hetero_tf.data.targets import LABEL, LABEL_MAP
from hetero_tf.evaluation import calibration
from hetero_tf.evaluation.class_results import ClassResults
from hetero_tf.evaluation.client_evaluator import ClientEvaluator
from hetero_tf.evaluation.evaluation_examples import EvaluationExamples
from hetero_tf.evaluation.fairness import ClientResults, ClientTests, accuracies
from hetero_tf.evaluation.global_metrics import Measures, build_outputs, with_prefix
from hetero_tf.evaluation.predictor import Predictor, sort_networks
from hetero_tf.models.family import ModelFamily
from hetero_tf.models.state import State
from hetero_tf.models.variables import values


@dataclass(frozen=True)
class Evaluator:
    """Evaluation of a `State`, which it does not change; its functions are compiled once, on first use.

    Attributes:
        dataset: The examples.
        partition: The examples of each client.
        family: The models of all levels.
        examples: The training split of the round.
        measures: The metrics of the task.
        replicas: The replicas that share the work, and the number of batches or clients that each has in flight.
    """

    dataset: Dataset
    partition: Partition
    family: ModelFamily
    examples: Examples
    measures: Measures
    replicas: Replicas

    @functools.cached_property
    def data(self) -> EvaluationExamples:
        """The examples on which models are evaluated."""
        return EvaluationExamples(self.dataset, self.partition, self.family.recipe)

    @functools.cached_property
    def clients(self) -> ClientEvaluator:
        """The evaluation of the clients."""
        return ClientEvaluator(self.data, self.family, self.examples, self.measures, self.replicas)

    @property
    def tests(self) -> ClientTests:
        """The clients' test examples, with the clients' levels if these are fixed."""
        return self.data.tests["test"]

    @property
    def global_model(self) -> keras.Model:
        """The Keras prediction model of the global level, with the initial values if it is one network."""
        return self._global.model

    def evaluate(self, state: State, levels: str | None = None) -> tuple[dict[str, float], dict[str, dict]]:
        """Measure the global model; with personal units, Local metrics measure every client's personal model.

        Args:
            state: The state of a run.
            levels: "all" also measures the models of all levels, "global" does not; by default as the recipe.

        Returns:
            Metrics by name, with personal units also Local metrics of the validation examples; and `{level: {variable
            path: value}}`, the statistics of static batch normalisation of each level that was measured (no paths
            without it).
        """
        statistics = self.statistics(state)
        metrics = self.measure_global(*self.global_values(state, statistics))
        if state.clients.get("personal"):
            metrics |= self.clients.evaluate(state)
        if "validation" in self.data.splits:
            metrics |= with_prefix(self._global.measure("validation", state, statistics), "validation")
        if (self.family.recipe.evaluate.levels if levels is None else levels) == "all":
            global_metrics = {
                name.removeprefix("global_"): metrics[name] for name in metrics if name.startswith("global_")
            }
            level_metrics, statistics = self._of_levels(state, global_metrics, statistics)
            metrics |= level_metrics
        else:
            statistics = {self._global.level: statistics}
        return {name: float(value) for name, value in metrics.items()}, statistics

    def statistics(
        self,
        state: State,
        level: str | None = None,
        rows: Iterable[np.ndarray] | None = None,
        rng: np.random.Generator | None = None,
    ) -> dict[str, tf.Tensor]:
        """Run the statistics query of static batch normalisation: `{path: value}`.

        A narrower level's activations have other moments than the first channels of the global model's, so its
        statistics are queried with its sub-model. Held-out examples are excluded.

        Args:
            state: The state of a run.
            level: Name of a level, by default the global one.
            rows, rng: As for `Predictor.statistics`; without rows, those of the recipe.
        """
        predictor = self._predictor(level)
        rows = self.data.statistics_rows if rows is None else rows
        return predictor.statistics(self._predicting(state, predictor.level), rows, rng)

    def statistics_paths(self, level: str) -> list[str]:
        """Return the paths of the statistics of static batch normalisation of a level's model."""
        return calibration.statistics_paths(self.family.predictor(level))

    def client_results(self, state: State, level: str | None = None) -> ClientResults:
        """Return the accuracy of each client on its test examples, the terms of the Local metrics that are means.

        Args:
            state: The state of a run.
            level: Level of the model that predicts. Default: the global one, or with personal units each client's.

        Raises:
            InputError: The examples have no labels, or no client has test examples.
        """
        tests = self.tests
        if not self.measures.has_hits or not tests.clients.size:
            raise InputError(
                "results of clients need labelled test examples of the clients. "
                f"Received: {self.dataset.source}, {tests.clients.size} clients with test examples"
            )
        if level is None and state.clients.get("personal"):
            hits = self.clients.results(*self.clients.values(state))["local_hits"]
        else:
            outputs = tf.gather(self._logits_of(self.model(state, level)), tests.examples)
            hits = self.clients.local_measures.results(outputs, tests.examples, tests.clients[tests.owners])[
                "local_hits"
            ]
        names = {
            int(tests.clients[position]): name for name, positions in tests.levels.items() for position in positions
        }
        levels = tuple(names[client] for client in tests.clients.tolist()) if names else ()
        return ClientResults(tests.clients, levels, tests.counts, accuracies(hits, tests).numpy())

    def class_results(self, state: State, level: str | None = None) -> ClassResults:
        """Return the confusion of the classes of a level's model on the test set, by default of the global one.

        Raises:
            InputError: The task has no classes.
        """
        if self.dataset.targets not in (LABEL, LABEL_MAP):
            raise InputError(
                "results of classes need the task classification or segmentation of other data than text. "
                f"Received: {self.dataset.source}, task {self.family.recipe.task.name}"
            )
        outputs = self._logits_of(self.model(state, level))
        predicted = tf.argmax(self.measures.task.prediction_scores(outputs), -1).numpy()
        names = self.dataset.class_names or tuple(map(str, range(self.dataset.classes)))
        return ClassResults.of(self.dataset.test.labels, predicted, names)

    def _logits_of(self, model):
        """Return the outputs [examples, classes] of a model with its values for the test examples."""
        values = [
            list(map(tf.convert_to_tensor, variables))
            for variables in (model.trainable_variables, model.non_trainable_variables)
        ]
        return self.replicas.compiled(self.build_outputs(model))(*values)

    def model(self, state: State, level: str | None = None, statistics: dict | None = None) -> keras.Model:
        """Return the trained Keras model of any level, with all classes and the first channels of the global weights.

        Args:
            state: The state of a run.
            level: Name of a level of the recipe; None for the global model.
            statistics: The result of `statistics` for this level; None queries them.
        """
        predictor = self._predictor(level)
        state = self._predicting(state, predictor.level)
        statistics = predictor.statistics(state, self.data.statistics_rows) if statistics is None else statistics
        model = self.family.predictor(predictor.level)
        for variable, value in zip(values(model), predictor.values(state), strict=True):
            variable.assign(value)
        for variable in model.non_trainable_variables:
            if variable.path in statistics:
                variable.assign(statistics[variable.path])
        return model

    def global_values(self, state: State, statistics: dict) -> tuple[list, list]:
        """Return the values of the global model's trainable and of its other variables, in its order."""
        return self._global.trainable(state), self._global.others(state, statistics)

    def _predicting(self, state, level):
        """Return the state whose first networks predict at a level: sorted by accuracy if the recipe requires it."""
        levels = self.family.recipe.levels
        networks = levels.ensemble
        if networks is None or self.family.recipe.evaluate.members == "first" or levels.members_of(level) == networks:
            return state

        def accuracy(ensemble_state):
            predictor = self._one_member
            return float(
                predictor.measure(
                    "validation", ensemble_state, predictor.statistics(ensemble_state, self.data.statistics_rows)
                )["accuracy"]
            )

        return sort_networks(state, networks, accuracy)

    def _measured(self, predictor, state):
        """Return the metrics of the first networks of a state on the test set, and their normalisation statistics."""
        statistics = predictor.statistics(state, self.data.statistics_rows)
        measured = predictor.measure("test", state, statistics)
        return {name: float(value) for name, value in measured.items()}, statistics

    def _of_levels(self, state, global_metrics, statistics):
        """Return metrics and statistics of every level of the mix; levels with the same model share a measurement."""
        names, key_of = self.family.recipe.levels.names, self.family.prediction_key
        by_level = {self._global.level: statistics}
        metrics: dict[str, float] = {}
        measured = {key_of(self._global.level): (global_metrics, statistics)}
        # Sort an ensemble once for all levels, if the level with the fewest networks needs it.
        state = self._predicting(state, min(names, key=lambda name: self.family.recipe.levels.networks_of(name)))
        for level in names:
            if key_of(level) not in measured:
                measured[key_of(level)] = self._measured(self._predictor(level), state)
            level_metrics, by_level[level] = measured[key_of(level)]
            metrics |= with_prefix(level_metrics, "level", level)
        return metrics, by_level

    @functools.cached_property
    def _predictors(self):
        return {}

    def _predictor(self, level=None):
        """Return the `Predictor` of a level, by default the global one; it is built once."""
        level = self.family.recipe.levels.global_level if level is None else level
        if level not in self._predictors:
            self._predictors[level] = self._build_predictor(level)
        return self._predictors[level]

    def _build_predictor(self, level, members=None):
        return Predictor(self.family, self.examples, self.measures, self.data.splits, self.replicas, level, members)

    @property
    def _global(self):
        return self._predictor()

    @functools.cached_property
    def _one_member(self):
        """The `Predictor` of the first network of an ensemble."""
        return self._build_predictor(self.family.recipe.levels.global_level, members=1)

    def build_outputs(self, model: keras.Model) -> Callable:
        """Return `(trainable, others) -> outputs` of the test examples, for the graph."""
        x, size = self.data.splits["test"][0], self.family.recipe.evaluate.batch_size
        return build_outputs(model, self.examples.input, x, size, self.replicas)

    def measure_global(self, trainable: list, others: list) -> dict[str, tf.Tensor]:
        """Return the Global metrics of `global_values`, and the Local ones if clients have test examples."""
        return self._measure_global(trainable, others)

    @functools.cached_property
    def _measure_global(self):
        x, y = self.data.splits["test"]
        if y is None or not self.tests.clients.size:
            measure = self._global.compiled("test")
            return lambda trainable, others: with_prefix(measure(trainable, others), "global")
        source, size = self.examples.input, self.family.recipe.evaluate.batch_size
        # Models and data must be built outside the graph.
        build = self.clients.local_measures.build_metrics
        return self.replicas.compiled(build(self.global_model, source, x, size, self.replicas))
