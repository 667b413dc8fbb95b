"""Contracts of plug-ins of the objective: losses, couplings, metrics and tasks."""

import functools
from types import SimpleNamespace
from typing import Any

import numpy as np
import tensorflow as tf

from hetero_tf.base import registry
from hetero_tf.base.constraints import Plugin
from hetero_tf.data.codecs import picture
from hetero_tf.data.dataset import Dataset, Split
from hetero_tf.data.targets import form_of
from hetero_tf.methods.losses import cross_entropy
from hetero_tf.run.checks import build_task
from hetero_tf.testing.subject import Subject

CLASSES = 6
PRESENT = np.asarray([True, False, True, True, False, False])
LARGE = 1e4


def _has_one_label(subject):
    return "label" in (subject.constant("TARGETS") or ("label",))


def draw_examples(subject: Subject, shape: tuple[int, ...], seed: int = 0) -> tuple[tf.Tensor, tf.Tensor]:
    """Outputs and targets of a loss: a label, or a number or flag for each class; absent labels are never positive."""
    rng = np.random.default_rng(seed)
    outputs = tf.constant(rng.normal(0, 2, (*shape, CLASSES)))
    if _has_one_label(subject):
        return outputs, tf.constant(rng.choice(np.flatnonzero(PRESENT), shape), tf.int32)
    numbers = rng.normal(size=(*shape, CLASSES)).astype(np.float32)
    is_set = tuple(subject.module.TARGETS) == ("label_set",)
    return outputs, tf.constant((numbers > 0) & PRESENT if is_set else numbers, tf.float32)


def _gradient(function, outputs):
    with tf.GradientTape() as tape:
        tape.watch(outputs)
        value = function(outputs)
    return value, tape.gradient(value, outputs, unconnected_gradients="zero")


def check_loss_values(subject: Subject) -> None:
    """A loss is finite for every example, in the type of the outputs, also for large ones."""
    for shape in ((4,), (3, 5), (2, 3, 5)):
        outputs, targets = draw_examples(subject, shape)
        for dtype in ("float32", "float64"):
            for scale in (1.0, LARGE):
                value = subject.call("loss", tf.cast(outputs * scale, dtype), targets, PRESENT, 0)
                subject.require_form(value, shape, dtype, "a loss must have the outputs' leading axes and type")
                subject.require(np.isfinite(value).all(), f"a loss must be finite for outputs around {scale:g}", value)


def check_loss_gradients(subject: Subject) -> None:
    """Gradients agree with finite differences; an upstream gradient of 0 gives no gradient."""
    outputs, targets = draw_examples(subject, (4,))
    upstream = tf.constant([1.0, -2.0, 0.0, 3.0], tf.float64)

    def summed(outputs):
        return tf.reduce_sum(upstream * subject.call("loss", outputs, targets, PRESENT, 0))

    value, slope = _gradient(summed, outputs)
    subject.require((slope[2].numpy() == 0).all(), "an upstream gradient of 0 must give no gradient")
    rng = np.random.default_rng(1)
    for _ in range(5):
        step = 1e-6 * rng.normal(size=slope.shape)
        expected = (slope.numpy() * step).sum()
        subject.require_close(summed(outputs + step) - value, expected, "the gradient is that of the loss", atol=1e-10)


def check_losses_of_clients(subject: Subject) -> None:
    """Batched clients get the loss and gradient of single clients."""
    outputs, targets = draw_examples(subject, (3, 4), seed=2)
    present = np.stack([PRESENT, np.ones(CLASSES, bool), np.arange(CLASSES) < 4])

    def gradients(outputs, targets, present):
        return _gradient(lambda value: subject.call("loss", value, targets, present, 0), outputs)

    subject.require_rows(gradients, outputs, targets, present[:, None], rtol=1e-12, atol=1e-16)


