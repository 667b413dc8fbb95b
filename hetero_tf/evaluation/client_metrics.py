"""Predicts with the clients' own models, where some units stay with the clients: each on its client's test examples."""

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
from hetero_tf.models.family import predicted
from hetero_tf.models.variables import values
from hetero_tf.partitions.shares import ClientExamples


@dataclass(frozen=True)
class Batches:
    """The stored images of both splits, and how they are read.

    Attributes:
        source: How examples become batches.
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
    """Returns `(weights, personal, seed) -> logits` [pairs, classes] of all clients' own models, for the graph.

    A client's own model has the values that stay with it and the global ones elsewhere. Statistics of static batch
    normalisation that were pooled over all clients would not be those of its activations, so they are queried with
    its own model on its own training examples: averages over its batches in their stored order, each counting 1. A
    client without training examples keeps mean 0 and variance 1.

    Args:
        models: Keras predictors, one for each level that a client may be tested at.
        levels: int [clients], which of them each client has.
        batches: Examples of both splits.
        shares: The training examples of each client.
        tests: The test examples of each client.
        replicas: Who measures, and how many clients each has in flight at once.

    The arguments of the result: weights `{path: global value}`; personal `{path: [clients, ...]}`, what stays with the
    clients; seed int32 [], for the noise of the query.
    """
    clients, ends = tests.clients, np.cumsum(tests.counts)
    # One row for each tested client: its id and level, where its test and its training examples begin and end.
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
        jobs = tf.constant(table, tf.int32)
        test_rows, train_rows = tf.constant(tests.examples), tf.constant(shares.ids)
        first, end = replicas.share(len(clients))

        def predict(predictor, client, test_begin, test_end, train_begin, train_end):
            own = weights | {path: kept[client] for path, kept in personal.items()}
            chosen = predictor.values(own)
            state = predictor.state(chosen, train_rows[train_begin:train_end], tf.stack([seed, client]))
            return predictor.logits(chosen, state, test_rows[test_begin:test_end])

        def body(index, record):
            client, level, *bounds = tf.unstack(jobs[index])
            branches = [functools.partial(predict, predictor, client, *bounds) for predictor in predictors]
            return index + 1, record.write(index - first, tf.switch_case(level, branches))

        shape, dtype = [None, tests.present.shape[1]], next(iter(weights.values())).dtype
        record = tf.TensorArray(dtype, size=end - first, infer_shape=False, element_shape=shape)
        _, record = tf.while_loop(
            lambda index, _: index < end, body, (first, record), parallel_iterations=replicas.parallel
        )
        return replicas.joined(record.concat(), tf.constant([0, *ends], tf.int32)[first], len(tests.examples))

    return logits


@dataclass(frozen=True)
class _Predictor:
    """The Keras model of a level, called with the values of any client."""

    model: keras.Model
    batches: Batches

    def values(self, own):
        """`{path: value}` of the model's variables, cut from `own`, which holds them in their global shapes."""
        return {variable.path: predicted(variable, own.__getitem__) for variable in values(self.model)}

    def _trainable(self, chosen):
        return [chosen[variable.path] for variable in self.model.trainable_variables]

    def state(self, chosen, rows, key):
        """The non-trainable values, those of static batch normalisation queried on the rows of the training split."""
        variables = self.model.non_trainable_variables
        start = [chosen[v.path] if v.path in chosen else tf.convert_to_tensor(v) for v in variables]
        paths = statistics_paths(self.model)
        positions = [position for position, variable in enumerate(variables) if variable.path in paths]
        if not positions:
            return start
        size = self.batches.statistics_batch
        count = -(-tf.shape(rows)[0] // size)

        def body(batch, total):
            of_batch = rows[batch * size : (batch + 1) * size]
            noise_key = tf.concat([key, [batch]], 0)
            inputs, _ = self.batches.source.batch(
                *self.batches.train, of_batch, 0, noise_key, all_labels(0), training=True
            )
            _, after = self.model.stateless_call(self._trainable(chosen), start, inputs, training=True)
            return batch + 1, [summed + after[position] for summed, position in zip(total, positions)]

        zeros = [tf.zeros_like(start[position]) for position in positions]
        _, total = tf.while_loop(lambda batch, _: batch < count, body, (0, zeros), parallel_iterations=1)
        for position, summed in zip(positions, total):
            mean = summed / tf.cast(tf.maximum(count, 1), summed.dtype)
            start[position] = tf.where(count > 0, mean, start[position])
        return start

    def logits(self, chosen, state, rows):
        """[rows, classes] on rows of the test split."""
        size, trainable = self.batches.batch_size, self._trainable(chosen)
        count = -(-tf.shape(rows)[0] // size)

        def body(batch, record):
            of_batch = rows[batch * size : (batch + 1) * size]
            inputs, _ = self.batches.source.batch(
                *self.batches.test, of_batch, 0, tf.zeros([1], tf.int32), all_labels(0), training=False
            )
            outputs, _ = self.model.stateless_call(trainable, state, inputs, training=False)
            return batch + 1, record.write(batch, outputs)

        shape = [None, self.model.outputs[0].shape[-1]]
        record = tf.TensorArray(trainable[0].dtype, size=count, infer_shape=False, element_shape=shape)
        return tf.while_loop(lambda batch, _: batch < count, body, (0, record), parallel_iterations=1)[1].concat()
