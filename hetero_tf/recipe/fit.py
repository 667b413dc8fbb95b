"""Checks a recipe against its data before anything is built: kind, normalisation, shapes and memory."""

import math
from dataclasses import dataclass

from hetero_tf.base import registry
from hetero_tf.recipe.geometry import check_steps, walk
from hetero_tf.recipe.nodes import InvalidValue, raise_first
from hetero_tf.recipe.schema import Recipe

# TensorFlow kernels index the values of a tensor with 32-bit integers.
MOST_VALUES = 2**31 - 1
# Kinds of data with a longer name in messages.
_KIND_NAMES = {"arrays": "several arrays", "table": "rows of a table"}
# Forms of targets in messages.
_TARGET_NAMES = {
    "label": "one label for each example",
    "numbers": "numbers as targets",
    "label_set": "a set of labels for each example",
    "label_map": "a label for each pixel",
    "positions": "a word at each position",
    "several_targets": "a target for each output of a model",
}
# Global values, client values and gradients are in memory at once, in addition to the models.
COPIES = 3


@dataclass(frozen=True)
class DataFacts:
    """Properties of a data set that the checks need.

    Attributes:
        example: Shape of one input, without None.
        classes: Number of classes, words or targets.
        several: True if the training examples have more than one label.
        pixels: Smallest and largest pixel before normalisation, with 0 included in the range.
        train, test: Numbers of examples.
        words: Vocabulary size of sequences; None for other data.
        sorted_names: Names of the classes if they are sorted texts, not numbers; else None.
    """

    source: str
    example: tuple[int, ...]
    classes: int
    several: bool
    pixels: tuple[float, float]
    train: int
    test: int
    words: int | None = None
    sorted_names: tuple[str, ...] | None = None


def check_fit(recipe: Recipe, facts: DataFacts, memory: int) -> None:
    """Raise `InvalidValue` if the recipe cannot be trained on its data.

    Args:
        memory: Bytes available to this process.

    Raises:
        InvalidValue: The path is that of the key or layer.
    """
    raise_first(_unfit_classes(recipe, facts))
    raise_first(_unfit_normalisation(recipe.input, facts))
    raise_first(_unfit_layers(recipe, facts))
    raise_first(_exceeded_memory(recipe, facts, memory))


def check_kind(recipe: Recipe, kind: str, targets: str, source: str) -> None:
    """Raise `InvalidValue` if the input or the task expects data of another kind.

    Args:
        targets: Form of the targets, see `data.targets`.

    Raises:
        InvalidValue: The path is `input` or `task`.
    """
    accepted = registry.constant("inputs", recipe.input.name, "DATA")
    if accepted not in (None, kind):
        name = _KIND_NAMES.get(kind, kind)
        raise InvalidValue(
            ("input",),
            f"the input {recipe.input.name} needs {_KIND_NAMES.get(accepted, accepted)}, but the data are {name}, "
            f"{source}; choose an input and a model for {name}, or other `data`. Received: {recipe.input.name}",
        )

    if targets != recipe.targets:
        tasks = [name for name in registry.names("tasks") if registry.constant("tasks", name, "TARGETS") == targets]
        raise InvalidValue(
            ("task",),
            f"the task {recipe.task.name} needs {_TARGET_NAMES.get(recipe.targets, recipe.targets)}, but the data have "
            f"{_TARGET_NAMES.get(targets, targets)}, {source}; choose {' or '.join(tasks)}, or other `data`. "
            f"Received: {recipe.task.name}",
        )


def _unfit_classes(recipe, facts):
    task, needs = recipe.task.name, f"the task {recipe.task.name} needs"
    if not facts.several:
        text = "all training examples have the same label; use data with at least two"
        yield ("data",), f"{text}. Received: {facts.source}"
    classes = registry.constant("tasks", task, "CLASSES")
    if classes not in (None, facts.classes):
        advice = "choose classification, or ordinal if the classes have an order"
        data = f"{classes} classes, but the data have {facts.classes}, {facts.source}"
        yield ("task",), f"{needs} {data}; {advice}. Received: {task}"
    needs_order = registry.constant("tasks", task, "ORDERED") and facts.classes > 2
    if needs_order and facts.sorted_names and recipe.data.class_order is None:
        reason = "the order of the classes, which are sorted texts; list them from the lowest to the highest"
        order = f"`data.class_order`: [{', '.join(facts.sorted_names)}]"
        yield ("data",), f"{needs} {reason}: {order}. Received: {facts.source}"


