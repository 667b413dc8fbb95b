"""Measures the global model: statistics of static batch normalisation, then Global and Local metrics."""

from dataclasses import dataclass

import numpy as np
import tensorflow as tf

from hetero_tf import seeds
from hetero_tf.inputs import all_labels
from hetero_tf.layers.static_batch_normalization import StaticBatchNormalization
from hetero_tf.models import all_layers
from hetero_tf.objectives.masked_cross_entropy import masked

GROUPS = 50


def statistics_paths(model):
    """Paths of the non-trainable values that `calibrate` gathers, in model order."""
    return [v.path for v in model.non_trainable_variables if not v.path.endswith("seed_generator_state")]


def statistics_batches(examples, batch_size, rng=None):
    """The batches of the statistics query.

    Args:
        examples: List of int32 arrays; one array for the pooled training set, or one per client. Batches do not
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


def build_calibrate(model, grouped_model, source, x, y, batch_size, parallel):
    """Compiles the static batch normalisation query.

    Args:
        model: Keras model at the global level.
        grouped_model: A second one, which is changed to normalise groups of `batch_size` examples apart, so that
            many batches run as one.
        source: `inputs.Input`; x, y: the stored training split.
        parallel: Calls in flight at once.

    Returns:
        `(weights, full, short, seed) -> list`: averages over all batches of the batch mean and the unbiased batch
        variance, every batch counting 1 (the cumulative average of the authors' code), in the order of
        `statistics_paths`; full and short as `statistics_batches` gives them.
    """
    for layer in all_layers(grouped_model):
        if isinstance(layer, StaticBatchNormalization):
            layer.group_size = batch_size
    keep = [place for place, v in enumerate(model.non_trainable_variables)
            if not v.path.endswith("seed_generator_state")]
    axis = all_labels(0)

    def moments(which, weights, rows, key):
        inputs, _ = source.batch(x, y, rows, 0, key, axis, training=True)
        state = [tf.convert_to_tensor(v) for v in which.non_trainable_variables]
        _, state = which.stateless_call(weights, state, inputs, training=True)
        return [state[place] for place in keep]

    @tf.function(reduce_retracing=True, autograph=False)
    def over_groups(weights, full, seed):
        batches = tf.shape(full)[0]
        zeros = [tf.zeros(model.non_trainable_variables[place].shape, weights[0].dtype) for place in keep]

        def body(first, total):
            rows = full[first:first + GROUPS]
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


def _state(model, statistics):
    """All non-trainable values with `statistics` in their places."""
    given = iter(statistics)
    return [tf.convert_to_tensor(v) if v.path.endswith("seed_generator_state") else next(given)
            for v in model.non_trainable_variables]


def build_image_test(model, source, x, y, batch_size, pairs, masks_labels, parallel):
    """Compiles Global and Local evaluation of images from one forward pass.

    Args:
        model: Keras model at the global level.
        source: `inputs.Input`; x, y: the stored test split.
        pairs: `LocalTest`.
        masks_labels: Whether Local sets absent labels' logits to zero.

    Returns:
        `(weights, statistics) -> {"logits", "local_logits", metric: scalar}`. Local pools the test examples of all
        clients, each under its client's labels.
    """
    axis = all_labels(0)

    def cross_entropy(logits, targets):
        return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(targets, logits))

    def accuracy(logits, targets):
        hits = tf.equal(tf.argmax(logits, -1, tf.int32), tf.cast(targets, tf.int32))
        return 100 * tf.reduce_mean(tf.cast(hits, logits.dtype))

    @tf.function(autograph=False)
    def test(weights, statistics):
        count = x.shape[0]
        chunks = -(-count // batch_size)

        def body(chunk, record):
            rows = tf.range(chunk * batch_size, tf.minimum((chunk + 1) * batch_size, count))
            inputs, _ = source.batch(x, y, rows, 0, tf.zeros([1], tf.int32), axis, training=False)
            logits, _ = model.stateless_call(weights, _state(model, statistics), inputs, training=False)
            return chunk + 1, record.write(chunk, logits)

        record = tf.TensorArray(weights[0].dtype, size=chunks, infer_shape=False)
        _, record = tf.while_loop(lambda chunk, _: chunk < chunks, body, (0, record), parallel_iterations=parallel)
        logits = record.concat()
        local = tf.gather(logits, pairs.examples)
        if masks_labels:
            local = masked(local, tf.gather(pairs.present, pairs.clients))
        targets = tf.gather(y, pairs.examples)
        return {"logits": logits, "local_logits": local,
                "global_loss": cross_entropy(logits, y), "global_accuracy": accuracy(logits, y),
                "local_loss": cross_entropy(local, targets), "local_accuracy": accuracy(local, targets)}

    return test


@dataclass(frozen=True)
class LocalTest:
    """Which test example belongs to which client.

    Attributes:
        examples, clients: int32 [pairs].
        present: bool [clients, classes].
    """

    examples: np.ndarray
    clients: np.ndarray
    present: np.ndarray


def local_test(partition):
    """The `LocalTest` of a partition."""
    sizes = [len(ids) for ids in partition.test]
    clients = np.repeat(np.arange(len(sizes), dtype=np.int32), sizes)
    examples = np.concatenate(partition.test) if sizes else np.zeros(0, np.int32)
    return LocalTest(examples.astype(np.int32), clients, partition.label_mask)


def build_text_test(model, source, x, classes, batch_size, seed, parallel):
    """Compiles the Global evaluation of masked text.

    Returns:
        `(weights, statistics) -> {"global_loss", "global_perplexity"}`. Perplexity is the mean over batches,
        weighted by rows, of exp(mean cross-entropy over all positions); masks are the same at every call.

    Reference: HeteroFL authors' code: a mean of exponentials, in which a short last segment counts fully.
    """
    axis = all_labels(classes)
    rows, starts = x.shape[0], source.starts(x)
    firsts = [(row, start) for row in range(0, rows, batch_size) for start in starts]
    key = seeds.seed32(seed, "test masks")

    @tf.function(autograph=False)
    def test(weights, statistics):
        grid = tf.constant(firsts)

        def body(index, record):
            chosen = tf.range(grid[index, 0], tf.minimum(grid[index, 0] + batch_size, rows))
            noise_key = tf.concat([[key], grid[index]], 0)
            inputs, targets = source.batch(x, None, chosen, grid[index, 1], noise_key, axis, training=False)
            logits, _ = model.stateless_call(weights, _state(model, statistics), inputs, training=False)
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(targets, logits))
            many = tf.cast(tf.shape(chosen)[0], loss.dtype)
            return index + 1, record.write(index, tf.stack([loss, tf.exp(loss), tf.ones_like(loss)]) * many)

        record = tf.TensorArray(weights[0].dtype, size=len(firsts))
        _, record = tf.while_loop(
            lambda index, _: index < len(firsts), body, (0, record), parallel_iterations=parallel)
        loss, perplexity, many = tf.unstack(tf.reduce_sum(record.stack(), 0))
        return {"global_loss": loss / many, "global_perplexity": perplexity / many}

    return test
