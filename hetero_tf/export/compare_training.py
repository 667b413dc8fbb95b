"""Compares the training steps of a LiteRT file with the same steps in TensorFlow, which uses its native gradients."""

from pathlib import Path

import numpy as np
import tensorflow as tf

from hetero_tf.base import seeds
from hetero_tf.base.errors import InputError
from hetero_tf.data.partitions.partition import ClientExamples, label_mask
from hetero_tf.export import task_of
from hetero_tf.export.formats import ConversionSource
from hetero_tf.export.local_step import NATIVE, UNIFORM, build_local_step
from hetero_tf.export.task import ExportTask

STEPS = 3
# Share of the recipe's learning rate: at the full rate, a deep network may amplify rounding from step to step.
REDUCED_RATE = 0.1
# Allowed differences. Losses, gradient norms and statistics: as a share of the largest value; weights: as a share of
# the largest change by training.
TOLERANCES = {"loss": 1e-4, "gradient_norm": 1e-3, "weights": 1e-3, "statistics": 1e-4}
# A traced and an eager step of TensorFlow may differ as well. This multiple of their difference is allowed, up to a
# maximum share: the steps of a deep residual network over ten images differ by 2e-3 to 7e-3.
ROUNDING_FACTOR, MAX_SHARE = 10.0, 0.1


def compare_training(
    source: ConversionSource, inputs: dict[str, dict[str, tf.TensorSpec]], path: Path
) -> dict[str, float]:
    """Run the same training steps with the file and with TensorFlow, and compare the results.

    The largest batch size gets `STEPS` steps, every other size gets one.

    Args:
        source: Source of the file.
        inputs: Input specs of a step, for each signature.
        path: The file.

    Returns:
        The largest differences, as shares: of "loss" and "gradient_norm" over the steps, and of "weights" after them.
        "weights" are compared for the optimizer sgd only: others move entries without a gradient by rounding errors.
        "statistics" are those of one batch before the steps, if the model has static batch normalization.

    Raises:
        InputError: A difference is too large.
    """
    from ai_edge_litert.interpreter import Interpreter

    process, interpreter = source.task.process, Interpreter(model_path=str(path))
    reference_model = process.family.predictor(source.level)
    task = task_of(process, reference_model)
    for variable, value in zip(reference_model.variables, source.task.model.variables, strict=True):
        variable.assign(value)
    step = build_local_step(task, source.level, NATIVE)
    initial = _numpy(step.pull())
    statistics_gap = _statistics_gap(task, interpreter, step, inputs) if step.statistics else 0.0
    actual = _run_steps(task, inputs, {name: interpreter.get_signature_runner(name) for name in inputs})
    actual["weights"] = interpreter.get_signature_runner("pull")()
    # Eager steps: tracing them would take longer than running them.
    expected = _run_steps(task, inputs, dict.fromkeys(inputs, step.train)) | {"weights": _numpy(step.pull())}
    gaps, limits = {**_gaps(process, actual, expected, initial), "statistics": statistics_gap}, TOLERANCES
    if not _within(gaps, limits):
        step.push(**{name: tf.constant(value) for name, value in initial.items()})
        traced = {name: tf.function(step.train, autograph=False) for name in inputs}
        traced_results = _run_steps(task, inputs, traced) | {"weights": _numpy(step.pull())}
        rounding_gaps = _gaps(process, traced_results, expected, initial)
        limits = TOLERANCES | {
            name: max(TOLERANCES[name], min(ROUNDING_FACTOR * gap, MAX_SHARE)) for name, gap in rounding_gaps.items()
        }
    for name, gap in gaps.items():
        if not gap <= limits[name]:
            raise InputError(
                f"{path}: training steps differ from those of the recipe's clients, so the file was removed; the "
                f"difference of {name} must be at most {limits[name]:.2g} of the largest value. Received: {gap:.2g}"
            )
    return gaps


def _statistics_gap(task, interpreter, step, inputs):
    """Return the largest difference of batch statistics, as a share of the largest value of each."""
    label = next(iter(inputs.values()))["label"]
    specs = {name: tf.TensorSpec((label.shape[0], *spec.shape[1:])) for name, spec in step.statistics_inputs().items()}
    rng = seeds.rng(task.process.recipe.seed, "statistics compared")
    example = example_inputs(task, {**specs, "label": label}, rng)
    batch = {
        name: example[name][:, : spec.shape[1]] if name == "token_ids" else example[name]
        for name, spec in specs.items()
    }
    actual, expected = interpreter.get_signature_runner("statistics")(**batch), _numpy(step.moments(**batch))
    return max(_gap(actual[name], value, np.abs(value).max()) for name, value in expected.items())


def _within(gaps, limits):
    return all(gap <= limits[name] for name, gap in gaps.items())


def _numpy(values):
    return {name: value.numpy() for name, value in values.items()}


def _run_steps(task, inputs, calls):
    """Run the steps on the same examples; return `{"loss": [steps], "gradient_norm": [steps]}`."""
    metrics: list[dict] = []
    rng = seeds.rng(task.process.recipe.seed, "training compared")
    for signature, specs in inputs.items():
        call = calls[signature]
        # The converter drops inputs that the steps do not read.
        names = call.get_input_details() if hasattr(call, "get_input_details") else specs
        for _ in range(1 if metrics else STEPS):
            example = example_inputs(task, specs, rng)
            metrics.append(
                call(**{name: tf.constant(example[name]) if names is specs else example[name] for name in names})
            )
    return {name: np.array([float(step_metrics[name]) for step_metrics in metrics]) for name in metrics[0]}


def _gaps(process, actual, expected, initial):
    """Return the largest differences between two runs of the same steps, as shares, by name."""
    gaps = {
        name: _gap(actual[name], expected[name], np.abs(expected[name]).max()) for name in ("loss", "gradient_norm")
    }
    if process.recipe.optimizer.method.name == "sgd":
        after = expected["weights"]
        largest_change = max(np.abs(after[name] - initial[name]).max() for name in after)
        gaps["weights"] = max(_gap(actual["weights"][name], after[name], largest_change) for name in after)
    return gaps


def _gap(actual, expected, scale):
    return float(np.max(np.abs(actual - expected)) / max(scale, np.finfo(np.float32).tiny))


def example_inputs(task: ExportTask, specs: dict, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Return inputs of one step with random training examples; classes without an example are absent."""
    process, shape = task.process, specs["label"].shape
    data, targets = process.dataset.train, process.setup.examples.y
    rows = rng.integers(0, len(data.x), shape[0])
    if targets is None:
        label = data.x[rows, : shape[1]].astype(np.int32)
        inputs = {"token_ids": np.where(rng.random(shape) < 0.15, np.int32(process.dataset.classes), label)}
    else:
        label = tf.gather(targets, rows).numpy()
        inputs = task.request(data.x[rows], task.portable_signature)
    draws = {
        name: (rng.integers(0, 2**16, spec.shape) / 2**16).astype(np.float32)
        for name, spec in specs.items()
        if name.startswith(UNIFORM)
    }
    mask = label_mask(data.labels, ClientExamples.from_lists([rows.astype(np.int32)]), process.dataset.classes)
    (present,) = process.evaluator.measures.task.present_outputs(mask)
    rate = np.float32(REDUCED_RATE * process.recipe.optimizer.learning_rate)
    return {**inputs, **draws, "label": label, "present": present, "learning_rate": rate}
