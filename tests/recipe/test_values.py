"""Invalid values of every key, option and layer argument are rejected when the recipe is read."""

import math
import re

from each import for_each
from refusals import refusal

from hetero_tf import recipe
from hetero_tf.base import registry
from hetero_tf.base.constraints import Constraint, walk_keys
from hetero_tf.recipe import geometry
from hetero_tf.recipe.check import convert
from hetero_tf.recipe.nodes import to_plain
from hetero_tf.recipe.reader import parse
from hetero_tf.recipe.recipe_files import PLUGINS
from hetero_tf.recipe.schema import Recipe

BASE = {
    "name": "base",
    "data": {"name": "synthetic"},
    "input": {"name": "images"},
    "partition": {"name": "iid", "clients": 10},
    "model": {"layers": ["GlobalAveragePooling2D", {"Dense": {"units": "!classes"}}]},
    "levels": {"widths": {"a": 1.0}, "mix": "a1"},
    "fleet": {"devices": {"phone": {"gflops": 1}}},
    "round": {"clients": 5},
    "client": {"batch_size": 10},
    "optimizer": {"learning_rate": 0.1},
    "rounds": 2,
}
PATHS = {option.constraint.kind: path for path, option in PLUGINS.items()}
# Keys of a section that must stand beside the options of its plug-in.
BESIDE = {"optimizers": BASE["optimizer"]}


