"""Measures the global model: Global and Local metrics."""

from dataclasses import dataclass

import keras
import numpy as np
import tensorflow as tf

from hetero_tf.base import seeds
from hetero_tf.evaluation import fairness
from hetero_tf.inputs import all_labels
from hetero_tf.methods.losses.cross_entropy import softmax_cross_entropy
from hetero_tf.methods.losses.masked_cross_entropy import masked
from hetero_tf.models.variables import is_seed

# Logits of text that exist at once: from a core's caches they are reduced to losses several times as fast.
LOGITS = 2**19


@dataclass(frozen=True)
class LocalTest:
    """The test examples of all clients, one client after the other.

    Attributes:
        examples: int32 [pairs], rows of the test split.
        present: bool [pairs, classes], labels that the client of each pair has.
        clients: `fairness.Tested`, whose examples these are.
    """

    examples: np.ndarray
    present: np.ndarray
    clients: fairness.Tested


def local_test(partition, levels=None, names=()):
    """The `LocalTest` of a partition; `levels` and `names` as `fairness.tested` takes them."""
    return LocalTest(
        partition.test.ids,
        partition.label_mask[partition.test.owners],
        fairness.tested(partition.test.sizes, levels, names),
    )


def _state(model, statistics):
    """All non-trainable values with `statistics` in their places."""
    given = iter(statistics)
    return [tf.convert_to_tensor(v) if is_seed(v) else next(given) for v in model.non_trainable_variables]


def build_image_test(model, source, x, y, batch_size, pairs, masks_labels, parallel):
    """Compiles Global and Local evaluation of images from one forward pass.

    Args:
        model: Keras model at the global level.
        source: `inputs.Input`; x, y: the stored test split.
        pairs: `LocalTest`.
        masks_labels: Whether Local sets absent labels' logits to zero.

    Returns:
        `(weights, statistics) -> {"logits", "local_logits", "client_accuracy", metric: scalar}`. Local pools the test
        examples of all clients, each under its client's labels; how it is spread over them: see `fairness.measure`.
    """
    axis = all_labels(0)

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
        local = local_metrics(tf.gather(logits, pairs.examples), tf.gather(y, pairs.examples), pairs, masks_labels)
        return {
            "logits": logits,
            "global_loss": _cross_entropy(logits, y),
            "global_accuracy": 100 * tf.reduce_mean(_hits(logits, y)),
            **local,
        }

    return test


def local_metrics(logits, targets, pairs, masks_labels):
    """What the logits of all clients' test examples say.

    Args:
        logits: [pairs, classes], one client after the other.
        targets: Integers [pairs].
        pairs: `LocalTest`.
        masks_labels: Whether absent labels' logits are set to zero.

    Returns:
        {"local_logits", "local_loss", "local_accuracy"} and those of `fairness.measure`.
    """
    logits = masked(logits, pairs.present) if masks_labels else logits
    own = _hits(logits, targets)
    return {
        "local_logits": logits,
        "local_loss": _cross_entropy(logits, targets),
        "local_accuracy": 100 * tf.reduce_mean(own),
        **fairness.measure(own, pairs.clients),
    }


def _cross_entropy(logits, targets):
    return tf.reduce_mean(softmax_cross_entropy(logits, targets))


def _hits(logits, targets):
    return tf.cast(tf.equal(tf.argmax(logits, -1, tf.int32), tf.cast(targets, tf.int32)), logits.dtype)


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
    mean_loss = _text_loss(model, classes)

    @tf.function(autograph=False)
    def test(weights, statistics):
        grid = tf.constant(firsts)

        def body(index, record):
            chosen = tf.range(grid[index, 0], tf.minimum(grid[index, 0] + batch_size, rows))
            noise_key = tf.concat([[key], grid[index]], 0)
            inputs, targets = source.batch(x, None, chosen, grid[index, 1], noise_key, axis, training=False)
            loss = mean_loss(weights, _state(model, statistics), inputs, targets)
            many = tf.cast(tf.shape(chosen)[0], loss.dtype)
            return index + 1, record.write(index, tf.stack([loss, tf.exp(loss), tf.ones_like(loss)]) * many)

        record = tf.TensorArray(weights[0].dtype, size=len(firsts))
        _, record = tf.while_loop(lambda index, _: index < len(firsts), body, (0, record), parallel_iterations=parallel)
        loss, perplexity, many = tf.unstack(tf.reduce_sum(record.stack(), 0))
        return {"global_loss": loss / many, "global_perplexity": perplexity / many}

    return test


def _text_loss(model, classes):
    """`(weights, state, inputs, targets) -> mean cross-entropy over all positions`, with few logits at once.

    A last layer that is a `Dense` reads each position alone, so its logits need not all exist at the same time.
    """
    body, last = model, model.layers[-1]
    size = max(LOGITS // classes, 1)
    if type(last) is keras.layers.Dense:
        body = keras.Model(model.inputs, last.input)
        # Each piece reads the whole kernel: a few positions only would spend most of the time on that.
        size = max(size, last.input.shape[-1] // 4)
    split = len(body.trainable_variables)

    def mean_loss(weights, state, inputs, targets):
        hidden, _ = body.stateless_call(weights[:split], state, inputs, training=False)
        hidden, targets = tf.reshape(hidden, [-1, hidden.shape[-1]]), tf.reshape(targets, [-1])

        def piece(first, total):
            logits = hidden[first : first + size]
            if body is not model:
                logits, _ = last.stateless_call(weights[split:], [], logits)
            return first + size, total + tf.reduce_sum(softmax_cross_entropy(logits, targets[first : first + size]))

        many = tf.size(targets)
        start = (0, tf.zeros([], hidden.dtype))
        total = tf.while_loop(lambda first, _: first < many, piece, start, parallel_iterations=1)[1]
        return total / tf.cast(many, total.dtype)

    return mean_loss
