"""Predictions of personalised models, with units that stay with the clients: each on its client's test examples."""

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import keras
import numpy as np
import tensorflow as tf

from hetero_tf.base.replicas import Replicas
from hetero_tf.data.inputs import Input, all_labels, stored
from hetero_tf.data.partitions.shares import ClientExamples
from hetero_tf.evaluation.calibration import statistics_paths
from hetero_tf.evaluation.fairness import ClientTests, client_values, fairness, mean_losses, spread
from hetero_tf.evaluation.global_metrics import (
    Measures,
    Targets,
    batch_starts,
    build_results,
    mask_outputs,
    reads_probabilities,
    result_specs,
    with_prefix,
)
from hetero_tf.models.family import prediction_value
from hetero_tf.models.variables import values


@dataclass(frozen=True)
class SplitBatches:
    """The stored images of both splits, and their reader.

    Attributes:
        source: Makes batches of examples.
        train: (x, y) of the training split.
        test: (x, y) of the test split.
        batch_size: Examples of a test batch.
        statistics_batch: Examples of a batch of the query for static batch normalisation.
    """

    source: Input
    train: tuple[tf.Tensor, tf.Tensor]
    test: tuple[tf.Tensor, tf.Tensor]
    batch_size: int
    statistics_batch: int


def build_client_results(
    models: Sequence[keras.Model],
    levels: np.ndarray,
    batches: SplitBatches,
    shares: ClientExamples,
    tests: ClientTests,
    replicas: Replicas,
    names: Sequence[str],
    reduce: Callable,
) -> Callable:
    """Return `(weights, personal, seed) -> {name: rows}` of all clients' personal models, for the graph.

    A personal model has the values that stay with the client, and the global ones elsewhere. Statistics of static batch
    normalisation pooled over all clients would not be those of its activations. So they are queried with the client's
    model on its training examples: averages over its batches in their stored order, each counting 1. A client without
    training examples keeps mean 0 and variance 1.

    Args:
        models: Keras predictors, one for each level that a client may be tested at.
        levels: int [clients], index in `models` of each client's level.
        batches: Examples of both splits.
        shares: The training examples of each client.
        tests: The test examples of each client.
        replicas: The replicas that share the work, and the number of clients that each has in flight.
        names: Names of the results.
        reduce: `(outputs of a client, its test examples int32 [n], its id) -> {name: rows}`, one row for each example.

    The arguments of the result: weights `{path: global value}`; personal `{path: [clients, ...]}`, the values of the
    clients; seed int32 [], for the noise of the query.
    """
    clients, ends = tests.clients, np.cumsum(tests.counts)
    bounds = (ends - tests.counts, ends, shares.starts[clients], shares.starts[clients + 1])
    # One row for each tested client: its id and level, and the ranges of its test and training examples.
    table = np.stack([clients, np.asarray(levels)[clients], *bounds], 1).astype(np.int32)
    starts = dict.fromkeys(names, stored(np.concatenate([[0], ends]).astype(np.int32)))
    predictors = [_Predictor(model, batches) for model in models]

    def results(weights, personal, seed):
        def predict(index):
            client, level, *bounds = tf.unstack(stored(table)[index])
            test, train = stored(tests.examples)[bounds[0] : bounds[1]], stored(shares.ids)[bounds[2] : bounds[3]]
            client_weights = weights | {path: values[client] for path, values in personal.items()}
            key = tf.stack([seed, client])
            branches = [functools.partial(each.predict, client_weights, train, key, test) for each in predictors]
            return reduce(tf.switch_case(level, branches), test, client)

        return replicas.gather_range(
            starts, predict, result_specs(names, models[0], next(iter(weights.values())).dtype)
        )

    return results


# A loop over the batches of one client.
_SEQUENTIAL = Replicas(parallel=1)


@dataclass(frozen=True)
class _Predictor:
    """The Keras model of a level, called with the values of any client."""

    model: keras.Model
    batches: SplitBatches

    def predict(self, weights, train_rows, key, test_rows):
        """Return logits [rows, ..., classes] on rows of the test split.

        Args:
            weights: `{path: value}` of the client's model in their global shapes.
            train_rows: Rows of the training split for the query of static batch normalisation.
            key: int32 [2], seed of the query.
            test_rows: Rows of the test split.
        """
        client_values = {v.path: prediction_value(v, weights.__getitem__) for v in values(self.model)}
        trainable = [client_values[variable.path] for variable in self.model.trainable_variables]
        state, size = self._state(client_values, trainable, train_rows, key), self.batches.batch_size

        def predict(batch):
            rows = test_rows[batch * size : (batch + 1) * size]
            no_key = tf.zeros([1], tf.int32)
            inputs, _ = self.batches.source.batch(*self.batches.test, rows, 0, no_key, all_labels(0), training=False)
            return self.model.stateless_call(trainable, state, inputs, training=False)[0]

        count, shape = -(-tf.shape(test_rows)[0] // size), [None, *self.model.outputs[0].shape[1:]]
        return _SEQUENTIAL.concat_range(count, predict, tf.TensorSpec(shape, trainable[0].dtype))

    def _state(self, client_values, trainable, rows, key):
        """Return the non-trainable values; static batch normalisation is queried on rows of the training split."""
        variables = self.model.non_trainable_variables
        start = [client_values[v.path] if v.path in client_values else tf.convert_to_tensor(v) for v in variables]
        paths = statistics_paths(self.model)
        positions = [position for position, variable in enumerate(variables) if variable.path in paths]
        if not positions:
            return start
        size = self.batches.statistics_batch

        def moments(batch):
            batch_rows = rows[batch * size : (batch + 1) * size]
            noise_key = tf.concat([key, [batch]], 0)
            inputs, _ = self.batches.source.batch(
                *self.batches.train, batch_rows, 0, noise_key, all_labels(0), training=True
            )
            _, after = self.model.stateless_call(trainable, start, inputs, training=True)
            return [after[position] for position in positions]

        count = -(-tf.shape(rows)[0] // size)
        total = _SEQUENTIAL.sum_range(count, moments, [tf.zeros_like(start[position]) for position in positions])
        for position, summed in zip(positions, total):
            mean = summed / tf.cast(tf.maximum(count, 1), summed.dtype)
            start[position] = tf.where(count > 0, mean, start[position])
        return start


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
