"""The query for the statistics of static batch normalisation: one pass over the data, after training."""

from collections.abc import Callable, Iterable

import keras
import numpy as np
import tensorflow as tf

from hetero_tf.inputs import Input, all_labels
from hetero_tf.models.variables import all_layers, queried, with_values

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
    parallel: int,
) -> Callable:
    """Compiles the static batch normalisation query.

    Args:
        model: Keras model at the global level.
        grouped_model: A second one, which is changed to normalise groups of `batch_size` examples apart, so that
            many batches run as one.
        source: `inputs.Input`; x, y: the stored training split.
        parallel: Calls in flight at once.

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

    @tf.function(reduce_retracing=True, autograph=False)
    def over_groups(weights, full, seed):
        batches = tf.shape(full)[0]
        zeros = [tf.zeros(model.non_trainable_variables[place].shape, weights[0].dtype) for place in keep]

        def body(first, total):
            rows = full[first : first + GROUPS]
            found = moments(grouped_model, weights, tf.reshape(rows, [-1]), tf.stack([seed, first]))
            many = tf.cast(tf.shape(rows)[0], weights[0].dtype)
            return first + GROUPS, [have + many * more for have, more in zip(total, found)]

        return tf.while_loop(lambda first, _: first < batches, body, (0, zeros), parallel_iterations=parallel)[1]

    @tf.function(reduce_retracing=True, autograph=False)
    def over_one(weights, rows, seed):
        return moments(model, weights, rows, tf.stack([seed, -1]))

    def calibrate(weights, full, short, seed):
        # A Python number would make a new trace for every seed.
        total = over_groups(weights, tf.constant(full), tf.constant(seed)) if len(full) else None
        for number, rows in enumerate(short):
            found = over_one(weights, tf.constant(rows), tf.constant((seed + number + 1) % 2**31))
            total = found if total is None else [have + more for have, more in zip(total, found)]
        many = tf.cast(len(full) + len(short), weights[0].dtype)
        return [value / many for value in total]

    return calibrate
