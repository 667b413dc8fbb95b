"""Local metrics of one model: on the examples of each client, under its labels."""

import functools
from collections.abc import Callable
from dataclasses import dataclass

import keras
import numpy as np
import tensorflow as tf

from hetero_tf.data.inputs import stored
from hetero_tf.evaluation.fairness import ClientTests, client_sums, client_values, fairness, spread
from hetero_tf.evaluation.global_metrics import Targets, mask_outputs, reads_probabilities, with_prefix
from hetero_tf.evaluation.predictor import EvaluationSetup


@dataclass(frozen=True, eq=False)
class ClientEvaluator:
    """The Local metrics on a split.

    Attributes:
        split: "test" or "validation", the examples on which clients are tested.
    """

    setup: EvaluationSetup
    split: str

    @property
    def tests(self) -> ClientTests:
        """The examples of each client."""
        return self.setup.tests_by_split[self.split]

    @functools.cached_property
    def targets(self) -> Targets:
        """The targets of the split."""
        labels = self.setup.splits[self.split][1]
        assert labels is not None
        return self.setup.measures.targets(labels)

    @functools.cached_property
    def _masks(self):
        """The outputs and the labels of each client, bool [clients, outputs] and [clients, classes], or None."""
        if not self.setup.measures.masks_labels:
            return None
        label_mask = self.tests.label_mask
        output_mask, stored_mask = self.setup.measures.task.present_outputs(label_mask), stored(label_mask)
        return (stored_mask if output_mask is label_mask else stored(output_mask)), stored_mask

    @property
    def result_names(self) -> tuple[str, ...]:
        """Names of the `results`."""
        return tuple(f"local_{name}" for name in self.setup.measures.result_names)

    def results(self, outputs: tf.Tensor, rows: tf.Tensor, clients: tf.Tensor) -> dict[str, tf.Tensor]:
        """Return `Measures.results` with the prefix "local_".

        Args:
            outputs: [n, ...].
            rows: int32 [n], examples of the split.
            clients: int32 [n], or [] of one client: those under whose labels the examples are tested.
        """
        masks = [] if self._masks is None else [tf.gather(mask, clients) for mask in self._masks]
        return with_prefix(self.setup.measures.results(outputs, self.targets.gather(rows), *masks), "local")

    def build_metrics(self, model: keras.Model) -> Callable:
        """Return `(weights, state) -> metrics` with the prefixes "global_" and "local_", for the graph.

        One pass over the split gives both: each batch is tested under all labels, and under those of the clients that
        have its examples. The arguments are those of `SplitBatches.build_outputs`.
        """
        measures, batches, tests = self.setup.measures, self.setup.batches(self.split), self.tests
        bounds = batches.starts
        # The pairs sorted by example, and the first one of each batch.
        order = np.argsort(tests.examples, kind="stable")
        pair_bounds = np.searchsorted(tests.examples[order], bounds).astype(np.int32)
        # Outputs of pairs are gathered from those of the examples.
        local_names = [name for name in self.result_names if name != "local_outputs"]
        starts = dict.fromkeys(measures.result_names, bounds) | dict.fromkeys(local_names, pair_bounds)
        pair_rows, pair_clients = tests.examples[order], tests.clients[tests.owners][order]
        positions = np.argsort(order).astype(np.int32)

        def reduce(outputs, rows, batch):
            pairs = slice(*tf.unstack(stored(pair_bounds)[batch : batch + 2], 2))
            examples, clients = stored(pair_rows)[pairs], stored(pair_clients)[pairs]
            local = self.results(tf.gather(outputs, examples - rows[0]), examples, clients)
            results = measures.results(outputs, self.targets.gather(rows)) | local
            return {name: results[name] for name in starts}

        build = batches.build_results(model, starts, reduce)

        def metrics(weights, state):
            results = build(weights, state)
            local = {name: tf.gather(results[name], stored(positions)) for name in local_names}
            if "outputs" in results:
                local["local_outputs"] = tf.gather(results["outputs"], stored(tests.examples))
            return with_prefix(measures.summarize(results, self.targets), "global") | self.summarize(local)

        return metrics

    def summarize(self, results: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """Return the metrics of the `results` of all pairs, in the order of the tests, pooled and by client."""
        losses, measures = results["local_loss"], self.setup.measures
        metrics = {"local_loss": tf.reduce_mean(losses)}
        for name, plugin in measures.metrics.items():
            # `fairness` has the spread of the accuracy of labels.
            if name != "accuracy" or not measures.has_hits:
                metrics |= spread(name, self._client_values(plugin, results["local_outputs"]), plugin.BETTER)
        if not measures.has_hits:
            total, counts = client_sums(losses, self.tests)
            return metrics | spread("loss", total / counts, "lower")
        hits = results["local_hits"]
        return {**metrics, "local_accuracy": 100 * tf.reduce_mean(hits), **fairness(hits, self.tests)}

    def _client_values(self, plugin, outputs):
        """Return the value of a metric on the examples of each tested client; probabilities are those of all labels."""
        label_mask = None if self._masks is None or reads_probabilities(plugin) else self._masks[1]

        def metric(scores, targets, client):
            return plugin.metric(mask_outputs(scores, None if label_mask is None else label_mask[client]), targets)

        targets = tf.gather(self.targets.data, stored(self.tests.examples))
        return client_values(metric, self.setup.measures.scores(plugin, outputs), targets, self.tests)