def _unfit_normalisation(plugin, facts):
    """Yield violations of mean and std: one number, or one per channel, within the range of the pixels."""
    channels, (low, high) = facts.example[-1], facts.pixels
    limits = {"mean": (low, high), "std": (None, max(1.0, high, -low))}
    for name in registry.constant("inputs", plugin.name, "PER_CHANNEL") or ():
        values, (least, most) = plugin.options[name], limits.get(name, (None, math.inf))
        if len(values) not in (1, channels):
            each = f", or {channels}: one for each channel" if channels > 1 else " for images of one channel"
            yield ("input", name), f"must have one number{each}", values
        for index, value in enumerate(values):
            if value > most or (least is not None and value < least):
                limit = f"{'at most' if least is None else f'from {low:g} to'} {most:g}. Received: {value:g}"
                text = f"pixels before normalisation are from {low:g} to {high:g}, so this must be {limit}"
                yield ("input", name, index), text


def _unfit_layers(recipe, facts):
    """Yield violations of layers of words, and of a map that lacks the label of a pixel."""
    for spec in recipe.model.layers if facts.words is not None else ():
        rows = spec.args.get("words", facts.words)
        if rows < facts.words:
            text = f"must be at least {facts.words}, the size of the vocabulary of {facts.source}"
            yield (*spec.path, "words"), f"{text}; or choose a smaller vocabulary of the data", rows
    if recipe.targets == "label_map" and recipe.model.layers:
        width = recipe.levels.widths[recipe.levels.global_level]
        *_, last = walk(recipe.model, facts.example, width, facts.classes)
        size, expected = last.outputs[:-1], facts.example[:-1]
        if {None, ...}.isdisjoint(size) and size != expected:
            advice = "use `padding: same`, and undo pooling by UpSampling2D"
            text = f"the model must return a map of the size of the images, {expected}; {advice}. Received: {size}"
            yield last.spec.path, text


def _exceeded_memory(recipe, facts, memory):
    """Compare a lower bound of the memory of training and tests with `memory`; layers of unknown shape are left out."""
    value_bytes, levels = 8 if recipe.float_type == "float64" else 4, recipe.levels
    widths = dict.fromkeys(levels.widths[level] for level in (levels.global_level, *levels.names))
    outputs = recipe.num_outputs(facts.classes)
    walks = [list(check_steps(recipe, walk(recipe.model, facts.example, width, outputs))) for width in widths]
    training, tests, copies = 0, 0, COPIES * (levels.ensemble or 1)
    train_batch, test_batch = min(recipe.client.batch_size, facts.train), min(recipe.evaluate.batch_size, facts.test)
    for step, *narrow in zip(*walks):
        if {None, ...} & {step.weights, step.hidden, *step.inputs, *step.outputs}:
            continue
        outputs = math.prod(step.outputs)
        if max(train_batch, test_batch) * outputs > MOST_VALUES:
            text = f"outputs {outputs:,} values per example, so a batch has more than {MOST_VALUES:,}"
            advice = "use smaller sizes or a smaller client.batch_size and evaluate.batch_size"
            yield step.spec.path, f"{text}; {advice}", step.spec.args
        # There is one model per width; a model with exits needs more.
        stored = (copies + 1) * step.weights + sum(each.weights for each in narrow)
        training += stored + train_batch * (step.hidden + outputs)
        # A test keeps only the values of the current layer.
        tests = max(tests, step.weights + test_batch * (math.prod(step.inputs) + outputs))
    for key, batch, values in (("client", train_batch, training), ("evaluate", test_batch, tests)):
        if value_bytes * values > memory:
            needed = f"needs at least {_gib(value_bytes * values)} of memory with batches of {batch}"
            advice = f"use smaller layers or a smaller {key}.batch_size"
            yield ("model",), f"{needed}, but this machine has {_gib(memory)}; {advice}"


def _gib(size):
    return f"{size / 2**30:,.1f} GiB"