def check_masking(subject: Subject) -> None:
    """With `MASKS_LABELS` absent labels have no gradient, and their logits may be cut without another result."""
    outputs, targets = draw_examples(subject, (7,))
    whole, slope = _gradient(lambda value: subject.call("loss", value, targets, PRESENT, 0), outputs)
    is_masked, masks = (slope.numpy()[:, ~PRESENT] == 0).all(), subject.module.MASKS_LABELS
    subject.require(is_masked == masks, "MASKS_LABELS must say whether absent labels have no gradient", masks)
    if not (masks and _has_one_label(subject)):
        return
    labels = np.flatnonzero(PRESENT)
    cut_targets = tf.constant(np.searchsorted(labels, targets), tf.int32)
    for padding in (0, 1, 3):  # A client with fewer labels than the axis has room.
        padded = tf.pad(tf.gather(outputs, labels, axis=1), [[0, 0], [0, padding]], constant_values=9.0)
        present = np.arange(len(labels) + padding) < len(labels)
        outside = CLASSES - len(labels) - padding
        cut, cut_slope = _gradient(
            lambda value, present=present, outside=outside: subject.call("loss", value, cut_targets, present, outside),
            padded,
        )
        rule = "the label axis may be cut to the labels of a client"
        subject.require_close(cut, whole, rule, rtol=1e-14)
        subject.require_close(cut_slope[:, : len(labels)], slope.numpy()[:, labels], rule, atol=1e-16)
        subject.require((cut_slope.numpy()[:, len(labels) :] == 0).all(), "padding must get no gradient")


def draw_logits(
    outputs: int, shape: tuple[int, ...] = (2, 3), scale: float = 2.0, dtype: str = "float64", seed: int = 0
) -> tuple[list[tf.Tensor], tf.Tensor]:
    """Return the logits of several outputs, and the labels."""
    rng = np.random.default_rng(seed)
    logits = [tf.constant(scale * rng.normal(size=(*shape, CLASSES)), dtype) for _ in range(outputs)]
    return logits, tf.constant(rng.integers(0, CLASSES, shape), tf.int32)


def couple(subject: Subject, logits: list, targets: tf.Tensor, round: tf.Tensor | int = 4) -> tf.Tensor:
    """Return the coupled loss of every example, with cross-entropy as the loss of each output."""
    losses = [cross_entropy.loss(one, targets, None, 0) for one in logits]
    return subject.call("couple", losses, logits if subject.module.READS_LOGITS else None, targets, round)


def check_coupling_values(subject: Subject) -> None:
    """A coupled loss is finite with finite gradients, in the type of the logits; of one output it is its loss."""
    for shape, dtype in (((2, 3), "float64"), ((1, 4), "float32"), ((2, 3, 2), "float64")):
        for outputs in (1, 2, 4):
            for scale in (2.0, LARGE):
                logits, targets = draw_logits(outputs, shape, scale, dtype)
                value, slopes = _gradient(lambda logits, targets=targets: couple(subject, logits, targets), logits)
                subject.require_form(value, shape, dtype, "a coupled loss must have the losses' form and type")
                is_finite = all(np.isfinite(each).all() for each in (value, *slopes))
                subject.require(is_finite, f"losses and gradients must be finite for logits around {scale:g}")
    logits, targets = draw_logits(1)
    for round in (0, 500):
        value = couple(subject, logits, targets, tf.constant(round))
        subject.require_close(value, cross_entropy.loss(logits[0], targets, None, 0), "one output must have its loss")


def check_coupling_of_clients(subject: Subject) -> None:
    """Batched clients get single clients' losses; `SEPARABLE` states whether outputs are summed; NaN stays inside."""
    logits, targets = draw_logits(3)
    whole = subject.require_rows(lambda logits, targets: couple(subject, logits, targets), logits, targets, rtol=1e-14)
    is_sum = np.allclose(whole, sum(couple(subject, [one], targets) for one in logits), rtol=1e-12)
    is_separable = getattr(subject.module, "SEPARABLE", False)
    subject.require(is_separable == is_sum, "SEPARABLE must say whether the outputs' losses are summed", is_separable)
    for value in (np.nan, np.inf):
        damaged = [*logits[:2], logits[2].numpy()]
        damaged[2][0, 1, 2] = value
        coupled = couple(subject, [*logits[:2], tf.constant(damaged[2])], targets).numpy()
        subject.require(np.isnan(coupled[0, 1]), "an example whose outputs are not finite must get NaN")
        subject.require_close(coupled[1], whole[1], "an example that is not finite must not change others")


def _coupled(subject, logits, targets, round):
    """The coupled losses and their gradients."""
    return _gradient(lambda logits: couple(subject, logits, targets, round), logits)


