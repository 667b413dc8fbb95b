"""Predictions of personalised models, with units that stay with the clients: each on its client's test examples."""

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import keras
import numpy as np
import tensorflow as tf

from hetero_tf.base.replicas import Replicas
from hetero_tf.evaluation.calibration import statistics_paths
from hetero_tf.evaluation.fairness import ClientTests
from hetero_tf.inputs import Input, all_labels
from hetero_tf.models.family import prediction_value
from hetero_tf.models.variables import values
from hetero_tf.partitions.shares import ClientExamples


@dataclass(frozen=True)
class Batches:
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


def build_client_logits(
    models: Sequence[keras.Model],
    levels: np.ndarray,
    batches: Batches,
    shares: ClientExamples,
    tests: ClientTests,
    replicas: Replicas,
) -> Callable:
    """Return `(weights, personal, seed) -> logits` [pairs, classes] of all clients' personal models, for the graph.

    A personal model has the values that stay with the client, and the global ones elsewhere. Statistics of static batch
    normalisation pooled over all clients would not be those of its activations. So they are queried with the client's
    model on its training examples: averages over its batches in their stored order, each counting 1. A client without

    Args:
        models: Keras predictors, one for each level that a client may be tested at.
        levels: int [clients], index in `models` of each client's level.
        batches: Examples of both splits.
        shares: The training examples of each client.
        tests: The test examples of each client.
        replicas: The replicas that share the work, and the number of clients that each has in flight.

    The arguments of the result: weights `{path: global value}`; personal `{path: [clients, ...]}`, the values of the
    clients; seed int32 [], for the noise of the query.
    """
    clients, ends = tests.clients, np.cumsum(tests.counts)
    # One row for each tested client: its id and level, and the ranges of its test and training examples.
    table = np.stack(
        [
            clients,
            np.asarray(levels)[clients],
            ends - tests.counts,
            ends,
            shares.starts[clients],
            shares.starts[clients + 1],
        ],
        1,
    )
    predictors = [_Predictor(model, batches) for model in models]

    def logits(weights, personal, seed):
        rows_of_clients = tf.constant(table, tf.int32)
        test_rows, train_rows = tf.constant(tests.examples), tf.constant(shares.ids)
        first, end = replicas.share(len(clients))

        # Logits of one client's test examples, by its personal model.
        def predict(predictor, client, test_begin, test_end, train_begin, train_end):
            client_weights = weights | {path: table_of_path[client] for path, table_of_path in personal.items()}
            variables = predictor.values(client_weights)
            state = predictor.state(variables, train_rows[train_begin:train_end], tf.stack([seed, client]))
            return predictor.logits(variables, state, test_rows[test_begin:test_end])

        def body(index, record):
            client, level, *bounds = tf.unstack(rows_of_clients[index])
            branches = [functools.partial(predict, predictor, client, *bounds) for predictor in predictors]
            return index + 1, record.write(index - first, tf.switch_case(level, branches))

        shape, dtype = [None, tests.present.shape[1]], next(iter(weights.values())).dtype
        # Logits of each client have another number of rows, so no common element shape.
        record = tf.TensorArray(dtype, size=end - first, infer_shape=False, element_shape=shape)
        _, record = tf.while_loop(
            lambda index, _: index < end, body, (first, record), parallel_iterations=replicas.parallel
        )
        return replicas.all_gather_rows(record.concat(), tf.constant([0, *ends], tf.int32)[first], len(tests.examples))

    return logits


@dataclass(frozen=True)
class _Predictor:
    """The Keras model of a level, called with the values of any client."""

    model: keras.Model
    batches: Batches

    def values(self, weights):
        """Slice `{path: value}` of the model's variables from `weights` in their global shapes."""
        return {variable.path: prediction_value(variable, weights.__getitem__) for variable in values(self.model)}

    def _trainable(self, variables):
        return [variables[variable.path] for variable in self.model.trainable_variables]

    def state(self, client_values, rows, key):
        """Return the non-trainable values; static batch normalisation is queried on rows of the training split."""
        variables = self.model.non_trainable_variables
        start = [client_values[v.path] if v.path in client_values else tf.convert_to_tensor(v) for v in variables]
        paths = statistics_paths(self.model)
        positions = [position for position, variable in enumerate(variables) if variable.path in paths]
        if not positions:
            return start
        # Average the batch statistics over the client's batches.
        size = self.batches.statistics_batch
        count = -(-tf.shape(rows)[0] // size)

        def body(batch, total):
            batch_rows = rows[batch * size : (batch + 1) * size]
            noise_key = tf.concat([key, [batch]], 0)
            inputs, _ = self.batches.source.batch(
                *self.batches.train, batch_rows, 0, noise_key, all_labels(0), training=True
            )
            _, after = self.model.stateless_call(self._trainable(client_values), start, inputs, training=True)
            return batch + 1, [summed + after[position] for summed, position in zip(total, positions)]

        zeros = [tf.zeros_like(start[position]) for position in positions]
        _, total = tf.while_loop(lambda batch, _: batch < count, body, (0, zeros), parallel_iterations=1)
        for position, summed in zip(positions, total):
            # A client without training examples keeps mean 0 and variance 1.
            mean = summed / tf.cast(tf.maximum(count, 1), summed.dtype)
            start[position] = tf.where(count > 0, mean, start[position])
        return start

    def logits(self, client_values, state, rows):
        """Return logits [rows, classes] on rows of the test split."""
        size, trainable = self.batches.batch_size, self._trainable(client_values)
        count = -(-tf.shape(rows)[0] // size)

        def body(batch, record):
            batch_rows = rows[batch * size : (batch + 1) * size]
            inputs, _ = self.batches.source.batch(
                *self.batches.test, batch_rows, 0, tf.zeros([1], tf.int32), all_labels(0), training=False
            )
            outputs, _ = self.model.stateless_call(trainable, state, inputs, training=False)
            return batch + 1, record.write(batch, outputs)

        shape = [None, self.model.outputs[0].shape[-1]]
        record = tf.TensorArray(trainable[0].dtype, size=count, infer_shape=False, element_shape=shape)
        return tf.while_loop(lambda batch, _: batch < count, body, (0, record), parallel_iterations=1)[1].concat()
