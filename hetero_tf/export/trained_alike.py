"""Compares the steps of a file that trains on devices with the same steps in TensorFlow, by its own gradients."""

from pathlib import Path

import numpy as np
import tensorflow as tf

from hetero_tf.base import seeds
from hetero_tf.base.errors import BadInput
from hetero_tf.export.formats import Converted
from hetero_tf.export.local_step import NATIVE, UNIFORM, build_local_step
from hetero_tf.export.measured import pixels
from hetero_tf.process import LearningProcess

STEPS = 3
# Of the recipe's learning rate: at all of it, a deep network may amplify rounding from step to step.
CALMER = 0.1
# Of losses and gradient norms as a share of the largest one; of weights as a share of what training has changed.
TOLERANCES = {"loss": 1e-4, "gradient_norm": 1e-3, "weights": 1e-3}


def compare_training(model: Converted, inputs: dict[str, dict[str, tf.TensorSpec]], path: Path) -> dict[str, float]:
    """Takes `STEPS` steps of the largest size of a batch, and one of each other, with the file and with TensorFlow.

    Args:
        model: What the file is made of.
        inputs: For each signature what a step takes.
        path: The file.

    Returns:
        The largest differences of "loss" and "gradient_norm" over the steps and of "weights" after them, as shares.
        "weights" are compared for the optimizer sgd: others move entries without a gradient by its rounding errors.

    Raises:
        BadInput: One of them is too large.
    """
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(model_path=str(path))
    twin = model.process.family.predictor(model.level)
    for variable, value in zip(twin.variables, model.model.variables, strict=True):
        variable.assign(value)
    step = build_local_step(model.process, model.level, twin, NATIVE)
    before = {name: step.returned[place].numpy() for name, place in step.names.items()}
    found, wanted = _steps(model.process, step.train, inputs, interpreter)
    gaps = {name: _gap(found[name], wanted[name], np.abs(wanted[name]).max()) for name in found}
    if model.process.recipe.optimizer.method.name == "sgd":
        pulled, after = (
            interpreter.get_signature_runner("pull")(),
            {name: value.numpy() for name, value in step.pull().items()},
        )
        moved = max(np.abs(after[name] - before[name]).max() for name in after)
        gaps["weights"] = max(_gap(pulled[name], after[name], moved) for name in after)
    for name, gap in gaps.items():
        if not gap <= TOLERANCES[name]:
            raise BadInput(
                f"{path} trains other than the recipe's clients do, so it was removed; after a few steps the largest "
                f"difference of {name} must be at most {TOLERANCES[name]:g} of the largest value. Received: {gap:.2g}"
            )
    return gaps


def _steps(process, native, inputs, interpreter):
    """What the file and TensorFlow say of the same steps: `{"loss": [steps], "gradient_norm": [steps]}` of each."""
    found: list[dict] = []
    wanted: list[dict] = []
    rng = seeds.rng(process.recipe.seed, "training compared")
    for signature, specs in inputs.items():
        run, compiled = interpreter.get_signature_runner(signature), tf.function(native, autograph=False)
        for _ in range(1 if found else STEPS):
            given = _example_inputs(process, specs, rng)
            found.append(run(**{name: given[name] for name in run.get_input_details()}))
            wanted.append(compiled(**{name: tf.constant(value) for name, value in given.items()}))
    return ({name: np.array([float(one[name]) for one in each]) for name in wanted[0]} for each in (found, wanted))


def _gap(found, wanted, scale):
    return float(np.max(np.abs(found - wanted)) / max(scale, np.finfo(np.float32).tiny))


def _example_inputs(process: LearningProcess, specs: dict, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Inputs of one step, of examples drawn from the training set; labels that none of them has are absent."""
    data, shape = process.dataset.train, specs["label"].shape
    rows = rng.integers(0, len(data.x), shape[0])
    if data.y is None:
        label = data.x[rows, : shape[1]].astype(np.int32)
        given = {"token_ids": np.where(rng.random(shape) < 0.15, np.int32(process.dataset.classes), label)}
    else:
        label, given = data.y[rows].astype(np.int32), {"image": pixels(data.x[rows])}
    draws = {
        name: (rng.integers(0, 2**16, spec.shape) / 2**16).astype(np.float32)
        for name, spec in specs.items()
        if name.startswith(UNIFORM)
    }
    present = np.isin(np.arange(process.dataset.classes), label)
    rate = np.float32(CALMER * process.recipe.optimizer.learning_rate)
    return {**given, **draws, "label": label, "present": present, "learning_rate": rate}
