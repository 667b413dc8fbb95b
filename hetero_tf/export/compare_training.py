"""Compares the steps of a file that trains on devices with the same steps in TensorFlow, by its own gradients."""

from pathlib import Path

import numpy as np
import tensorflow as tf

from hetero_tf.base import seeds
from hetero_tf.base.errors import InputError
from hetero_tf.export.formats import Converted
from hetero_tf.export.kinds import kind_of
from hetero_tf.export.local_step import NATIVE, UNIFORM, build_local_step
from hetero_tf.process.learning_process import LearningProcess

STEPS = 3
# Of the recipe's learning rate: at all of it, a deep network may amplify rounding from step to step.
CALMER = 0.1
# Of losses, gradient norms and statistics as a share of the largest one; of weights as a share of what training has
# changed.
TOLERANCES = {"loss": 1e-4, "gradient_norm": 1e-3, "weights": 1e-3, "statistics": 1e-4}
# Where TensorFlow itself differs between a traced step and one that is not, so many times that is allowed, and in any
# case at most this share: the steps of a deep residual network over ten images differ by 2e-3 to 7e-3.
OF_ROUNDING, MOST = 10.0, 0.1


def compare_training(model: Converted, inputs: dict[str, dict[str, tf.TensorSpec]], path: Path) -> dict[str, float]:
    """Takes `STEPS` steps of the largest size of a batch, and one of each other, with the file and with TensorFlow.

    Args:
        model: What the file is made of.
        inputs: For each signature what a step takes.
        path: The file.

    Returns:
        The largest differences of "loss" and "gradient_norm" over the steps and of "weights" after them, as shares.
        "weights" are compared for the optimizer sgd: others move entries without a gradient by its rounding errors.
        "statistics" are those of a batch before the steps, where the model has static batch normalization.

    Raises:
        InputError: One of them is too large.
    """
    from ai_edge_litert.interpreter import Interpreter

    process, interpreter = model.process, Interpreter(model_path=str(path))
    twin = process.family.predictor(model.level)
    for variable, value in zip(twin.variables, model.model.variables, strict=True):
        variable.assign(value)
    step = build_local_step(process, model.level, twin, NATIVE)
    before = _numpy(step.pull())
    statistics_gap = _statistics_gap(process, interpreter, step, inputs) if step.statistics else 0.0
    found = _steps(process, inputs, {name: interpreter.get_signature_runner(name) for name in inputs})
    found["weights"] = interpreter.get_signature_runner("pull")()
    # Step by step: tracing the steps would take longer than all of them.
    wanted = _steps(process, inputs, dict.fromkeys(inputs, step.train)) | {"weights": _numpy(step.pull())}
    gaps, limits = {**_gaps(process, found, wanted, before), "statistics": statistics_gap}, TOLERANCES
    if not _within(gaps, limits):
        step.push(**{name: tf.constant(value) for name, value in before.items()})
        traced = {name: tf.function(step.train, autograph=False) for name in inputs}
        again = _steps(process, inputs, traced) | {"weights": _numpy(step.pull())}
        own = _gaps(process, again, wanted, before)
        limits = TOLERANCES | {name: max(TOLERANCES[name], min(OF_ROUNDING * gap, MOST)) for name, gap in own.items()}
    for name, gap in gaps.items():
        if not gap <= limits[name]:
            raise InputError(
                f"{path} trains other than the recipe's clients do, so it was removed; after a few steps the largest "
                f"difference of {name} must be at most {limits[name]:.2g} of the largest value. Received: {gap:.2g}"
            )
    return gaps


def _statistics_gap(process, interpreter, step, inputs):
    """The largest difference of the file's statistics of a batch, as a share of the largest value of each."""
    label = next(iter(inputs.values()))["label"]
    specs = {name: tf.TensorSpec((label.shape[0], *spec.shape[1:])) for name, spec in step.statistics_inputs().items()}
    rng = seeds.rng(process.recipe.seed, "statistics compared")
    given = example_inputs(process, {**specs, "label": label}, rng)
    batch = {
        name: given[name][:, : spec.shape[1]] if name == "token_ids" else given[name] for name, spec in specs.items()
    }
    found, wanted = interpreter.get_signature_runner("statistics")(**batch), _numpy(step.moments(**batch))
    return max(_gap(found[name], value, np.abs(value).max()) for name, value in wanted.items())


def _within(gaps, limits):
    return all(gap <= limits[name] for name, gap in gaps.items())


def _numpy(values):
    return {name: value.numpy() for name, value in values.items()}


def _steps(process, inputs, calls):
    """What steps on the same examples tell: `{"loss": [steps], "gradient_norm": [steps]}`; calls: by signature."""
    told: list[dict] = []
    rng = seeds.rng(process.recipe.seed, "training compared")
    for signature, specs in inputs.items():
        call = calls[signature]
        # A file takes only the inputs that its steps read.
        taken = call.get_input_details() if hasattr(call, "get_input_details") else specs
        for _ in range(1 if told else STEPS):
            given = example_inputs(process, specs, rng)
            told.append(call(**{name: tf.constant(given[name]) if taken is specs else given[name] for name in taken}))
    return {name: np.array([float(one[name]) for one in told]) for name in told[0]}


def _gaps(process, found, wanted, before):
    """The largest differences of two ways to take the same steps, by name, as shares."""
    gaps = {name: _gap(found[name], wanted[name], np.abs(wanted[name]).max()) for name in ("loss", "gradient_norm")}
    if process.recipe.optimizer.method.name == "sgd":
        after = wanted["weights"]
        moved = max(np.abs(after[name] - before[name]).max() for name in after)
        gaps["weights"] = max(_gap(found["weights"][name], after[name], moved) for name in after)
    return gaps


def _gap(found, wanted, scale):
    return float(np.max(np.abs(found - wanted)) / max(scale, np.finfo(np.float32).tiny))


def example_inputs(process: LearningProcess, specs: dict, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Inputs of one step, of examples drawn from the training set; labels that none of them has are absent."""
    data, shape = process.dataset.train, specs["label"].shape
    rows = rng.integers(0, len(data.x), shape[0])
    if data.y is None:
        label = data.x[rows, : shape[1]].astype(np.int32)
        given = {"token_ids": np.where(rng.random(shape) < 0.15, np.int32(process.dataset.classes), label)}
    else:
        label, given = data.y[rows].astype(np.int32), kind_of(process).request(process, data.x[rows])
    draws = {
        name: (rng.integers(0, 2**16, spec.shape) / 2**16).astype(np.float32)
        for name, spec in specs.items()
        if name.startswith(UNIFORM)
    }
    present = np.isin(np.arange(process.dataset.classes), label)
    rate = np.float32(CALMER * process.recipe.optimizer.learning_rate)
    return {**given, **draws, "label": label, "present": present, "learning_rate": rate}
