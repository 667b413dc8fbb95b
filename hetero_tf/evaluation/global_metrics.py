"""Metrics of a model on a split under all labels."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from hetero_tf.base import registry, seeds
from hetero_tf.base.replicas import Replicas
from hetero_tf.data.inputs import Input, all_labels, stored
from hetero_tf.methods.losses.cross_entropy import softmax_cross_entropy
from hetero_tf.methods.losses.masked_cross_entropy import masked
from hetero_tf.methods.metrics import accuracy
from hetero_tf.methods.tasks import Task
from hetero_tf.recipe.schema import Recipe

# Logits of text in memory at once: within a core's caches they are reduced to losses several times as fast.
MAX_LOGITS = 2**19


def with_prefix(metrics: dict, prefix: str, suffix: str = "") -> dict:
    """Rename metrics: `loss` to `prefix_loss`, or to `prefix_loss_suffix`."""
    return {f"{prefix}_{name}{suffix and '_'}{suffix}": value for name, value in metrics.items()}


@dataclass(frozen=True)
class SplitBatches:
    """The batches of a split, which replicas share.

    Attributes:
        replicas: The replicas that share the work, and the number of batches that each has in flight.
    """

    source: Input
    x: np.ndarray | tf.Tensor
    batch_size: int
    replicas: Replicas

    @property
    def starts(self) -> np.ndarray:
        """The first example of each batch, and the number of examples: int32 [batches + 1]."""
        count = self.x.shape[0]
        return np.minimum(np.arange(-(-count // self.batch_size) + 1) * self.batch_size, count).astype(np.int32)

    def build_outputs(self, model: keras.Model) -> Callable:
        """Return `(weights, state) -> outputs` [examples, ..., classes] of a model, for the graph.

        The arguments are the model's trainable and other values, in its order.
        """
        results = self.build_results(model, {"outputs": self.starts}, lambda outputs, rows, batch: {"outputs": outputs})
        return lambda weights, state: results(weights, state)["outputs"]

    def build_results(self, model: keras.Model, starts: dict[str, np.ndarray], reduce: Callable) -> Callable:
        """Return `(weights, state) -> {name: rows}`: the outputs of a model, reduced batch by batch, for the graph.

        Args:
            starts: `{name: int32 [batches + 1]}`, the first row of each batch among the results. The first entry is
                `self.starts`.
            reduce: `(outputs, examples int32 [n], index of the batch) -> {name: rows}`.
        """
        axis, y = all_labels(0), tf.zeros([self.x.shape[0]], tf.int32)
        x, first_rows = stored(self.x), {name: stored(rows) for name, rows in starts.items()}
        bounds = next(iter(first_rows.values()))

        def results(weights, state):
            def predict(batch):
                rows = tf.range(*tf.unstack(bounds[batch : batch + 2], 2))
                inputs, _ = self.source.batch(x, y, rows, 0, tf.zeros([1], tf.int32), axis, training=False)
                return reduce(model.stateless_call(weights, state, inputs, training=False)[0], rows, batch)

            return self.replicas.gather_range(first_rows, predict, result_specs(starts, model, weights[0].dtype))

        return results


def result_specs(names: Iterable[str], model: keras.Model, dtype: tf.DType) -> dict[str, tf.TensorSpec]:
    """Return the spec of each result: "outputs" and "local_outputs" of the model, or one number for each example."""
    shape = model.outputs[0].shape[1:]
    return {name: tf.TensorSpec([None, *(shape if name.endswith("outputs") else ())], dtype) for name in names}


@dataclass(frozen=True)
class Measures:
    """The metrics of a recipe's task.

    Attributes:
        task: Converts targets for the loss, and outputs for metrics.
        test_loss: `(outputs, targets) -> loss of every example` over all labels.
        metrics: Plug-ins by name, see `methods.metrics`.
        masks_labels: Whether Local metrics set the logits of labels that a client lacks to zero.
        has_hits: Whether an example has one label, so that its prediction is correct or not.
    """

    task: Task
    test_loss: Callable
    metrics: dict[str, Any]
    masks_labels: bool
    has_hits: bool

    @classmethod
    def of(cls, recipe: Recipe, task: Task, others: Mapping[str, Any], test_loss: Callable | None = None) -> "Measures":
        """Return the metrics of a recipe, and others by name; those of text are in `build_text_metrics`.

        Args:
            test_loss: Replaces that of the task.
        """
        loss = registry.find("losses", registry.constant("tasks", recipe.task.name, "TEST_LOSS")).loss
        names = () if recipe.targets == "positions" else recipe.metrics
        return cls(
            task,
            test_loss=test_loss or (lambda outputs, targets: loss(outputs, targets, None, 0)),
            metrics={name: registry.find("metrics", name) for name in names} | dict(others),
            masks_labels=registry.find("losses", recipe.loss.name).MASKS_LABELS,
            has_hits=recipe.targets == "label",
        )

    def targets(self, targets: np.ndarray) -> tuple[tf.Tensor, tf.Tensor]:
        """Return targets of the data and those of the losses, [examples, ...] each, which graphs capture."""
        data, encoded = stored(targets), self.task.encode(targets)
        return data, data if encoded is targets else stored(encoded)

    @property
    def result_names(self) -> tuple[str, ...]:
        """Names of the `results`."""
        reads_outputs = any(name != "accuracy" or not self.has_hits for name in self.metrics)
        return ("loss", *(["hits"] if self.has_hits else []), *(["outputs"] if reads_outputs else []))

    def results(
        self,
        outputs: tf.Tensor,
        targets: tuple[tf.Tensor, tf.Tensor],
        rows: tf.Tensor | None = None,
        output_mask: tf.Tensor | None = None,
        label_mask: tf.Tensor | None = None,
    ) -> dict[str, tf.Tensor]:
        """Return what the metrics read of each example.

        Args:
            outputs: [n, ...].
            targets: See `targets`.
            rows: int32 [n], examples of the outputs; None: all.
            output_mask, label_mask: bool, broadcastable to the outputs and to the scores of the classes; others are 0.

        Returns:
            "loss" [n]; of labels "hits" [n], 1 for a correct prediction, else 0; unmasked "outputs" [n, ...] if another
            metric than the accuracy reads them.
        """
        data, encoded = targets if rows is None else (tf.gather(each, rows) for each in targets)
        losses = self.test_loss(mask_outputs(outputs, output_mask), encoded)
        # The loss of a label map has one value for each pixel.
        results = {"loss": tf.reduce_mean(losses, list(range(1, losses.shape.rank)))}
        if self.has_hits:
            scores = mask_outputs(self.task.prediction_scores(outputs), label_mask)
            results["hits"] = accuracy.hits(scores, data)
        return results | ({"outputs": outputs} if "outputs" in self.result_names else {})

    def build_metrics(self, model: keras.Model, batches: SplitBatches, y: np.ndarray) -> Callable:
        """Return `(weights, state) -> {"loss", ...}` on a split with targets y; see `SplitBatches.build_outputs`."""
        targets = self.targets(y)
        starts = dict.fromkeys(self.result_names, batches.starts)
        results = batches.build_results(model, starts, lambda outputs, rows, _: self.results(outputs, targets, rows))
        return lambda weights, state: self.summarize(results(weights, state), targets)

    def measure(self, outputs: tf.Tensor, targets: np.ndarray) -> dict[str, tf.Tensor]:
        """Return "loss" and the other metrics of outputs [examples, ...] for the targets of the data."""
        stored_targets = self.targets(targets)
        return self.summarize(self.results(outputs, stored_targets), stored_targets)

    def summarize(self, results: dict[str, tf.Tensor], targets: tuple[tf.Tensor, tf.Tensor]) -> dict[str, tf.Tensor]:
        """Return "loss" and the other metrics of the `results` of all examples."""
        metrics = {"loss": tf.reduce_mean(results["loss"])}
        for name, plugin in self.metrics.items():
            if name == "accuracy" and self.has_hits:
                metrics[name] = 100 * tf.reduce_mean(results["hits"])
            else:
                metrics[name] = plugin.metric(self.scores(plugin, results["outputs"]), targets[0])
        return metrics

    def scores(self, plugin: Any, outputs: tf.Tensor) -> tf.Tensor:
        """Return the scores that a metric reads."""
        return (self.task.decode if reads_probabilities(plugin) else self.task.prediction_scores)(outputs)


def mask_outputs(outputs: tf.Tensor, mask: tf.Tensor | None) -> tf.Tensor:
    """Return outputs [n, ..., classes] with zeros for classes outside a mask [n or 1, classes], if there is one."""
    if mask is None:
        return outputs
    return masked(outputs, tf.reshape(mask, [-1, *[1] * (outputs.shape.rank - 2), mask.shape[-1]]))


def reads_probabilities(plugin: Any) -> bool:
    """Return whether a metric reads probabilities, see `methods.metrics`."""
    return getattr(plugin, "PROBABILITIES", False)


def build_text_metrics(model: keras.Model, batches: SplitBatches, classes: int, seed: int) -> Callable:
    """Return `(weights, state) -> {"loss", "perplexity"}` of masked text, for the graph.

    Perplexity is the mean over batches, weighted by rows, of exp(mean cross-entropy over all positions); masks are the
    same at every call.

    Reference: HeteroFL authors' code: a mean of exponentials, in which a short last segment counts fully.
    """
    source, x, size, replicas = batches.source, batches.x, batches.batch_size, batches.replicas
    rows, axis = x.shape[0], all_labels(classes)
    first_positions = [(row, start) for row in range(0, rows, size) for start in source.starts(x)]
    key = seeds.seed32(seed, "test masks")
    mean_loss, x = _text_loss(model, classes), tf.constant(x)

    def metrics(weights, state):
        grid: tf.Tensor = stored(np.asarray(first_positions, np.int32))

        def predict(index):
            batch_rows = tf.range(grid[index, 0], tf.minimum(grid[index, 0] + size, rows))
            noise_key = tf.concat([[key], grid[index]], 0)
            inputs, targets = source.batch(x, None, batch_rows, grid[index, 1], noise_key, axis, training=False)
            loss = mean_loss(weights, state, inputs, targets)
            count = tf.cast(tf.shape(batch_rows)[0], loss.dtype)
            return {"sums": tf.stack([loss, tf.exp(loss), tf.ones_like(loss)])[None] * count}

        starts = {"sums": stored(np.arange(len(first_positions) + 1, dtype=np.int32))}
        sums = replicas.gather_range(starts, predict, {"sums": tf.TensorSpec([None, 3], weights[0].dtype)})["sums"]
        # Sums over all batches, weighted by their rows.
        loss, perplexity, count = tf.unstack(tf.reduce_sum(sums, 0))
        return {"loss": loss / count, "perplexity": perplexity / count}

    return metrics


def _text_loss(model, classes):
    """Return `(weights, state, inputs, targets) -> mean cross-entropy over all positions`, with few logits at once.

    A last `Dense` layer reads each position independently, so its logits need not all exist at the same time.
    """
    body, last_layer = model, model.layers[-1]
    size = max(MAX_LOGITS // classes, 1)
    if type(last_layer) is keras.layers.Dense:
        body = keras.Model(model.inputs, last_layer.input)
        # Each piece reads the full kernel, so pieces of a few positions would spend most of the time on that.
        size = max(size, last_layer.input.shape[-1] // 4)
    # The values of the last layer come last; its weights may be constants.
    num_weights, num_state = len(body.trainable_variables), len(body.non_trainable_variables)

    def mean_loss(weights, state, inputs, targets):
        hidden, _ = body.stateless_call(weights[:num_weights], state[:num_state], inputs, training=False)
        # [rows, segment, channels] -> [positions, channels]
        hidden, targets = tf.reshape(hidden, [-1, hidden.shape[-1]]), tf.reshape(targets, [-1])

        def add_piece(first, total):
            logits = hidden[first : first + size]
            if body is not model:
                logits, _ = last_layer.stateless_call(weights[num_weights:], state[num_state:], logits)
            return first + size, total + tf.reduce_sum(softmax_cross_entropy(logits, targets[first : first + size]))

        count = tf.size(targets)
        start = (0, tf.zeros([], hidden.dtype))
        total = tf.while_loop(lambda first, _: first < count, add_piece, start, parallel_iterations=1)[1]
        return total / tf.cast(count, total.dtype)

    return mean_loss
