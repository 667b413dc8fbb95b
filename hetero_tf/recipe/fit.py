"""Checks that a recipe fits its data, before anything is built: kinds, normalisation, shapes at every level, memory."""

import math
from dataclasses import dataclass

from hetero_tf.recipe.geometry import Shape, Sizes, Step, step
from hetero_tf.recipe.nodes import InvalidValue, show
from hetero_tf.recipe.schema import Recipe
from hetero_tf.recipe.shapes import check_groups

# Kernels of TensorFlow count the values of a tensor by 32-bit numbers.
MOST_VALUES = 2**31 - 1
# Kinds of data for a person, where the word alone is not enough.
_SAID = {"table": "rows of a table"}
# The global values, those of a client, and its gradients are there at once, beside the models themselves.
COPIES = 3


@dataclass(frozen=True)
class Facts:
    """What the checks need to know of a data set.

    Attributes:
        source: What the data are, for a person.
        example: Shape of one input, without None.
        classes: Length of the global label axis.
        several: Whether the training examples have more than one label.
        pixels: The smallest and the largest pixel as the normalisation sees them, 0 included.
        train, test: Numbers of examples.
        words: Size of the vocabulary of sequences; None: the data are others.
    """

    source: str
    example: Shape
    classes: int
    several: bool
    pixels: tuple[float, float]
    train: int
    test: int
    words: int | None = None


def check_fit(recipe: Recipe, facts: Facts, memory: int) -> None:
    """Refuses a recipe that cannot be trained on its data.

    Args:
        recipe: The recipe.
        facts: Of the data set.
        memory: Bytes that this process may use.

    Raises:
        InvalidValue: Names the key or the layer.
    """
    if not facts.several:
        raise InvalidValue(
            ("data",), f"all training examples have one label, so there is nothing to learn. Received: {facts.source}"
        )
    if recipe.input.name == "images":
        _check_normalisation(recipe.input.options, facts)
    if facts.words is not None:
        _check_words(recipe, facts)
    widths = {recipe.levels.widths[level] for level in recipe.levels.names}
    walks = {width: walk(recipe, facts, width) for width in widths}
    _check_memory(recipe, facts, walks, memory)


def check_kind(recipe: Recipe, takes: str | None, kind: str, source: str) -> None:
    """Refuses an input that takes data of another kind.

    Args:
        recipe: The recipe.
        takes: What its input takes, such as "images" or "text"; None: anything.
        kind: What the data are.
        source: The data for a person.

    Raises:
        InvalidValue: Names the key `input`.
    """
    if takes not in (None, kind):
        raise InvalidValue(
            ("input",),
            f"{recipe.input.name} takes {_SAID.get(takes, takes)}, but the data are {_SAID.get(kind, kind)}, {source}; "
            f"change `data`, or take an input and a model for {_SAID.get(kind, kind)}. Received: {recipe.input.name}",
        )


def _check_normalisation(options, facts):
    """Mean and standard deviation hold one number for all channels or one for each, in the range of the pixels."""
    channels, (low, high) = facts.example[-1], facts.pixels
    for name, least, most in (("mean", low, high), ("std", None, max(1.0, high, -low))):
        values = options[name]
        if len(values) not in (1, channels):
            each = f", or {channels}: one for each channel" if channels > 1 else " for images of one channel"
            raise InvalidValue(("input", name), f"must hold one number{each}. Received: {show(values)}")
        for index, value in enumerate(values):
            if value > most or (least is not None and value < least):
                raise InvalidValue(
                    ("input", name, index),
                    f"pixels are normalised as numbers from {low:g} to {high:g}, so this must be "
                    f"{'at most' if least is None else f'from {low:g} to'} {most:g}. Received: {value:g}",
                )


def _check_words(recipe, facts):
    """The table of an embedding has a row for each word of the vocabulary."""
    for spec in recipe.model.layers:
        rows = spec.args.get("words", facts.words)
        if rows < facts.words:
            raise InvalidValue(
                (*spec.path, "words"),
                f"must be at least {facts.words}, the size of the vocabulary of {facts.source}; or give the data a "
                f"smaller vocabulary. Received: {rows}",
            )


def walk(recipe: Recipe, facts: Facts, width: float) -> list[Step]:
    """Follows one example through all layers of the model, exits included.

    Returns:
        What each layer does, up to the first whose output only the layer itself knows (of a plug-in), on each branch.

    Raises:
        InvalidValue: A layer leaves nothing of what it gets, or cannot divide it.
    """
    sizes, steps = Sizes(width, facts.classes), []
    reached: dict[int | None, Shape | None] = {None: facts.example}
    for spec in recipe.model.layers:
        # A branch begins with what the trunk has reached.
        before = reached.get(spec.exit, reached[None])
        done = None if before is None else step(spec, before, sizes)
        reached[spec.exit] = None if done is None else done.after
        if done is not None:
            check_groups(spec, done.before[-1], recipe.levels)
            steps.append(done)
    return steps


def _check_memory(recipe, facts, walks, memory):
    """Compares a lower bound of what training and tests take with what there is; walks: the steps at each width."""
    bytes_each, levels = 8 if recipe.float_type == "float64" else 4, recipe.levels
    steps, copies = walks[levels.widths[levels.global_level]], COPIES * (levels.ensemble or 1)
    # There is a model for each width; one with exits has more.
    variables = [copies * one.weights + sum(same.weights for same in at) for one, *at in zip(steps, *walks.values())]
    trained, tested = min(recipe.client.batch_size, facts.train), min(recipe.evaluate.batch_size, facts.test)
    training = [held + trained * (one.hidden + math.prod(one.after)) for one, held in zip(steps, variables)]
    # A test keeps no values of other layers.
    testing = [one.weights + tested * (math.prod(one.before) + math.prod(one.after)) for one in steps]
    for key, batch, needs, needed in (
        ("client.batch_size", trained, training, sum(training)),
        ("evaluate.batch_size", tested, testing, max(testing, default=0)),
    ):
        for one, need in zip(steps, needs):
            values = batch * math.prod(one.after)
            if values > MOST_VALUES:
                amount = f"a tensor of {values:,} values, and at most {MOST_VALUES:,} are possible"
                raise _too_large(one, key, batch, amount)
            if bytes_each * needed > memory and need == max(needs):
                amount = f"about {_gib(bytes_each * needed)}, and this machine has {_gib(memory)}, most of it here"
                raise _too_large(one, key, batch, amount)


def _too_large(one, key, batch, amount):
    return InvalidValue(
        one.spec.path,
        f"the model is too large: with {key} {batch} it needs {amount}; this layer has {one.weights:,} weights and "
        f"makes {math.prod(one.after):,} values of each example. Use smaller sizes or a smaller {key}. "
        f"Received: {show(one.spec.args)}",
    )


def _gib(size):
    return f"{size / 2**30:,.1f} GiB"
