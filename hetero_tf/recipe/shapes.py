"""Checks without TensorFlow that the layers of a model are compatible at every level."""

from collections.abc import Iterable, Iterator

from hetero_tf.base import registry
from hetero_tf.recipe import layer_table
from hetero_tf.recipe.geometry import FORMS, UNKNOWN, Shape, ShapeStep, geometry_of, size_at, walk
from hetero_tf.recipe.model import Classes, Width
from hetero_tf.recipe.nodes import InvalidValue, format_value
from hetero_tf.recipe.schema import Recipe

_RANKS = {3: "a feature map", 2: "a sequence", 1: "a vector"}
# Axes of the outputs by the form of the targets; 1 for others.
_OUTPUT_RANKS = {"positions": 2, "label_map": 3}
MOST_WEIGHTS = 2**31


def check_shapes(recipe: Recipe) -> None:
    """Raise `InvalidValue` if a layer cannot follow the one before it, as far as this is known without the data."""
    specs = recipe.model.layers
    if all(spec.exit is not None for spec in specs):
        reason = "every layer is inside an Exit; add layers outside, from which exits branch off"
        raise InvalidValue(
            ("model", "layers"), reason if specs else "the model has no layers; a Repeat with times: 0 adds none"
        )
    form = _input_constant(recipe, "FORM")
    text = recipe.targets == "positions"
    _check_embedding(specs, form == "words", text)
    example: Shape = UNKNOWN if form is None else (None,) * len(FORMS[form])
    branches: dict[int | None, list[ShapeStep]] = {}
    for step, widest in zip(check_steps(recipe, walk(recipe.model, example)), walk(recipe.model, example, width=1.0)):
        branches.setdefault(step.spec.exit, []).append(step)
        if (widest.weights or 0) > MOST_WEIGHTS:
            raise InvalidValue(
                step.spec.path,
                f"{widest.weights} weights in one layer; at most {MOST_WEIGHTS} are allowed. Received: "
                f"{format_value(step.outputs[-1])} after {format_value(step.inputs[-1])}",
            )
    for exit in sorted(branches, key=lambda exit: exit is None):
        _check_logits(branches[exit], form, recipe.targets)


def _input_constant(recipe, name):
    return registry.constant("inputs", recipe.input.name, name)


def check_steps(recipe: Recipe, steps: Iterable[ShapeStep]) -> Iterator[ShapeStep]:
    """Yield the steps of `geometry.walk`; raise `InvalidValue` at a layer that cannot process its input."""
    form, targets, hidden = (_input_constant(recipe, name) for name in ("FORM", "TARGETS", "HIDDEN"))
    for step in steps:
        _check_form(step, form, targets == "positions")
        if hidden and step.geometry.attends:
            raise InvalidValue(
                step.spec.path,
                f"{step.spec.kind} reads several positions, so with the input {recipe.input.name} it would see "
                f"{hidden}; use LSTM or GRU",
            )
        _check_flatten(step)
        _check_groups(step, recipe.levels)
        _check_dilation(step.spec)
        _check_pixels(step)
        yield step


def _check_form(step, form, text):
    """Check that a layer accepts the form of its input, and that a text model keeps all positions."""
    kind = step.spec.kind
    rank, required = len(step.inputs), len(FORMS.get(step.geometry.inputs, step.inputs))
    if ... not in step.inputs and rank != required:
        reason = f"its input is {_RANKS[rank]}; add PatchEmbedding before it"
        if text:
            reason = "a text model returns logits for every position; remove it"
        elif form == "vector":
            reason = "a table row is a vector; use Dense"
        elif form == "tokens":
            advice = "use Conv1D" if rank == 2 else "move it before the pooling, or set `return_sequences: true`"
            reason = f"its input is {_RANKS[rank]}; {advice}"
        elif required == 3:
            before = "PatchEmbedding" if rank == 2 else "the pooling or Flatten"
            reason = f"its input is {_RANKS[rank]}; move it before {before}"
        raise InvalidValue(step.spec.path, f"{kind} needs {_RANKS[required]}, but {reason}")
    if text and len(step.outputs) == 1:
        is_recurrent = "return_sequences" in layer_table.options(kind)
        advice = "set `return_sequences: true`" if is_recurrent else "remove it"
        raise InvalidValue(
            step.spec.path,
            f"{kind} reduces all positions to one vector, but a text model returns logits for every position; {advice}",
        )


def _check_flatten(step):
    if step.spec.kind == "Flatten" and len(step.inputs) > 1 and isinstance(step.inputs[-1], Width):
        raise InvalidValue(
            step.spec.path,
            f"Flatten of {_RANKS[len(step.inputs)]} with `!w` channels mixes positions and channels, so the weights of "
            f"narrow levels would not match; use GlobalAveragePooling{len(step.inputs) - 1}D",
        )


