"""Metrics of the clients' test examples, each under the labels of its client."""

import functools
from collections.abc import Callable
from dataclasses import dataclass

import keras
import numpy as np
import tensorflow as tf

from hetero_tf.base.replicas import Replicas
from hetero_tf.data.inputs import Input, stored
from hetero_tf.evaluation.fairness import ClientTests, client_values, fairness, mean_losses, spread
from hetero_tf.evaluation.global_metrics import (
    Measures,
    Targets,
    batch_starts,
    build_results,
    mask_outputs,
    reads_probabilities,
    with_prefix,
)


@dataclass(frozen=True, eq=False)
class LocalMeasures:
    """The Local metrics of a recipe's task.

    Attributes:
        measures: The metrics of the task.
        tests: The clients' test examples.
        targets: Those of the test split.
    """

    measures: Measures
    tests: ClientTests
    targets: Targets

    @functools.cached_property
    def _masks(self):
        """The outputs and the labels of each client, bool [clients, outputs] and [clients, classes], or None."""
        if not self.measures.masks_labels:
            return None
        label_mask = self.tests.label_mask
        output_mask, stored_mask = self.measures.task.present_outputs(label_mask), stored(label_mask)
        return (stored_mask if output_mask is label_mask else stored(output_mask)), stored_mask

    @property
    def result_names(self) -> tuple[str, ...]:
        """Names of the `results`."""
        return tuple(f"local_{name}" for name in self.measures.result_names)

    def results(self, outputs: tf.Tensor, rows: tf.Tensor, clients: tf.Tensor) -> dict[str, tf.Tensor]:
        """Return `Measures.results` with the prefix "local_".

        Args:
            outputs: [n, ...].
            rows: int32 [n], examples of the test split.
            clients: int32 [n], or [] of one client: those under whose labels the examples are tested.
        """
        masks = [] if self._masks is None else [tf.gather(mask, clients) for mask in self._masks]
        return with_prefix(self.measures.results(outputs, self.targets.gather(rows), *masks), "local")

    def build_metrics(
        self, model: keras.Model, source: Input, x: np.ndarray | tf.Tensor, batch_size: int, replicas: Replicas
    ) -> Callable:
        """Return `(weights, state) -> metrics` with the prefixes "global_" and "local_", for the graph.

        One pass over the test split gives both: each batch is tested under all labels, and under those of the clients
        that have its examples. Arguments as for `build_outputs`.
        """
        bounds = batch_starts(x.shape[0], batch_size)
        order, pair_bounds = self.tests.sorted_pairs(bounds)
        # Outputs of pairs are gathered from those of the examples.
        local_names = [name for name in self.result_names if name != "local_outputs"]
        starts = dict.fromkeys(self.measures.result_names, bounds) | dict.fromkeys(local_names, pair_bounds)
        pair_rows, pair_clients = self.tests.examples[order], self.tests.clients[self.tests.owners][order]
        positions = np.argsort(order).astype(np.int32)

        def reduce(outputs, rows, batch):
            pairs = slice(*tf.unstack(stored(pair_bounds)[batch : batch + 2], 2))
            examples, clients = stored(pair_rows)[pairs], stored(pair_clients)[pairs]
            local = self.results(tf.gather(outputs, examples - rows[0]), examples, clients)
            results = self.measures.results(outputs, self.targets.gather(rows)) | local
            return {name: results[name] for name in starts}

        build = build_results(model, source, x, replicas, starts, reduce)

        def metrics(weights, state):
            results = build(weights, state)
            local = {name: tf.gather(results[name], stored(positions)) for name in local_names}
            if "outputs" in results:
                local["local_outputs"] = tf.gather(results["outputs"], stored(self.tests.examples))
            return with_prefix(self.measures.summarize(results, self.targets), "global") | self.summarize(local)

        return metrics

    def summarize(self, results: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """Return the metrics of the `results` of all pairs, in the order of the tests, pooled and by client."""
        losses, metrics = results["local_loss"], {"local_loss": tf.reduce_mean(results["local_loss"])}
        for name, plugin in self.measures.metrics.items():
            # `fairness` has the spread of the accuracy of labels.
            if name != "accuracy" or not self.measures.has_hits:
                metrics |= spread(name, self._client_values(plugin, results["local_outputs"]), plugin.BETTER)
        if not self.measures.has_hits:
            return metrics | spread("loss", mean_losses(losses, self.tests), "lower")
        hits = results["local_hits"]
        return {**metrics, "local_accuracy": 100 * tf.reduce_mean(hits), **fairness(hits, self.tests)}

    def _client_values(self, plugin, outputs):
        """Return the value of a metric on the examples of each tested client; probabilities are those of all labels."""
        label_mask = None if self._masks is None or reads_probabilities(plugin) else self._masks[1]

        def metric(scores, targets, client):
            return plugin.metric(mask_outputs(scores, None if label_mask is None else label_mask[client]), targets)

        targets = tf.gather(self.targets.data, stored(self.tests.examples))
        return client_values(metric, self.measures.scores(plugin, outputs), targets, self.tests)
