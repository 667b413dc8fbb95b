"""Local metrics on the examples of each client, under its labels: of one model, or of the clients' personal models."""

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import keras
import numpy as np
import tensorflow as tf

from hetero_tf.base.replicas import Replicas
from hetero_tf.data.inputs import all_labels, stored
from hetero_tf.evaluation.fairness import ClientTests, accuracies, client_sums, client_values, fairness, spread
from hetero_tf.evaluation.global_metrics import mask_outputs, reads_probabilities, result_specs, with_prefix
from hetero_tf.evaluation.predictor import EvaluationSetup
from hetero_tf.evaluation.statistics_query import batch_moments, noise_seed, queried_positions
from hetero_tf.models.state import State
from hetero_tf.models.variables import values

# A loop over the batches of one client.
_SEQUENTIAL = Replicas(parallel=1)


def has_client_models(state: State) -> bool:
    """Return whether clients have models of their own: personal values or twins."""
    return bool(state.clients.get("personal") or state.clients.get("twin"))


@dataclass(frozen=True, eq=False)
class ClientEvaluator:
    """The Local metrics on a split; compiled functions are built once, on first use.

    A personal model has the values that stay with the client, and the global ones elsewhere. Statistics of static batch
    normalisation pooled over all clients would not be those of its activations. So they are queried with the client's
    model on its training examples: averages over its batches in their stored order, each counting 1. A client without
    training examples keeps mean 0 and variance 1.

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
    def targets(self) -> tuple[tf.Tensor, tf.Tensor]:
        """The targets of the split, see `Measures.targets`."""
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
        return with_prefix(self.setup.measures.results(outputs, self.targets, rows, *masks), "local")

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
            results = measures.results(outputs, self.targets, rows) | local
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

        targets = tf.gather(self.targets[0], stored(self.tests.examples))
        return client_values(metric, self.setup.measures.scores(plugin, outputs), targets, self.tests)

    def personal_values(self, state: State) -> tuple[dict, dict, tf.Tensor, tf.Tensor | None]:
        """Return the global values, those of the clients' models, the seed of the statistics query, and new clients.

        The values of the clients' models that are not global ones are `{path: [clients, ...]}`. A twin counts with its
        share of the model, see `methods.personalizations`. A new client, which never trained, has the global model; its
        personal values are the mean over the clients, as in the test of the global model.
        """
        levels, mix, seed = self.setup.levels, self.setup.recipe.levels, self.setup.recipe.seed
        weights = {path: tf.convert_to_tensor(value) for path, value in state.weights.items()}
        tables = {path: tf.convert_to_tensor(table) for path, table in state.clients["personal"].items()}
        is_new, starts = None, weights

        def per_client(numbers, table):
            return tf.reshape(numbers, [-1, *[1] * (len(table.shape) - 1)])

        if state.clients.get("twin"):
            scalars = state.clients["twin_scalars"]
            is_new = tf.equal(scalars["rounds"], 0)
            for path, twin in state.clients["twin"].items():
                alpha = per_client(scalars["alpha"], twin)
                tables[path] = alpha * twin + (1 - alpha) * weights[path]
        elif levels is not None and mix.idle:
            is_new = tf.constant(np.isin(np.asarray(mix.names)[levels], mix.idle))
            starts = {path: tf.reduce_mean(table, 0) for path, table in tables.items()}
        if is_new is not None:
            tables = {path: tf.where(per_client(is_new, table), starts[path], table) for path, table in tables.items()}
        return weights, tables, tf.constant(noise_seed(seed, state.round)), is_new

    @functools.cached_property
    def measure_personal(self) -> Callable:
        """Compiled function from the result of `personal_values` to the metrics."""
        results_of = self.build_personal(self.result_names, self.results)

        def measure(weights, personal, seed, is_new):
            results = results_of(weights, personal, seed)
            metrics = self.summarize(results)
            if is_new is not None and "local_hits" in results:
                is_tested = tf.gather(is_new, stored(self.tests.clients))
                new = tf.boolean_mask(accuracies(results["local_hits"], self.tests), is_tested)
                metrics["local_new_mean"] = tf.reduce_mean(new)
            return metrics

        return self.setup.replicas.compiled(measure)

    @functools.cached_property
    def personal_results(self) -> Callable:
        """Compiled function from the first three results of `personal_values` to the results on each example."""
        return self.setup.replicas.compiled(self.build_personal(self.result_names, self.results))

    def build_personal(self, names: Sequence[str], reduce: Callable) -> Callable:
        """Return `(weights, personal, seed) -> {name: rows}` of all tests, for the graph.

        Args:
            reduce: `(outputs of a client, its examples int32 [n], its id) -> {name: rows}`, one row for each example.
        """
        setup, tests, shares = self.setup, self.tests, self.setup.partition.train
        # With dynamic assignment clients are tested at the global level.
        levels = np.zeros(len(shares), int) if setup.levels is None else setup.levels
        level_names = (setup.recipe.levels.global_level,) if setup.levels is None else setup.recipe.levels.names
        models = [setup.family.predictor(name) for name in level_names]
        clients, ends = tests.clients, np.cumsum(tests.counts)
        bounds = (ends - tests.counts, ends, shares.starts[clients], shares.starts[clients + 1])
        # One row for each tested client: its id and level, and the ranges of its test and training examples.
        table = np.stack([clients, np.asarray(levels)[clients], *bounds], 1).astype(np.int32)
        starts = dict.fromkeys(names, stored(np.concatenate([[0], ends]).astype(np.int32)))

        def results(weights, personal, seed):
            def predict(index):
                client, level, *bounds = tf.unstack(stored(table)[index])
                test, train = stored(tests.examples)[bounds[0] : bounds[1]], stored(shares.ids)[bounds[2] : bounds[3]]
                client_weights = weights | {path: values[client] for path, values in personal.items()}
                key = tf.stack([seed, client])
                branches = [
                    functools.partial(self._predict, model, client_weights, train, key, test) for model in models
                ]
                return reduce(tf.switch_case(level, branches), test, client)

            specs = result_specs(names, models[0], next(iter(weights.values())).dtype)
            return setup.replicas.gather_range(starts, predict, specs)

        return results

    def _predict(self, model, weights, train_rows, key, test_rows):
        """Return logits [rows, ..., classes] of the model of a level on rows of the split.

        Args:
            train_rows: Rows of the training split for the query of static batch normalisation.
            key: int32 [2], seed of the query.
        """
        value, batches = self.setup.family.prediction_value, self.setup.batches(self.split)
        by_path = {variable.path: value(variable, weights.__getitem__) for variable in values(model)}
        trainable = [by_path[variable.path] for variable in model.trainable_variables]
        state = self._queried_state(model, by_path, trainable, train_rows, key)
        split, size = (batches.x, self.targets[0]), batches.batch_size

        def predict(batch):
            rows = test_rows[batch * size : (batch + 1) * size]
            no_key = tf.zeros([1], tf.int32)
            inputs, _ = batches.source.batch(*split, rows, 0, no_key, all_labels(0), training=False)
            return model.stateless_call(trainable, state, inputs, training=False)[0]

        count, shape = -(-tf.shape(test_rows)[0] // size), [None, *model.outputs[0].shape[1:]]
        return _SEQUENTIAL.concat_range(count, predict, tf.TensorSpec(shape, trainable[0].dtype))

    def _queried_state(self, model, by_path, trainable, rows, key):
        """Return the non-trainable values; static batch normalisation is queried on rows of the training split."""
        variables, positions = model.non_trainable_variables, queried_positions(model)
        start = [by_path[v.path] if v.path in by_path else tf.convert_to_tensor(v) for v in variables]
        if not positions:
            return start
        setup = self.setup
        size = setup.recipe.evaluate.statistics_batch

        def moments(batch):
            batch_rows = rows[batch * size : (batch + 1) * size]
            batch_key = tf.concat([key, [batch]], 0)
            return batch_moments(model, (trainable, start), setup.examples, batch_rows, batch_key)

        count = -(-tf.shape(rows)[0] // size)
        total = _SEQUENTIAL.sum_range(count, moments, [tf.zeros_like(start[position]) for position in positions])
        for position, summed in zip(positions, total):
            mean = summed / tf.cast(tf.maximum(count, 1), summed.dtype)
            start[position] = tf.where(count > 0, mean, start[position])
        return start