def check_coupling_graph(subject: Subject) -> None:
    """A graph with unknown batch sizes is stateless and equals the eager loss and gradients, also with XLA."""
    coupled, values = functools.partial(_coupled, subject), (*draw_logits(3), tf.constant(4))
    outputs = [tf.TensorSpec([2, None, CLASSES], tf.float64)] * 3
    signature = [outputs, tf.TensorSpec([2, None], tf.int32), tf.TensorSpec([], tf.int32)]
    expected, slopes = coupled(*values)
    for jit in (False, True):
        graph = tf.function(coupled, input_signature=signature, jit_compile=jit, autograph=False)
        value, gradients = graph(*values)
        subject.require_close(value, expected, "a graph must return the eager loss", rtol=1e-12)
        for one, other in zip(gradients, slopes, strict=True):
            subject.require_close(one, other, "a graph must return the eager gradients", atol=1e-14)
    subject.require_graph(coupled, *values, rtol=1e-12, atol=1e-14)


def draw_scores() -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """`{form: (scores, targets)}` of 40 examples with 4 classes or 2 numbers, or of 5 maps of 4 x 4 pixels."""
    rng = np.random.default_rng(0)
    scores, labels = np.round(rng.standard_normal((40, 4)), 1), rng.integers(0, 4, 40)
    scores[np.arange(40), labels] += 0.7
    sets = rng.random((40, 4)) < 0.4
    of_sets = np.round(rng.standard_normal((40, 4)) + sets, 1)
    numbers = rng.standard_normal((40, 2))
    of_numbers = numbers + 0.5 * rng.standard_normal((40, 2))
    maps = rng.integers(0, 3, (5, 4, 4))
    of_maps = np.round(rng.standard_normal((5, 4, 4, 3)), 1) + np.eye(3)[maps]
    return {
        "label": (scores, labels.astype(np.int32)),
        "label_set": (of_sets, sets),
        "numbers": (of_numbers, numbers.astype(np.float32)),
        "label_map": (of_maps, maps.astype(np.int32)),
    }


def check_metric(subject: Subject) -> None:
    """A metric is a float64 scalar in a graph, and better for perfect scores in the direction of `BETTER`."""
    graph, better = tf.function(subject.module.metric, autograph=False), subject.constant("BETTER")
    subject.require(better in ("higher", "lower"), "BETTER must be 'higher' or 'lower'", better)
    for form in subject.constant("TARGETS"):
        scores, targets = draw_scores()[form]
        perfect = targets if form == "numbers" else 40.0 * (targets if form == "label_set" else np.eye(4)[targets]) - 20
        best, other = (graph(tf.constant(each, tf.float64), tf.constant(targets)) for each in (perfect, scores))
        subject.require(best.shape == () and best.dtype == "float64", "a metric must be a float64 scalar", best)
        is_better = best > other if better == "higher" else best < other
        subject.require(is_better, f"perfect scores must be {better} for {form}", (float(best), float(other)))


X = np.random.default_rng(0).random((12, 4, 4, 1)).astype(np.float32)
TARGETS = {
    "label": np.arange(12, dtype=np.int32) % 3,
    "numbers": np.random.default_rng(1).normal(5, 2, (12, 3)).astype(np.float32),
    "label_set": np.arange(12)[:, None] % np.array([2, 3, 4]) == 0,
    "several_targets": np.random.default_rng(1).normal(5, 2, (12, 3)),
    "label_map": np.arange(12 * 16, dtype=np.int32).reshape(12, 4, 4) % 3,
}


def class_count(subject: Subject) -> int:
    """Classes of the example targets of a task."""
    return subject.constant("CLASSES") or 3


def output_count(subject: Subject) -> int:
    """Outputs of a model for the example targets of a task."""
    return class_count(subject) - (subject.constant("OUTPUTS") == "thresholds")


def example_targets(subject: Subject) -> np.ndarray:
    """Targets of twelve examples in the form of a task."""
    targets = TARGETS[subject.constant("TARGETS")]
    return targets % class_count(subject) if targets.dtype == np.int32 else targets


def task_of(subject: Subject) -> Any:
    """Return the task on its example targets."""
    split = Split(X, example_targets(subject))
    recipe: Any = SimpleNamespace(task=Plugin(subject.name, dict(subject.options)))
    return build_task(recipe, Dataset(split, split, (picture.field(split.x),), class_count(subject), "test"))


