"""Evaluation of a run's state: Global, Local and personal metrics, and those of the levels' prediction models."""

import functools
from collections.abc import Callable, Iterable

import keras
import numpy as np
import tensorflow as tf

from hetero_tf.base.errors import InputError
from hetero_tf.base.metrics import find_metric
from hetero_tf.data.targets import LABEL, LABEL_MAP
from hetero_tf.evaluation.class_results import ClassResults
from hetero_tf.evaluation.client_metrics import ClientEvaluator, has_client_models
from hetero_tf.evaluation.fairness import ClientResults, ClientTests, accuracies
from hetero_tf.evaluation.global_metrics import with_prefix
from hetero_tf.evaluation.predictor import EvaluationSetup, LevelPredictor
from hetero_tf.models.state import State
from hetero_tf.models.variables import queried, values


class Evaluator(EvaluationSetup):
    """Evaluation of a `State`, which it does not change; its functions are compiled once, on first use."""

    @functools.cached_property
    def predictor(self) -> Callable[[str], LevelPredictor]:
        """Function from a level to its `LevelPredictor`, which is built once."""
        return functools.cache(functools.partial(LevelPredictor, self))

    @property
    def global_predictor(self) -> LevelPredictor:
        """The predictor of the global level."""
        return self.predictor(self.recipe.levels.global_level)

    @property
    def global_model(self) -> keras.Model:
        """The Keras prediction model of the global level, with the initial values if it is one network."""
        return self.global_predictor.model

    def queried(self, level: str | None = None) -> list[keras.Variable]:
        """Return the variables of a level's model that `statistics` measures, in its order."""
        level = level or self.recipe.levels.global_level
        is_global = level == self.recipe.levels.global_level
        return queried(self.global_model if is_global else self.family.predictor(level))

    @functools.cached_property
    def clients(self) -> dict[str, ClientEvaluator]:
        """The evaluation of the clients on their test and on their validation examples."""
        test = ClientEvaluator(self, "local_test" if "local_test" in self.splits else "test")
        return {"test": test, "validation": ClientEvaluator(self, "validation")}

    @property
    def tests(self) -> ClientTests:
        """The clients' test examples, with the clients' levels if these are fixed."""
        return self.tests_by_split["test"]

    def evaluate(self, state: State, levels: str | None = None) -> tuple[dict[str, float], dict[str, dict]]:
        """Measure the global model; with personal units, Local metrics measure every client's personal model.

        Args:
            levels: "all" also measures the models of all levels, "global" does not; by default as the recipe.

        Returns:
            Metrics by name, with personal units also Local metrics of the validation examples; and `{level: {variable
            path: value}}`, the statistics of static batch normalisation of each level that was measured (no paths
            without it).
        """
        levels = self.recipe.evaluate.levels if levels is None else levels
        if levels not in ("global", "all"):
            raise InputError(f'`levels` must be "global" or "all". Received: levels={levels!r}')
        statistics = self.statistics(state)
        metrics = self.measure_global(*self.global_values(state, statistics))
        if has_client_models(state):
            metrics |= self._measure_personal(state)
        if "validation" in self.splits:
            metrics |= with_prefix(self.global_predictor.measure("validation", state, statistics), "validation")
        by_level = {self.recipe.levels.global_level: statistics}
        if levels == "all":
            by_level |= self._measure_levels(state, metrics, statistics)
        return {name: float(value) for name, value in metrics.items()}, by_level

    def global_values(self, state: State, statistics: dict) -> tuple[list, list]:
        """Return the values of the global model's trainable and of its other variables, in its order."""
        return self.global_predictor.trainable(state), self.global_predictor.others(state, statistics)

    @functools.cached_property
    def measure_global(self) -> Callable:
        """Function from `global_values` to the Global metrics, and the Local ones if clients have test examples."""
        if self.splits["test"][1] is None or not self.tests.clients.size:
            measure = self.global_predictor.compiled("test")
            return lambda trainable, others: with_prefix(measure(trainable, others), "global")
        # Models and data must be built outside the graph.
        clients = self.clients["test"]
        measure = self.replicas.compiled(clients.build_metrics(self.global_model))
        if clients.split == "test":
            return measure
        # The test set has no noise, the test examples of clients have.
        of_test = self.global_predictor.compiled("test")
        return lambda *values: measure(*values) | with_prefix(of_test(*values), "global")

    def _measure_personal(self, state):
        """Return the Local metrics of the clients' personal models; those of validation examples select a round."""
        metrics: dict[str, tf.Tensor] = {}
        if self.dataset.test.y is not None and self.tests.clients.size:
            metrics |= self.measure_personal("test", state)
        if self.dataset.train.y is not None and "validation" in self.splits:
            validation = with_prefix(self.measure_personal("validation", state), "validation")
            metrics |= {name: value for name, value in validation.items() if find_metric(name)}
        return metrics

    def measure_personal(self, split: str, state: State) -> dict[str, tf.Tensor]:
        """Return the Local metrics of the clients' personal models on a split."""
        clients = self.clients[split]
        return clients.measure_personal(*clients.personal_values(state))

    def _measure_levels(self, state, metrics, statistics):
        """Add the metrics of every level of the mix, and return their statistics.

        Levels with the same model share a measurement.
        """
        names, key_of = self.recipe.levels.names, self.family.prediction_key
        of_global = {key.removeprefix("global_"): value for key, value in metrics.items() if key.startswith("global_")}
        measured, by_level = {key_of(self.recipe.levels.global_level): (of_global, statistics)}, {}
        for level in names:
            if key_of(level) not in measured:
                predictor = self.predictor(level)
                statistics = predictor.statistics(state)
                measured[key_of(level)] = predictor.measure("test", state, statistics), statistics
            level_metrics, by_level[level] = measured[key_of(level)]
            metrics |= with_prefix(level_metrics, "level", level)
        return by_level

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
        """
        level = level or self.recipe.levels.global_level
        return self.predictor(level).statistics(state, rows, rng)

    def model(self, state: State, level: str | None = None, statistics: dict | None = None) -> keras.Model:
        """Return the trained Keras model of any level, with all classes and the first channels of the global weights.

        Args:
            statistics: The result of `statistics` for this level; None queries them.
        """
        level = level or self.recipe.levels.global_level
        predictor = self.predictor(level)
        statistics = predictor.statistics(state) if statistics is None else statistics
        model = self.family.predictor(level)
        for variable, value in zip(values(model), predictor.values(state), strict=True):
            variable.assign(value)
        for variable in model.non_trainable_variables:
            if variable.path in statistics:
                variable.assign(statistics[variable.path])
        return model

    def client_results(self, state: State, level: str | None = None) -> ClientResults:
        """Return the accuracy of each client on its test examples, the terms of the Local metrics that are means.

        Args:
            level: Level of the model that predicts. Default: the global one, or each client's own model.

        Raises:
            InputError: The examples have no labels, or no client has test examples.
        """
        tests, clients = self.tests, self.clients["test"]
        if not self.measures.has_hits or not tests.clients.size:
            raise InputError(
                "results of clients need labelled test examples of the clients. "
                f"Received: {self.dataset.source}, {tests.clients.size} clients with test examples"
            )
        if level is None and has_client_models(state):
            results = clients.personal_results(*clients.personal_values(state)[:3])
        else:
            outputs = tf.gather(self._outputs_of(self.model(state, level), clients.split), tests.examples)
            results = clients.results(outputs, tests.examples, tests.clients[tests.owners])
        levels = np.empty(len(tests.clients), object)
        for name, positions in tests.levels.items():
            levels[positions] = name
        names = tuple(levels) if tests.levels else ()
        return ClientResults(tests.clients, names, tests.counts, accuracies(results["local_hits"], tests).numpy())

    def class_results(self, state: State, level: str | None = None) -> ClassResults:
        """Return the confusion of the classes of a level's model on the test set, by default of the global one.

        Raises:
            InputError: The task has no classes.
        """
        if self.dataset.targets not in (LABEL, LABEL_MAP):
            raise InputError(
                "results of classes need the task classification or segmentation of other data than text. "
                f"Received: {self.dataset.source}, task {self.recipe.task.name}"
            )
        outputs = self._outputs_of(self.model(state, level))
        predicted = tf.argmax(self.measures.task.prediction_scores(outputs), -1).numpy()
        names = self.dataset.class_names or tuple(map(str, range(self.dataset.classes)))
        return ClassResults.of(self.dataset.test.labels, predicted, names)

    def _outputs_of(self, model, split="test"):
        """Return the outputs [examples, classes] of a model with its values for the examples of a split."""
        values = [
            list(map(tf.convert_to_tensor, variables))
            for variables in (model.trainable_variables, model.non_trainable_variables)
        ]
        return self.replicas.compiled(self.batches(split).build_outputs(model))(*values)
