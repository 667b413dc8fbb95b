"""The query for the statistics of static batch normalisation: one pass over the training data after a round."""

import functools
from collections.abc import Iterable
from dataclasses import dataclass

import keras
import numpy as np
import tensorflow as tf

from hetero_tf.base import seeds
from hetero_tf.base.replicas import Replicas
from hetero_tf.data.inputs import Examples, all_labels
from hetero_tf.models.variables import all_layers, queried, values, with_values

# Batches in one call: fewer leave small models waiting for kernels, more do not fit into the caches.
BATCHES_PER_CALL = 20


def statistics_batches(
    examples: Iterable[np.ndarray], batch_size: int, rng: np.random.Generator | None = None
) -> tuple[np.ndarray, list[np.ndarray]]:
    """Return the batches of the statistics query.

    Args:
        examples: int32 arrays; one array for the pooled training set, or one per client. Batches do not
            cross arrays; the last batch of each may be short.
        rng: Shuffles each array unless None.

    Returns:
        (full, short): int32 [batches, batch_size], and a list of shorter int32 arrays.
    """
    full, short = [], []
    for ids in examples:
        ids = np.asarray(ids if rng is None else rng.permutation(ids), np.int32)
        full_size = len(ids) // batch_size * batch_size
        full.append(ids[:full_size].reshape(-1, batch_size))
        if full_size < len(ids):
            short.append(ids[full_size:])
    return np.concatenate(full), short


@dataclass(frozen=True, eq=False)
class StatisticsQuery:
    """The query of a model, compiled once, on first use.

    Attributes:
        grouped_model: A second model, which is changed to normalise groups of `batch_size` examples separately, so that
            many batches run as one.
        replicas: The replicas that share the work, and the number of calls that each has in flight.
    """

    model: keras.Model
    grouped_model: keras.Model
    examples: Examples
    batch_size: int
    replicas: Replicas

    def __call__(self, weights: list, full: np.ndarray, short: list[np.ndarray], seed: int) -> list[tf.Tensor]:
        """Return the mean of the batch means and of the unbiased batch variances, in the order of `queried`.

        Every batch counts 1 (the cumulative average of the authors' code).
        """
        # Short batches as one padded matrix, with their lengths.
        lengths = np.array([len(rows) for rows in short], np.int32)
        padded = np.full((len(short), self.batch_size), -1, np.int32)
        for number, rows in enumerate(short):
            padded[number, : len(rows)] = rows
        # A Python number would cause a new trace for every seed.
        return self._compiled(weights, *map(tf.constant, (full, padded, lengths)), tf.constant(seed))

    @functools.cached_property
    def _compiled(self):
        for layer in all_layers(self.grouped_model):
            if getattr(layer, "QUERIED", ()):
                layer.group_size = self.batch_size
        # Unknown numbers of batches, so that a run needs one trace.
        rows = tf.TensorSpec([None, None], tf.int32)
        signature = [
            [tf.TensorSpec(value.shape, value.dtype) for value in values(self.model)],
            *(rows, rows, tf.TensorSpec([None], tf.int32), tf.TensorSpec([], tf.int32)),
        ]
        return self.replicas.compiled(self._averages, input_signature=signature)

    def _averages(self, weights, full, short, lengths, seed):
        zeros = [tf.zeros(variable.shape, weights[0].dtype) for variable in queried(self.model)]

        def moments(model, rows, key):
            return batch_moments(model, with_values(model, weights), self.examples, rows, key)

        def group(index):
            """Moments of `BATCHES_PER_CALL` full batches, times their number."""
            first = index * BATCHES_PER_CALL
            rows = full[first : first + BATCHES_PER_CALL]
            count = tf.cast(tf.shape(rows)[0], weights[0].dtype)
            means = moments(self.grouped_model, tf.reshape(rows, [-1]), tf.stack([seed, first]))
            return [count * value for value in means]

        def short_batch(index):
            # A sum that would leave the range of its type wraps to 0.
            key = tf.cast((tf.cast(seed, tf.int64) + tf.cast(index, tf.int64) + 1) % 2**31, tf.int32)
            return moments(self.model, short[index, : lengths[index]], tf.stack([key, -1]))

        groups = (tf.shape(full)[0] + BATCHES_PER_CALL - 1) // BATCHES_PER_CALL
        total = self.replicas.sum_range(groups, group, zeros)
        total = self.replicas.sum_range(tf.shape(short)[0], short_batch, total)
        count = tf.cast(tf.shape(full)[0] + tf.shape(short)[0], weights[0].dtype)
        return [value / count for value in self.replicas.all_reduce_sum(total)]


def batch_moments(model: keras.Model, values: tuple, examples: Examples, rows: tf.Tensor, key: tf.Tensor) -> list:
    """Return the moments that a training step of a model on rows of the training split leaves.

    Args:
        rows: int32 [batch].
        key: int32 [words], seed of the noise of the inputs.
    """
    inputs, _ = examples.input.batch(examples.x, examples.y, rows, 0, key, all_labels(0), training=True)
    _, after = model.stateless_call(*values, inputs, training=True)
    return [after[index] for index in queried_positions(model)]


def queried_positions(model: keras.Model) -> list[int]:
    """Return the positions of the values of the query among the non-trainable ones."""
    paths = [variable.path for variable in queried(model)]
    return [index for index, variable in enumerate(model.non_trainable_variables) if variable.path in paths]


def statistics_rng(seed: int, round: int) -> np.random.Generator:
    """Return the generator that shuffles the examples of the query, client by client."""
    return seeds.rng(seed, "statistics", round)


def noise_seed(seed: int, round: int) -> int:
    """Return the seed of the random numbers of the query, such as masked words."""
    return seeds.seed32(seed, "statistics noise", round)
