"""Local metrics of the clients' personal models: each client is tested with its own values."""

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import tensorflow as tf

from hetero_tf.base.replicas import Replicas
from hetero_tf.data.inputs import all_labels, stored
from hetero_tf.evaluation.client_metrics import ClientEvaluator
from hetero_tf.evaluation.fairness import accuracies
from hetero_tf.evaluation.global_metrics import result_specs
from hetero_tf.evaluation.statistics_query import batch_moments, noise_seed, queried_positions
from hetero_tf.models.state import State
from hetero_tf.models.variables import values

# A loop over the batches of one client.
_SEQUENTIAL = Replicas(parallel=1)


def has_client_models(state: State) -> bool:
    """Return whether clients have models of their own: personal values or twins."""
    return bool(state.clients.get("personal") or state.clients.get("twin"))


def model_values(
    state: State, weights: dict[str, tf.Tensor], is_idle: np.ndarray | None
) -> tuple[dict[str, tf.Tensor], tf.Tensor | None]:
    """Return `{path: [clients, ...]}`, the values of the clients' models that are not global ones, and the new clients.

    A twin counts with its share of the model, see `methods.personalizations`. A new client, which never trained, has
    the global model; its personal values are the mean over the clients, as in the test of the global model.

    Args:
        weights: The global values.
        is_idle: bool [clients], those that never train; None: no client is idle for the whole run.
    """
    tables = {path: tf.convert_to_tensor(table) for path, table in state.clients["personal"].items()}
    if not state.clients.get("twin") and is_idle is None:
        return tables, None

    def per_client(numbers, table):
        return tf.reshape(numbers, [-1, *[1] * (len(table.shape) - 1)])

    if state.clients.get("twin"):
        scalars = state.clients["twin_scalars"]
        is_new, starts = tf.equal(scalars["rounds"], 0), weights
        for path, twin in state.clients["twin"].items():
            alpha = per_client(scalars["alpha"], twin)
            tables[path] = alpha * twin + (1 - alpha) * weights[path]
    else:
        is_new, starts = tf.constant(is_idle), {path: tf.reduce_mean(table, 0) for path, table in tables.items()}
    return {path: tf.where(per_client(is_new, table), starts[path], table) for path, table in tables.items()}, is_new


@dataclass(frozen=True, eq=False)
class PersonalEvaluator:
    """The evaluation of the personal models on a split; functions are compiled once, on first use.

    A personal model has the values that stay with the client, and the global ones elsewhere. Statistics of static batch
    normalisation pooled over all clients would not be those of its activations. So they are queried with the client's
    model on its training examples: averages over its batches in their stored order, each counting 1. A client without
    training examples keeps mean 0 and variance 1.
    """

    clients: ClientEvaluator

    def values(self, state: State) -> tuple[dict, dict, tf.Tensor, tf.Tensor | None]:
        """Return the global values, those of the clients' models, the seed of the statistics query, and `is_new`."""
        setup = self.clients.setup
        levels, mix = setup.levels, setup.recipe.levels
        is_idle = np.isin(np.asarray(mix.names)[levels], mix.idle) if levels is not None and mix.idle else None
        weights = {path: tf.convert_to_tensor(value) for path, value in state.weights.items()}
        personal, is_new = model_values(state, weights, is_idle)
        return weights, personal, tf.constant(noise_seed(setup.recipe.seed, state.round)), is_new

    @functools.cached_property
    def measure(self) -> Callable:
        """Compiled function from the result of `values` to the metrics."""
        clients, results_of = self.clients, self.build_results(self.clients.result_names, self.clients.results)

        def measure(weights, personal, seed, is_new):
            results = results_of(weights, personal, seed)
            metrics = clients.summarize(results)
            if is_new is not None and "local_hits" in results:
                is_tested = tf.gather(is_new, stored(clients.tests.clients))
                new = tf.boolean_mask(accuracies(results["local_hits"], clients.tests), is_tested)
                metrics["local_new_mean"] = tf.reduce_mean(new)
            return metrics

        return clients.setup.replicas.compiled(measure)

    @functools.cached_property
    def results(self) -> Callable:
        """Compiled function from the first three results of `values` to the results on each example."""
        results_of = self.build_results(self.clients.result_names, self.clients.results)
        return self.clients.setup.replicas.compiled(results_of)

    def build_results(self, names: Sequence[str], reduce: Callable) -> Callable:
        """Return `(weights, personal, seed) -> {name: rows}` of all tests, for the graph.

        Args:
            reduce: `(outputs of a client, its examples int32 [n], its id) -> {name: rows}`, one row for each example.
        """
        setup, tests, shares = self.clients.setup, self.clients.tests, self.clients.setup.partition.train
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
        value, batches = self.clients.setup.family.prediction_value, self.clients.setup.batches(self.clients.split)
        by_path = {variable.path: value(variable, weights.__getitem__) for variable in values(model)}
        trainable = [by_path[variable.path] for variable in model.trainable_variables]
        state = self._queried_state(model, by_path, trainable, train_rows, key)
        split, size = (batches.x, self.clients.targets.data), batches.batch_size

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
        setup = self.clients.setup
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
