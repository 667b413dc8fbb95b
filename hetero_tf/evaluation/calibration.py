"""The query for the statistics of static batch normalisation: one pass over the data, after training."""

from collections.abc import Callable, Iterable

import keras
import numpy as np
import tensorflow as tf

from hetero_tf.base.replicas import Replicas
from hetero_tf.inputs import Input, all_labels
from hetero_tf.models.variables import all_layers, queried, values, with_values

# Batches in one call: fewer leave small models waiting for kernels to start, more leave the caches.
GROUPS = 20


def statistics_paths(model: keras.Model) -> list[str]:
    """Paths of the non-trainable values that `calibrate` gathers, in model order."""
    return [variable.path for variable in queried(model)]


def statistics_batches(
    examples: Iterable[np.ndarray], batch_size: int, rng: np.random.Generator | None = None
) -> tuple[np.ndarray, list[np.ndarray]]:
    """The batches of the statistics query.

    Args:
        examples: int32 arrays; one array for the pooled training set, or one per client. Batches do not
            cross arrays; the last batch of each may be short.
        batch_size: Examples of a batch.
        rng: Shuffles each array; None keeps the order.

    Returns:
        (full, short): int32 [batches, batch_size], and a list of shorter int32 arrays.
    """
    full, short = [], []
    for ids in examples:
        ids = ids if rng is None else rng.permutation(ids)
        whole = len(ids) // batch_size * batch_size
        full.append(np.asarray(ids[:whole], np.int32).reshape(-1, batch_size))
        if whole < len(ids):
            short.append(np.asarray(ids[whole:], np.int32))
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
    """Compiles the static batch normalisation query.

    Args:
        model: Keras model at the global level.
        grouped_model: A second one, which is changed to normalise groups of `batch_size` examples apart, so that
            many batches run as one.
        source: `inputs.Input`; x, y: the stored training split.
        replicas: Who measures, and how many calls each has in flight at once.

    Returns:
        `(weights, full, short, seed) -> list`; weights: those of `variables.values(model)`; full and short as
        `statistics_batches` gives them. The results are averages over all batches of the batch mean and the unbiased
        batch variance, every batch counting 1 (the cumulative average of the authors' code), in the order of
        `statistics_paths`.
    """
    for layer in all_layers(grouped_model):
        if getattr(layer, "QUERIED", ()):
            layer.group_size = batch_size
    wanted = statistics_paths(model)
    keep = [place for place, v in enumerate(model.non_trainable_variables) if v.path in wanted]

    def moments(which, weights, rows, key):
        inputs, _ = source.batch(x, y, rows, 0, key, all_labels(0), training=True)
        _, state = which.stateless_call(*with_values(which, weights), inputs, training=True)
        return [state[place] for place in keep]

    def over_groups(weights, full, seed):
        """The sum over this replica's batches of `batch_size` examples, `GROUPS` of them at a time."""
        batches = tf.shape(full)[0]
        start, end = replicas.share((batches + GROUPS - 1) // GROUPS)
        zeros = [tf.zeros(model.non_trainable_variables[place].shape, weights[0].dtype) for place in keep]

        def body(group, total):
            first = group * GROUPS
            rows = full[first : first + GROUPS]
            found = moments(grouped_model, weights, tf.reshape(rows, [-1]), tf.stack([seed, first]))
            many = tf.cast(tf.shape(rows)[0], weights[0].dtype)
            return group + 1, [have + many * more for have, more in zip(total, found)]

        return tf.while_loop(lambda group, _: group < end, body, (start, zeros), parallel_iterations=replicas.parallel)[
            1
        ]

    def over_short(weights, short, lengths, seed, total):
        """The same with this replica's shorter batches added, one at a time."""
        first, end = replicas.share(tf.shape(short)[0])

        def body(number, total):
            # A sum that would leave the range of its type goes on from 0.
            key = tf.cast((tf.cast(seed, tf.int64) + tf.cast(number, tf.int64) + 1) % 2**31, tf.int32)
            found = moments(model, weights, short[number, : lengths[number]], tf.stack([key, -1]))
            return number + 1, [have + more for have, more in zip(total, found)]

        return tf.while_loop(
            lambda number, _: number < end, body, (first, total), parallel_iterations=replicas.parallel
        )[1]

    def averages(weights, full, short, lengths, seed):
        total = over_short(weights, short, lengths, seed, over_groups(weights, full, seed))
        many = tf.cast(tf.shape(full)[0] + tf.shape(short)[0], weights[0].dtype)
        return [value / many for value in replicas.summed(total)]

    rows = tf.TensorSpec([None, None], tf.int32)
    compiled = tf.function(
        lambda weights, *given: replicas.run(averages, weights, *given),
        input_signature=[
            [tf.TensorSpec(value.shape, value.dtype) for value in values(model)],
            *(rows, rows, tf.TensorSpec([None], tf.int32), tf.TensorSpec([], tf.int32)),
        ],
        autograph=False,
    )

    def calibrate(weights, full, short, seed):
        lengths = np.array([len(rows) for rows in short], np.int32)
        padded = np.full((len(short), batch_size), -1, np.int32)
        for number, rows in enumerate(short):
            padded[number, : len(rows)] = rows
        # A Python number would make a new trace for every seed.
        return compiled(weights, *map(tf.constant, (full, padded, lengths)), tf.constant(seed))

    return calibrate
