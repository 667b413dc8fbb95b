"""LiteRT that trains on the device: signatures `train`, `infer`, `pull` and `push`; see `hetero_tf.devices.on_device`.

Where the model has static batch normalization, `statistics` measures a batch for it.

Each size of a batch that the recipe's clients read has a `train` of its own, so that no batch is padded: the moments of
a short last one stay exact.
"""

import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import tensorflow as tf

from hetero_tf.base import registry, seeds
from hetero_tf.base.errors import InputError
from hetero_tf.export.compare_training import compare_training, example_inputs
from hetero_tf.export.formats import Converted, litert
from hetero_tf.export.local_step import PORTABLE, LocalStep, build_local_step
from hetero_tf.export.saved_model import writing
from hetero_tf.export.trainable import check_trainable
from hetero_tf.inputs.examples import batch_shapes
from hetero_tf.process.learning_process import LearningProcess

FILE, NEEDS, EXTRA, EXACT = "model_train.tflite", ("ai_edge_litert",), "litert", True
# Each size of a batch is a graph of its own in the file.
MOST_SIZES = 16


def convert(model: Converted, path: Path) -> dict:
    """Writes the file, and compares its steps with TensorFlow's.

    Returns:
        {"training": what `hetero_tf.devices.on_device.Client` must know}.

    Raises:
        InputError: A device cannot train what the recipe's clients train, or the file trains other than they do.
    """
    process = model.process
    check_trainable(process, model.level)
    step, sizes = build_local_step(process, model.level, model.model, PORTABLE), _sizes(process)
    inputs = {name: step.inputs(*size) for name, size in sizes.items()}
    rng = seeds.rng(process.recipe.seed, "training tried")
    with tempfile.TemporaryDirectory(dir=path.parent) as scratch:
        _save(model, step, inputs, Path(scratch))
        measuring = ["statistics"] if step.statistics else []
        converter = litert.converter(Path(scratch), [*inputs, *measuring, "infer", "pull", "push"])
        converter.experimental_enable_resource_variables = True
        steps = {name: example_inputs(process, specs, rng) for name, specs in inputs.items()}
        litert.write(converter.convert(), path, steps)
    differences = compare_training(model, inputs, path)
    return {"training": {**_settings(model, step, sizes), "largest_differences": differences}}


def _sizes(process: LearningProcess) -> dict[str, tuple[int, int]]:
    """`{signature: (examples, positions)}` of every batch that a client of the recipe reads, the largest first."""
    first, *others = batch_shapes(process.recipe, process.dataset, process.partition, process.input)
    if len(others) >= MOST_SIZES:
        raise InputError(
            f"--format litert_train: the recipe's clients read batches of {len(others) + 1} sizes, and a file holds at "
            f"most {MOST_SIZES}; choose client.batch_size so that fewer rests are left. "
            f"Received: client.batch_size={process.recipe.client.batch_size}"
        )
    return {
        "train": first,
        **{f"train_{examples}x{positions}": (examples, positions) for examples, positions in others},
    }


def _save(model: Converted, step: LocalStep, inputs: dict, folder: Path) -> None:
    """Writes the SavedModel that the converter reads."""

    def traced(function, specs):
        named = {name: tf.TensorSpec(spec.shape, spec.dtype, name=name) for name, spec in specs.items()}
        return tf.function(function, autograph=False).get_concrete_function(**named)

    infer = tf.function(model.function, input_signature=model.specs, autograph=False)
    signatures = {name: traced(step.train, specs) for name, specs in inputs.items()}
    signatures["infer"] = infer.get_concrete_function()
    if step.statistics:
        signatures["statistics"] = traced(step.moments, step.statistics_inputs())
    signatures["pull"] = traced(step.pull, {})
    signatures["push"] = traced(step.push, step.pull())
    module = tf.Module()
    module.variables_of_model = [variable.value for variable in model.model.variables]
    module.slots, module.count = step.slots, step.count
    # The gradients are in the graphs already.
    options = tf.saved_model.SaveOptions(experimental_custom_gradients=False)
    with writing(folder):
        tf.saved_model.save(module, str(folder), signatures=signatures, options=options)


def _settings(model: Converted, step: LocalStep, sizes: dict) -> dict:
    """What a device must know, ready for JSON."""
    process, recipe = model.process, model.process.recipe
    defaults = {name: option.default for name, option in registry.options("inputs", recipe.input.name).items()}
    return {
        "variables": step.names,
        "statistics": step.statistic_names,
        "statistics_batch": recipe.evaluate.statistics_batch,
        "batches": {name: list(size) for name, size in sizes.items()},
        "batch_size": recipe.client.batch_size,
        "epochs": recipe.client.epochs_of(model.level),
        "learning_rate": recipe.optimizer.learning_rate,
        "classes": process.dataset.classes,
        "label_axes": _label_axes(process, step),
        "shuffle": process.input.shuffle,
        "input": {**defaults, **recipe.input.options, "name": recipe.input.name},
    }


def _label_axes(process, step):
    """`{path: dimensions}` of the values that the client returns, where they have label axes."""
    axes = dict(zip(process.paths, process.parts.placement.cut.axes, strict=True))
    found = {path: [place for place, axis in enumerate(axes[path]) if axis and axis.label] for path in step.returned}
    return {path: places for path, places in found.items() if places}


def answering(path: Path) -> Callable[..., dict[str, np.ndarray]]:
    """Returns `(**inputs) -> outputs` of the signature `infer` of the file, in LiteRT's own interpreter."""
    return litert.answering(path, "infer")
