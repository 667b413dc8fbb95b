"""LiteRT that trains on the device: signatures `train`, `infer`, `pull` and `push`; see `hetero_tf.devices.on_device`.

A model with static batch normalization also has `statistics`, which measures the moments of a batch.

Each batch size of the recipe's clients has a separate `train` signature, so batches are not padded and the moments of a
short last batch stay exact.
"""

import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import tensorflow as tf

from hetero_tf import export
from hetero_tf.base import registry, seeds
from hetero_tf.base.errors import InputError
from hetero_tf.data.inputs import batch_shapes
from hetero_tf.data.partitions.partition import ClientExamples, label_mask
from hetero_tf.data.targets import SEVERAL_TARGETS
from hetero_tf.export.formats import ConversionSource, litert
from hetero_tf.export.local_step import UNIFORM, LocalStep, build_local_step
from hetero_tf.export.saved_model import writing
from hetero_tf.export.task import ExportTask
from hetero_tf.layers.lstm import Recurrent
from hetero_tf.models.variables import all_layers
from hetero_tf.run.learning_process import LearningProcess

FILE, NEEDS, EXTRA, EXACT, TRAINS = "model_train.tflite", ("ai_edge_litert",), "litert", True, True
# Each batch size adds a graph to the file.
MAX_SIZES = 16
# Share of the recipe's learning rate: at the full rate, a deep network may amplify rounding from step to step.
REDUCED_RATE = 0.1
# Allowed differences. Losses and gradient norms: as a share of the largest value; weights: as a share of
# the largest change by training. The steps of a deep residual network over ten images differ by up to 7e-3.
TOLERANCES = {"loss": 1e-3, "gradient_norm": 2e-2, "weights": 2e-2}
# Fewer examples have no variance in batch normalization.
SMALLEST_BATCH = 2


def convert(source: ConversionSource, path: Path) -> dict:
    """Write the file, and compare its training steps with those of TensorFlow.

    Returns:
        {"training": settings for `hetero_tf.devices.on_device.LiteRTTrainer`}.
    """
    process = source.task.process
    check_trainable(process, source.level)
    step, sizes = build_local_step(source.task, source.level, is_portable=True), _sizes(process)
    inputs = {name: step.inputs(*size) for name, size in sizes.items()}
    rng = seeds.rng(process.recipe.seed, "training tried")
    with tempfile.TemporaryDirectory(dir=path.parent) as scratch:
        _save(source, step, inputs, Path(scratch))
        measuring = ["statistics"] if step.statistics else []
        converter = litert.converter(Path(scratch), [*inputs, *measuring, "infer", "pull", "push"])
        converter.experimental_enable_resource_variables = True
        steps = {name: example_inputs(source.task, specs, rng) for name, specs in inputs.items()}
        litert.write(converter.convert(), path, steps)
    differences = compare_training(source, inputs, path)
    return {"training": {**_settings(source, step, sizes), "largest_differences": differences}}


def check_trainable(process: LearningProcess, level: str) -> None:
    """Reject recipes that a device cannot train: it takes plain local steps of a whole sub-model, on three inputs."""
    recipe, family, algorithm = process.recipe, process.family, process.setup.algorithm
    stages = family.stages.get(level, ())
    (stage, *more) = stages or (None,)
    reads_logits = registry.find("couplings", recipe.client.coupling.name).READS_LOGITS
    recurrent = [layer for layer in all_layers(family.predictor(level)) if isinstance(layer, Recurrent)]
    route, units = family.full_route(level)
    trains_all = stage is not None and stage.routes == (route,) and stage.trained >= units
    unsupported = {
        f"levels.mix (without level {level})": stage is None,
        f"client.sampling: {recipe.client.sampling}": recipe.client.sampling != "shuffled",
        f"client.stages: {recipe.client.stages.name}": bool(more) or family.drawn or not trains_all,
        f"client.coupling: {recipe.client.coupling.name}": reads_logits,
        "client.correction": algorithm.correct is not None,
        "client.update": algorithm.update is not None,
        **process.unusual_local_steps(),
        "data.relative": getattr(process.dataset.codec, "base_channels", None) is not None,
        f"model.layers: {type(recurrent[0]).__name__ if recurrent else None}": bool(recurrent),
        f"task: {recipe.task.name}": recipe.targets == SEVERAL_TARGETS,
        f"input: {recipe.input.name}": not registry.constant("inputs", recipe.input.name, "ON_DEVICE"),
    }
    for key, is_used in unsupported.items():
        if is_used:
            raise InputError(
                "--format litert_train: a device can only train the whole sub-model of its level, without recurrent "
                "layers, with plain local steps in float32, on images, rows of a table, series or masked text. "
                f"Received: {key}"
            )