def check_task_constants(subject: Subject) -> None:
    """Constants name losses and metrics for the form of the targets."""
    form = subject.constant("TARGETS")
    subject.require(form_of(example_targets(subject)) == form, "TARGETS must be a form of targets", form)
    losses = [subject.constant(key) for key in ("LOSS", "TEST_LOSS")]
    for kind, targets, names in (
        ("losses", subject.constant("LOSS_TARGETS") or form, losses),
        ("metrics", form, subject.constant("METRICS")),
    ):
        subject.require(names or kind == "metrics", f"{kind} of the task must have a name")
        for name in names:
            forms = registry.constant(kind, name, "TARGETS") or ("label",)
            subject.require(targets in forms, f"{name} must be one of the {kind} for {targets}", forms)


def check_task_targets(subject: Subject) -> None:
    """The loss of encoded targets is lower for right outputs, whose metric has its best value."""
    task, targets = task_of(subject), example_targets(subject)
    encoded = task.encode(targets)
    if encoded.dtype == np.int32:
        outputs = tf.constant(np.eye(3)[encoded])
    else:
        outputs = tf.constant(encoded if targets.dtype.kind == "f" else 2.0 * encoded - 1, tf.float64)
    subject.require(outputs.shape[-1] == output_count(subject), "OUTPUTS must match the encoded targets")
    loss = registry.find("losses", subject.constant("TEST_LOSS")).loss
    right, wrong = (
        tf.reduce_mean(loss(each, tf.constant(encoded), None, 0)) for each in (outputs, tf.roll(outputs, 1, 0))
    )
    subject.require(right < wrong, "TEST_LOSS must be lower for right outputs", (float(right), float(wrong)))
    if not subject.constant("METRICS"):
        return
    metric = registry.find("metrics", subject.constant("METRICS")[0])
    best = metric.metric(task.prediction_scores(outputs), tf.constant(targets))
    rule = "the metric of right outputs must be the best one"
    subject.require_close(float(best), 100 if metric.UNIT == "%" else 0, rule, atol=1e-6)


def task_predictions(subject: Subject) -> dict[str, np.ndarray]:
    """Predictions of a valid and an invalid example."""
    count, targets = output_count(subject), example_targets(subject)
    shape = (2, *(targets.shape[1:] if targets.ndim == 3 else ()), count)
    first = -3.0 if subject.constant("OUTPUTS") == "thresholds" else 3.0
    outputs = np.full(shape, [first, -4, -5][:count], np.float32)
    outputs[1] = np.nan
    predictions = task_of(subject).predict(tf.constant(outputs), tf.constant([True, False]))
    return {name: value.numpy() for name, value in predictions.items()}


def check_task_predictions(subject: Subject) -> None:
    """Predictions of valid examples are finite; invalid ones get class -1 and NaN."""
    task, predictions = task_of(subject), task_predictions(subject)
    missing = {task.output_name, task.prediction_name} - predictions.keys()
    subject.require(not missing, "predictions must have the outputs and the prediction", sorted(missing))
    for name, (valid, invalid) in predictions.items():
        subject.require(np.isfinite(valid).all(), f"{name} of a valid example must be finite", valid)
        is_marked = (invalid == -1).all() if name == task.index_name else np.isnan(invalid).all()
        subject.require(is_marked, f"{name} of an invalid example must be -1 or NaN", invalid)


def _loss_and_gradient(subject):
    outputs, targets = draw_examples(subject, (3, 4))
    shares = np.arange(1, CLASSES + 1) / 21
    return _gradient(lambda value: subject.call("loss", value, targets, PRESENT, 0, class_shares=shares), outputs)


RESULTS = {
    "losses": _loss_and_gradient,
    "couplings": lambda subject: _coupled(subject, *draw_logits(3), tf.constant(4)),
    "tasks": lambda subject: task_of(subject).encode(example_targets(subject)),
}
CHECKS = {
    "losses": (check_loss_values, check_loss_gradients, check_losses_of_clients, check_masking),
    "couplings": (check_coupling_values, check_coupling_of_clients, check_coupling_graph),
    "metrics": (check_metric,),
    "tasks": (check_task_constants, check_task_targets, check_task_predictions),
}