def _check_groups(step, levels):
    """Check that group normalisation can divide the channels of every level of the mix."""
    for level in levels.names:
        for size in (*step.inputs[-1:] * step.geometry.groups_inputs, step.outputs[-1]):
            count = size_at(size, levels.widths[level])
            if count is not None and step.groups and count % step.groups:
                raise InvalidValue(
                    step.spec.path,
                    f"{step.groups} groups do not divide the {count} channel{'s' * (count > 1)} of level {level!r} "
                    f"(width {levels.widths[level]:g}); choose channels that are a multiple of "
                    f"{step.groups} at every level, or another norm. Received: {format_value(size)}",
                )


def _check_dilation(spec):
    """Reject convolutions with both strides and dilation, which Keras does not support."""
    both = {name: spec.args.get(name, 1) for name in ("strides", "dilation_rate")}
    if all(value not in (1, (1, 1)) for value in both.values()):
        raise InvalidValue(
            spec.path,
            f"{spec.kind} cannot combine strides above 1 with dilation_rate above 1. Received: {format_value(both)}",
        )


def _check_pixels(step):
    """Check that a layer can divide the pixels of its input into patches, and that some output remains."""
    spec, lengths = step.spec, step.inputs[:-1]
    pixels, tile = " x ".join(map(str, lengths)), spec.args.get(step.geometry.tile)
    unit = "positions" if len(lengths) == 1 else "pixels"
    if tile and any(isinstance(length, int) and length % tile for length in lengths):
        raise InvalidValue(
            (*spec.path, step.geometry.tile), f"must divide the {pixels} pixels of the input. Received: {tile}"
        )
    if any(isinstance(size, int) and size < 1 for size in step.outputs):
        raise InvalidValue(
            spec.path,
            f"{spec.kind} has no output for an input of {pixels} {unit}; use a smaller window, `padding: same`, less "
            f"cropping, or less pooling before it. Received: {format_value(spec.args)}",
        )


def _check_logits(branch, form, targets):
    """Check that a branch ends with one output per label: for every example, position of a text or pixel."""
    last, name = branch[-1], "the model" if branch[-1].spec.exit is None else "an Exit"
    rank = len(last.outputs)
    if ... in last.outputs or isinstance(last.outputs[-1], Classes) and rank == _OUTPUT_RANKS.get(targets, 1):
        return
    if not isinstance(last.outputs[-1], Classes):
        # Layers after the last one with a size, such as an activation, keep its channels.
        last = next((step for step in reversed(branch) if step.outputs[-1] is not step.inputs[-1]), last)
        reason = (
            "must end with logits, so the size of its last layer must be `!classes`, one output per label, such as "
            f"`Dense: {{units: !classes}}`. Received: {format_value(last.outputs[-1])}"
        )
    elif targets == "label_map":
        reason = f"ends with {_RANKS[rank]}, but every pixel has a label; end with Conv2D of one pixel"
    elif rank == 3:
        reason = (
            "ends with a feature map; add GlobalAveragePooling2D (or Flatten before any `!w`) before its last layer"
        )
    elif form == "words":
        reason = (
            "ends with a sequence, but a sequence has one label; remove `return_sequences` from the last LSTM or GRU"
        )
    elif form == "tokens":
        reason = (
            "ends with a sequence; add GlobalAveragePooling1D before its last layer, or remove `return_sequences` from "
            "the last LSTM or GRU"
        )
    else:
        reason = "ends with a sequence; add ClassTokenReadout before its last layer"
    raise InvalidValue(last.spec.path, f"{name} {reason}")


def _check_embedding(specs, has_words, text):
    """Check that a model of words begins with an embedding and has no other."""
    first = specs[0]
    if has_words and geometry_of(first.kind).inputs != "words":
        raise InvalidValue(
            first.path,
            f"{'text needs' if text else 'sequences need'} an embedding as the first layer, such as "
            f"Embedding{' or MaskedTokenEmbedding' if text else ''}. Received: {first.kind}",
        )
    for name in ("classes", "words"):
        value = first.args.get(name)
        if value is None or not has_words:
            continue
        if text and not isinstance(value, Classes):
            reason = f"must be `!classes`, one row per word of the vocabulary. Received: {format_value(value)}"
            raise InvalidValue((*first.path, name), reason)
        if not text and type(value) is not int:
            raise InvalidValue(
                (*first.path, name),
                "must be a number that is at least the vocabulary size: for sequences, `!classes` counts labels, and "
                f"every level has all words. Received: {format_value(value)}",
            )
    for spec in specs[1:] if has_words else specs:
        if geometry_of(spec.kind).inputs == "words":
            raise InvalidValue(
                spec.path, f"{spec.kind} needs token ids as input, so it must be the first layer of a text model"
            )
