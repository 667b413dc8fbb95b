"""Evaluation of the clients: their test examples, and their personal models."""

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import tensorflow as tf

from hetero_tf.base.metrics import find_metric
from hetero_tf.base.replicas import Replicas
from hetero_tf.data.inputs.examples import Examples
from hetero_tf.evaluation.client_metrics import LocalMeasures, SplitBatches, build_client_results
from hetero_tf.evaluation.evaluation_examples import EvaluationExamples
from hetero_tf.evaluation.global_metrics import Measures, with_prefix
from hetero_tf.evaluation.predictor import noise_seed
from hetero_tf.models.family import ModelFamily
from hetero_tf.models.state import State


@dataclass(frozen=True)
class ClientEvaluator:
    """Local metrics of the clients, and those of their personal models; functions are compiled once, on first use.

    Attributes:
        splits: The examples on which clients are tested.
        family: The models of all levels.
        examples: The training split of the round.
        measures: The metrics of the task.
        replicas: The replicas that share the work, and the number of clients that each has in flight.
    """

    splits: EvaluationExamples
    family: ModelFamily
    examples: Examples
    measures: Measures
    replicas: Replicas

    @functools.cached_property
    def local_measures(self) -> LocalMeasures:
        """The Local metrics on the test split."""
        return self._local_measures("test")

    @functools.cached_property
    def _validation_measures(self):
        return self._local_measures("validation")

    def _local_measures(self, split):
        labels = self.splits.dataset.test.labels if split == "test" else self.splits.splits[split][1]
        assert labels is not None
        return LocalMeasures(self.measures, self.splits.tests[split], self.measures.targets(labels))

    def values(self, state: State) -> tuple[dict, dict, tf.Tensor]:
        """Return the global values of a state, the clients' personal values, and the seed of the statistics query."""
        personal = {path: tf.convert_to_tensor(table) for path, table in state.clients["personal"].items()}
        weights = {path: tf.convert_to_tensor(value) for path, value in state.weights.items()}
        return weights, personal, tf.constant(noise_seed(self.family.recipe.seed, state.round))

    def evaluate(self, state: State) -> dict[str, tf.Tensor]:
        """Return the Local metrics of the clients' personal models; those of validation examples select a round."""
        values, dataset = self.values(state), self.splits.dataset
        metrics: dict[str, tf.Tensor] = {}
        if dataset.test.y is not None and self.splits.tests["test"].clients.size:
            metrics |= self.measure(*values)
        if dataset.train.y is not None and "validation" in self.splits.splits:
            validation = with_prefix(self._measure_validation(*values), "validation")
            metrics |= {name: value for name, value in validation.items() if find_metric(name)}
        return metrics

    @functools.cached_property
    def measure(self) -> Callable:
        """Compiled function from the result of `values` to Local metrics of the personal models on test examples."""
        return self._compiled_measure(self.local_measures, "test")

    @functools.cached_property
    def _measure_validation(self):
        return self._compiled_measure(self._validation_measures, "validation")

    def _compiled_measure(self, local, split):
        results_of = self.build_results(local.result_names, local.results, split)
        return self.replicas.compiled(lambda *values: local.summarize(results_of(*values)))

    @functools.cached_property
    def results(self) -> Callable:
        """Compiled function from the result of `values` to the results of the personal models on each test example."""
        return self.replicas.compiled(self.build_results(self.local_measures.result_names, self.local_measures.results))

    def build_results(self, names: Sequence[str], reduce: Callable, split: str = "test") -> Callable:
        """Return `(weights, personal, seed) -> {name: rows}` of the clients' personal models, for the graph.

        Args:
            names, reduce: See `client_metrics.build_client_results`.
            split: "test" or "validation", the examples that clients are tested on.
        """
        recipe, train = self.family.recipe, self.examples
        local = self.local_measures if split == "test" else self._validation_measures
        batches = SplitBatches(
            train.input,
            (train.x, train.y),
            (self.splits.splits[split][0], local.targets.data),
            recipe.evaluate.batch_size,
            recipe.evaluate.statistics_batch,
        )
        # With dynamic assignment clients are tested at the global level.
        assigned, clients = self.splits.levels, self.splits.partition.train
        level_names = (recipe.levels.global_level,) if assigned is None else recipe.levels.names
        levels = np.zeros(len(clients), int) if assigned is None else assigned
        models = [self.family.predictor(name) for name in level_names]
        return build_client_results(models, levels, batches, clients, local.tests, self.replicas, names, reduce)