def _sizes(process: LearningProcess) -> dict[str, tuple[int, int]]:
    """Return `{signature: (examples, positions)}` of all batches of the recipe's clients, the largest first.

    If all batches have the same number of examples, one with half of them is added: `devices.measured_fleet` separates
    the constant time of a step from the time of an example by two sizes.
    """
    first, *others = batch_shapes(
        process.input, process.dataset.train.x, process.partition.train.sizes, process.recipe.client.batch_size
    )
    if len(others) >= MAX_SIZES:
        raise InputError(
            f"--format litert_train: the recipe's clients read batches of {len(others) + 1} sizes, and a file supports "
            f"at most {MAX_SIZES}; choose a client.batch_size that leaves fewer sizes of the last batch. "
            f"Received: client.batch_size={process.recipe.client.batch_size}"
        )
    if {examples for examples, _ in others} <= {first[0]}:
        others.append((first[0] // 2 if first[0] >= 2 * SMALLEST_BATCH else 2 * first[0], first[1]))
    return {
        "train": first,
        **{f"train_{examples}x{positions}": (examples, positions) for examples, positions in others},
    }


def _save(source: ConversionSource, step: LocalStep, inputs: dict, folder: Path) -> None:
    def traced(function, specs):
        named = {name: tf.TensorSpec(spec.shape, spec.dtype, name=name) for name, spec in specs.items()}
        return tf.function(function, autograph=False).get_concrete_function(**named)

    infer = tf.function(source.function, input_signature=source.specs, autograph=False)
    signatures = {name: traced(step.train, specs) for name, specs in inputs.items()}
    signatures["infer"] = infer.get_concrete_function()
    if step.statistics:
        signatures["statistics"] = traced(step.moments, step.statistics_inputs())
    signatures["pull"] = traced(step.pull, {})
    signatures["push"] = traced(step.push, step.pull())
    module = tf.Module()
    module.variables_of_model = [variable.value for variable in source.task.model.variables]
    module.slots, module.count = step.slots, step.count
    # The graphs contain the gradients, so gradient functions are not needed.
    options = tf.saved_model.SaveOptions(experimental_custom_gradients=False)
    with writing(folder):
        tf.saved_model.save(module, str(folder), signatures=signatures, options=options)


def _settings(source: ConversionSource, step: LocalStep, sizes: dict) -> dict:
    process, recipe = source.task.process, source.task.process.recipe
    axes = dict(zip(process.paths, process.setup.layout.cut.axes, strict=True))
    of_labels = {path: [index for index, axis in enumerate(each) if axis and axis.label] for path, each in axes.items()}
    defaults = {name: option.default for name, option in registry.options("inputs", recipe.input.name).items()}
    return {
        "variables": step.names,
        "statistics": step.statistic_names,
        "statistics_batch": recipe.evaluate.statistics_batch,
        "batches": {name: list(size) for name, size in sizes.items()},
        "batch_size": recipe.client.batch_size,
        "epochs": recipe.client.epochs_of(source.level),
        "learning_rate": recipe.optimizer.learning_rate,
        "train_flops": process.client_costs[recipe.levels.names.index(source.level)].train_flops[0],
        "classes": process.family.classes,
        "targets": _targets(process),
        "label_axes": {path: of_labels[path] for path in step.returned if of_labels[path]},
        "shuffle": process.input.shuffle,
        "input": {**defaults, **recipe.input.options, "name": recipe.input.name},
    }


def _targets(process):
    """Return the form of the targets, and for all but text how `Task.encode` changes them."""
    encoded, scaling = process.setup.examples.y, process.evaluator.measures.task.scaling
    if encoded is None:
        return {"form": process.recipe.targets}
    mean_and_std = None if scaling is None else [np.asarray(values).tolist() for values in scaling]
    form = registry.constant("tasks", process.recipe.task.name, "OUTPUTS") or process.recipe.targets
    return {"form": form, "dtype": encoded.dtype.name, "scaling": mean_and_std}


def compare_training(
    source: ConversionSource, inputs: dict[str, dict[str, tf.TensorSpec]], path: Path
) -> dict[str, float]:
    """Run the same training steps with the file and with TensorFlow's native gradients, and compare the results.

    Each batch size gets one step.

    Returns:
        The largest differences, as shares: of "loss" and "gradient_norm" over the steps, and of "weights" after them.
        "weights" are compared for the optimizer sgd only: others move entries without a gradient by rounding errors.
    """
    from ai_edge_litert.interpreter import Interpreter

    process, interpreter = source.task.process, Interpreter(model_path=str(path))
    reference_model = process.family.predictor(source.level)
    task = export.task_of(process, reference_model)
    for variable, value in zip(reference_model.variables, source.task.model.variables, strict=True):
        variable.assign(value)
    step = build_local_step(task, source.level, is_portable=False)
    initial = _numpy(step.pull())
    rng, actual, expected = seeds.rng(process.recipe.seed, "training compared"), list[dict](), list[dict]()
    for signature, specs in inputs.items():
        example, run = example_inputs(task, specs, rng), interpreter.get_signature_runner(signature)
        # The converter drops inputs that the steps do not read.
        actual.append(run(**{name: example[name] for name in run.get_input_details()}))
        # An eager step: tracing it would take longer than running it.
        expected.append(_numpy(step.train(**{name: tf.constant(example[name]) for name in specs})))
    gaps = {}
    for name in expected[0]:
        values, references = (np.array([float(each[name]) for each in steps]) for steps in (actual, expected))
        gaps[name] = _gap(values, references, np.abs(references).max())
    if process.recipe.optimizer.method.name == "sgd":
        trained, after = interpreter.get_signature_runner("pull")(), _numpy(step.pull())
        largest_change = max(np.abs(after[name] - initial[name]).max() for name in after)
        gaps["weights"] = max(_gap(trained[name], after[name], largest_change) for name in after)
    for name, gap in gaps.items():
        if not gap <= TOLERANCES[name]:
            raise InputError(
                f"{path}: training steps differ from those of the recipe's clients, so the file was removed; the "
                f"difference of {name} must be at most {TOLERANCES[name]:g} of the largest value. Received: {gap:.2g}"
            )
    return gaps


def _numpy(values):
    return {name: value.numpy() for name, value in values.items()}


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


def load_runtime(path: Path) -> Callable[..., dict[str, np.ndarray]]:
    """Return `(**inputs) -> outputs` of the signature `infer` of the file in the LiteRT interpreter."""
    return litert.load_runtime(path, "infer")
