"""The query for the statistics of static batch normalisation: one pass over the data, after training."""

from collections.abc import Callable, Iterable

import keras
import numpy as np
import tensorflow as tf

from hetero_tf.base.replicas import Replicas
from hetero_tf.inputs import Input, all_labels
from hetero_tf.models.variables import all_layers, queried, values, with_values

# Batches in one call: fewer leave small models waiting for kernels, more do not fit into the caches.
BATCHES_PER_CALL = 20


def statistics_paths(model: keras.Model) -> list[str]:
    """Return the paths of the non-trainable values that `calibrate` gathers, in model order."""
    return [variable.path for variable in queried(model)]


def statistics_batches(
    examples: Iterable[np.ndarray], batch_size: int, rng: np.random.Generator | None = None
) -> tuple[np.ndarray, list[np.ndarray]]:
    """Return the batches of the statistics query.

    Args:
        examples: int32 arrays; one array for the pooled training set, or one per client. Batches do not
            cross arrays; the last batch of each may be short.
        batch_size: Examples of a batch.
        rng: Shuffles each array; None: no shuffling.

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


def build_calibrate(
    model: keras.Model,
    grouped_model: keras.Model,
    source: Input,
    x: tf.Tensor,
    y: tf.Tensor | None,
    batch_size: int,
    replicas: Replicas,
) -> Callable:
    """Compile the static batch normalisation query.

    Args:
        model: Keras model at the global level.
        grouped_model: A second one, which is changed to normalise groups of `batch_size` examples separately, so that
            many batches run as one.
        source: `inputs.Input`; x, y: the stored training split.
        replicas: The replicas that share the work, and the number of calls that each has in flight.

    Returns:
        `(weights, full, short, seed) -> list`; weights: those of `variables.values(model)`; full and short: the result
        of `statistics_batches`. The results are averages over all batches of the batch mean and the unbiased batch
        variance, every batch counting 1 (the cumulative average of the authors' code), in the order of
        `statistics_paths`.
    """
    for layer in all_layers(grouped_model):
        if getattr(layer, "QUERIED", ()):
            layer.group_size = batch_size
    paths = statistics_paths(model)
    indices = [index for index, v in enumerate(model.non_trainable_variables) if v.path in paths]

    def moments(chosen_model, weights, rows, key):
        inputs, _ = source.batch(x, y, rows, 0, key, all_labels(0), training=True)
        _, state = chosen_model.stateless_call(*with_values(chosen_model, weights), inputs, training=True)
        return [state[index] for index in indices]

    def over_groups(weights, full, seed):
        """Sum the moments of this replica's full batches, `BATCHES_PER_CALL` of them at a time."""
        batches = tf.shape(full)[0]
        start, end = replicas.share((batches + BATCHES_PER_CALL - 1) // BATCHES_PER_CALL)
        zeros = [tf.zeros(model.non_trainable_variables[index].shape, weights[0].dtype) for index in indices]

        def body(group, total):
            first = group * BATCHES_PER_CALL
            rows = full[first : first + BATCHES_PER_CALL]
            batch_moments = moments(grouped_model, weights, tf.reshape(rows, [-1]), tf.stack([seed, first]))
            count = tf.cast(tf.shape(rows)[0], weights[0].dtype)
            return group + 1, [value + count * moment for value, moment in zip(total, batch_moments)]

        return tf.while_loop(lambda group, _: group < end, body, (start, zeros), parallel_iterations=replicas.parallel)[
            1
        ]

    def over_short(weights, short, lengths, seed, total):
        """Add the moments of this replica's shorter batches, one at a time."""
        first, end = replicas.share(tf.shape(short)[0])

        def body(number, total):
            # A sum that would leave the range of its type wraps to 0.
            key = tf.cast((tf.cast(seed, tf.int64) + tf.cast(number, tf.int64) + 1) % 2**31, tf.int32)
            batch_moments = moments(model, weights, short[number, : lengths[number]], tf.stack([key, -1]))
            return number + 1, [value + moment for value, moment in zip(total, batch_moments)]

        return tf.while_loop(
            lambda number, _: number < end, body, (first, total), parallel_iterations=replicas.parallel
        )[1]

    def averages(weights, full, short, lengths, seed):
        total = over_short(weights, short, lengths, seed, over_groups(weights, full, seed))
        count = tf.cast(tf.shape(full)[0] + tf.shape(short)[0], weights[0].dtype)
        return [value / count for value in replicas.all_reduce_sum(total)]

    # Unknown numbers of batches, so that a run needs one trace.
    rows = tf.TensorSpec([None, None], tf.int32)
    compiled = tf.function(
        lambda weights, *arguments: replicas.run(averages, weights, *arguments),
        input_signature=[
            [tf.TensorSpec(value.shape, value.dtype) for value in values(model)],
            *(rows, rows, tf.TensorSpec([None], tf.int32), tf.TensorSpec([], tf.int32)),
        ],
        autograph=False,
    )

    def calibrate(weights, full, short, seed):
        # Short batches as one padded matrix, with their lengths.
        lengths = np.array([len(rows) for rows in short], np.int32)
        padded = np.full((len(short), batch_size), -1, np.int32)
        for number, rows in enumerate(short):
            padded[number, : len(rows)] = rows
        # A Python number would cause a new trace for every seed.
        return compiled(weights, *map(tf.constant, (full, padded, lengths)), tf.constant(seed))

    return calibrate
