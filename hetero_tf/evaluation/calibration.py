"""The query for the statistics of static batch normalisation: one pass over the data, after training."""

from collections.abc import Iterable

import keras
import numpy as np
import tensorflow as tf

from hetero_tf.base.replicas import Replicas
from hetero_tf.data.inputs import Input, all_labels
from hetero_tf.models.variables import all_layers, queried, values, with_values

# Batches in one call: fewer leave small models waiting for kernels, more do not fit into the caches.
BATCHES_PER_CALL = 20


def statistics_paths(model: keras.Model) -> list[str]:
    """Return the paths of the non-trainable values that the query gathers, in model order."""
    return [variable.path for variable in queried(model)]


def statistics_batches(
    examples: Iterable[np.ndarray], batch_size: int, rng: np.random.Generator | None = None
) -> tuple[np.ndarray, list[np.ndarray]]:
    """Return the batches of the statistics query.

    Args:
        examples: int32 arrays; one array for the pooled training set, or one per client. Batches do not
            cross arrays; the last batch of each may be short.
        batch_size: Examples of a batch.
        rng: Shuffles each array unless None.

    Returns:
        (full, short): int32 [batches, batch_size], and a list of shorter int32 arrays.
    """
    full, short = [], []
    for ids in examples:
        ids = ids if rng is None else rng.permutation(ids)
        full_size = len(ids) // batch_size * batch_size
        full.append(np.asarray(ids[:full_size], np.int32).reshape(-1, batch_size))
        if full_size < len(ids):
            short.append(np.asarray(ids[full_size:], np.int32))
    return np.concatenate(full), short


class StatisticsQuery:
    """The compiled query of one model.

    Args:
        model: Keras model of a level.
        grouped_model: A second one, which is changed to normalise groups of `batch_size` examples separately, so that
            many batches run as one.
        source: `inputs.Input`; x, y: the stored training split.
        batch_size: Examples of a batch.
        replicas: The replicas that share the work, and the number of calls that each has in flight.
    """

    def __init__(
        self,
        model: keras.Model,
        grouped_model: keras.Model,
        source: Input,
        x: tf.Tensor,
        y: tf.Tensor | None,
        batch_size: int,
        replicas: Replicas,
    ):
        for layer in all_layers(grouped_model):
            if getattr(layer, "QUERIED", ()):
                layer.group_size = batch_size
        paths = statistics_paths(model)
        self._indices = [index for index, v in enumerate(model.non_trainable_variables) if v.path in paths]
        self._model, self._grouped_model, self._replicas = model, grouped_model, replicas
        self._source, self._x, self._y, self._batch_size = source, x, y, batch_size
        # Unknown numbers of batches, so that a run needs one trace.
        rows = tf.TensorSpec([None, None], tf.int32)
        signature = [
            [tf.TensorSpec(value.shape, value.dtype) for value in values(model)],
            *(rows, rows, tf.TensorSpec([None], tf.int32), tf.TensorSpec([], tf.int32)),
        ]
        self._compiled = replicas.compiled(self._averages, input_signature=signature)

    def __call__(self, weights: list, full: np.ndarray, short: list[np.ndarray], seed: int) -> list[tf.Tensor]:
        """Return the mean of the batch means and of the unbiased batch variances, in the order of `statistics_paths`.

        Every batch counts 1 (the cumulative average of the authors' code).

        Args:
            weights: Those of `variables.values(model)`.
            full, short: The result of `statistics_batches`.
            seed: Seed of the noise of inputs.
        """
        # Short batches as one padded matrix, with their lengths.
        lengths = np.array([len(rows) for rows in short], np.int32)
        padded = np.full((len(short), self._batch_size), -1, np.int32)
        for number, rows in enumerate(short):
            padded[number, : len(rows)] = rows
        # A Python number would cause a new trace for every seed.
        return self._compiled(weights, *map(tf.constant, (full, padded, lengths)), tf.constant(seed))

    def _averages(self, weights, full, short, lengths, seed):
        zeros = [
            tf.zeros(self._model.non_trainable_variables[index].shape, weights[0].dtype) for index in self._indices
        ]

        def group(index):
            """Moments of `BATCHES_PER_CALL` full batches, times their number."""
            first = index * BATCHES_PER_CALL
            rows = full[first : first + BATCHES_PER_CALL]
            count = tf.cast(tf.shape(rows)[0], weights[0].dtype)
            key = tf.stack([seed, first])
            return [count * value for value in self._moments(self._grouped_model, weights, tf.reshape(rows, [-1]), key)]

        def short_batch(index):
            # A sum that would leave the range of its type wraps to 0.
            key = tf.cast((tf.cast(seed, tf.int64) + tf.cast(index, tf.int64) + 1) % 2**31, tf.int32)
            return self._moments(self._model, weights, short[index, : lengths[index]], tf.stack([key, -1]))

        groups = (tf.shape(full)[0] + BATCHES_PER_CALL - 1) // BATCHES_PER_CALL
        total = self._replicas.sum_range(groups, group, zeros)
        total = self._replicas.sum_range(tf.shape(short)[0], short_batch, total)
        count = tf.cast(tf.shape(full)[0] + tf.shape(short)[0], weights[0].dtype)
        return [value / count for value in self._replicas.all_reduce_sum(total)]

    def _moments(self, model, weights, rows, key):
        """The moments of one batch, or their means over a group of batches."""
        inputs, _ = self._source.batch(self._x, self._y, rows, 0, key, all_labels(0), training=True)
        _, state = model.stateless_call(*with_values(model, weights), inputs, training=True)
        return [state[index] for index in self._indices]