def flow(value):
    """A value as YAML on one line; texts are unchanged."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {flow(part)}" for key, part in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(flow(part) for part in value) + "]"
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def text(path, value):
    """The base recipe with another value at a path, with one top-level key per line."""

    def changed(old, steps):
        return {**old, steps[0]: changed(old.get(steps[0], {}), steps[1:])} if steps else value

    base = BASE | {"privacy": {"clip": 1.0}} if path[0] == "privacy" else BASE
    return "".join(f"{key}: {flow(part)}\n" for key, part in changed(base, path).items())


def legal(constraint):
    if constraint.choices:
        return constraint.choices[0]
    if constraint.type == "tuple":
        return [legal(constraint.item or Constraint("float"))]
    if constraint.named:
        return {"x": legal(constraint.item)}
    if constraint.type in ("str", "bool"):
        return "x" if constraint.type == "str" else True
    low, high = constraint.bounds()
    if constraint.type == "float":
        low = constraint.above if low is None else low
        high = high if constraint.below is None else constraint.below
        return min(max(low + (high - low) / 2, -1.0), 1.0) if low < 0 else low + min(high - low, 1.0) / 2
    return low


def wrong(constraint):
    """`(value, invalid part, message)` of values just outside the constraint."""
    if not constraint.optional:
        yield None, None, "wrong type; must be "
    if constraint.type == "tuple":
        yield 3, 3, f"wrong type; must be {'text or ' if constraint.single else ''}a list"
        for value, part, message in wrong(constraint.item or Constraint("float")):
            yield [value], part, message
    elif constraint.named:
        yield 3, 3, "wrong type; must be a mapping of names to "
        for value, part, message in wrong(constraint.item):
            yield {"x": value}, part, message
    elif constraint.choices:
        first = constraint.choices[0]
        if constraint.type == "str":
            yield first + first[-1], first + first[-1], "unknown value; did you mean "
            yield "zzzz", "zzzz", "unknown value; must be one of "
            yield 7, 7, "wrong type; must be one of "
        else:
            yield max(constraint.choices) + 1, max(constraint.choices) + 1, "unknown value; must be one of "
    elif constraint.type == "bool":
        yield "yes", "yes", "wrong type; must be true or false"
        yield 1, 1, "wrong type; must be true or false"
    elif constraint.type == "str":
        yield 7, 7, "wrong type; must be text"
        yield '"a\\nb"', '"a\\nb"', "not allowed; must be "
    else:
        yield from wrong_numbers(constraint)


def wrong_numbers(constraint):
    low, high = constraint.bounds()
    whole = constraint.type != "float"
    small = constraint.above if low is None else low - 1 if whole else math.nextafter(low, -math.inf)
    large = constraint.below if constraint.below is not None else high + 1 if whole else math.nextafter(high, math.inf)
    yield small, small, "too small; must be "
    yield large, large, "too large; must be "
    yield "true", "true", "wrong type; must be "
    yield "'7'", "'7'", "wrong type; must be "
    for value in (".nan", "-.inf"):
        yield value, value, "not a finite number; "
    if whole:
        yield 1.5, 1.5, "wrong type; must be "
    if constraint.odd:
        yield 4, 4, "even; must be "


def check_error(written, dotted, part, message):
    """Check that the error of a text has the key, the message and the position."""
    first_line, line, caret = refusal(recipe.loads, written, "r.yaml").split("\n")
    assert re.fullmatch(rf"r\.yaml:\d+:\d+: {re.escape(dotted)}((\[0\])*|\.x): {re.escape(message)}.*", first_line)
    number, column = (int(number_text) for number_text in re.match(r"r\.yaml:(\d+):(\d+)", first_line).groups())
    assert written.splitlines()[number - 1][column - 1 :].startswith(flow(part))
    assert line[caret.index("^") :].startswith(flow(part))


def check_all(constraint, path, write):
    """Check the first value in a whole recipe, and the others, which the same function converts, alone."""
    (value, part, message), *others = wrong(constraint)
    dotted = ".".join(path)
    check_error(write(value), dotted, part, message)
    for value, _, message in others:
        text = refusal(lambda: convert(to_plain(parse(flow(value), "value", False)), constraint, path))  # noqa: B023
        assert re.match(rf"(value|{re.escape(dotted)})(: )?((\[0\])*|\.?x): {re.escape(message)}", text), text


@for_each((kind, name) for kind in registry.EXPORTS for name in registry.names(kind))
def test_options_of_plugins(plugin):
    kind, name = plugin
    options = registry.options(kind, name)
    required = {option.name: legal(option.constraint) for option in options.values() if option.required}
    for option in options.values():

        def write(value):
            values = {**BESIDE.get(kind, {}), "name": name, **required, option.name: value}  # noqa: B023
            # A function replaces the layers.
            return text(("model",), {"function": values}) if kind == "models" else text(PATHS[kind], values)

        check_all(option.constraint, (*PATHS[kind], option.name), write)


@for_each(geometry.known_layers())
def test_arguments_of_layers(name):
    options = geometry.layer_options(name)
    arguments = {option.name: legal(option.constraint) for option in options.values() if option.required}
    for argument, option in options.items():
        path = ("model", "layers[0]", name, argument)

        def write(value):
            return text(("model", "layers"), [{name: {**arguments, argument: value}}])  # noqa: B023

        check_all(option.constraint, path, write)


# Keys that hold one value; other tests have mappings by level, names of units and the model.
SINGLE = [
    (path, key.constraint)
    for path, key in walk_keys(Recipe)
    if key.constraint.type not in ("section", "plugin", "dict") and not key.constraint.numbered and path[0] != "model"
]


@for_each(SINGLE)
def test_keys(key):
    path, constraint = key
    check_all(constraint, path, lambda value: text(path, value))


def test_defaults_and_bounds_are_allowed_and_every_number_has_bounds():
    for kind in registry.KINDS:
        for name in registry.names(kind):
            for option in registry.options(kind, name).values():
                constraint, path = option.constraint, (kind, name, option.name)
                assert option.required or convert(option.default, constraint, path) == option.default
                bounds = [bound for bound in (constraint.low, constraint.high) if bound is not None]
                assert all(convert(bound, constraint, path) == bound for bound in bounds if not constraint.odd)
                assert (
                    constraint.type not in ("int", "float")
                    or constraint.choices
                    or constraint.bounds() != Constraint(constraint.type).bounds()
                ), f"{path}: any number is allowed"
