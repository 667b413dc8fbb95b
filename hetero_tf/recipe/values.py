"""Single values: what is wanted of one, said and checked the same way for keys, options and layer arguments."""

import re
from dataclasses import dataclass

from hetero_tf.recipe.model import Classes, Width
from hetero_tf.recipe.nodes import Wrong, show

LARGEST_INT = 2**31 - 1
LARGEST_FLOAT = 1e9
LONGEST_TEXT = 1000
MOST_ITEMS = 10_000


@dataclass(frozen=True)
class Want:
    """What is allowed: a type (int, float, str, bool, pair, tuple), bounds, choices.

    `sizes` also lets `!w n` and `!classes` stand for an integer. `item` is what a tuple holds (None: numbers),
    `above` and `below` are exclusive bounds. A pair is one int or a list of two.
    """

    type: str
    optional: bool = False
    low: float | None = None
    high: float | None = None
    above: float | None = None
    below: float | None = None
    choices: tuple | None = None
    pattern: str | None = None
    odd: bool = False
    sizes: bool = False
    item: str | None = None

    def allowed(self):
        """The sentence part, e.g. "must be a whole number from 1 to 10"."""
        if self.choices:
            text = f"one of {', '.join(self.choices)}"
        elif self.type == "tuple":
            text = f"a list of {_PLURALS[self.item or 'float']}"
        elif self.type in ("int", "float", "pair"):
            text = f"{'an odd whole number' if self.odd else _NOUNS[self.type]}{self._range()}"
        else:
            text = _NOUNS[self.type] if self.pattern is None else f"{_NOUNS['str']} like {self.pattern}"
        return f"must be {text}{', `!w n` or `!classes`' if self.sizes else ''}{' or null' if self.optional else ''}"

    def bounds(self):
        """Inclusive bounds with the general limits filled in: nothing in a recipe is astronomical."""
        largest = LARGEST_FLOAT if self.type == "float" else LARGEST_INT
        unbounded = self.low is None and self.above is None
        return (-largest if unbounded else self.low), (largest if self.high is None else self.high)

    def _range(self):
        low, high = self.bounds()
        if self.above is None and self.below is None:
            return f" from {low:.12g} to {high:.12g}"
        start = f"above {self.above:g}" if self.above is not None else f"of at least {low:.12g}"
        end = f"below {self.below:g}" if self.below is not None else f"at most {high:.12g}"
        return f" {start} and {end}"


_NOUNS = {
    "int": "a whole number",
    "float": "a number",
    "pair": "a whole number or two in a list, each",
    "bool": "true or false",
    "str": "text",
}
_PLURALS = {"int": "whole numbers", "float": "numbers", "str": "texts", "bool": "true and false"}

# Ranges by name, for options and layer arguments, whose source states only a type.
RANGES = {
    **dict.fromkeys(
        (
            "clients",
            "examples",
            "test_examples",
            "rows",
            "test_rows",
            "length",
            "vocabulary",
            "classes",
            "segment",
            "owners",
        ),
        {"high": 10_000_000},
    ),
    **dict.fromkeys(("dropout", "rate"), {"low": 0.0, "below": 1.0}),
    **dict.fromkeys(("size", "channels"), {"high": 4096}),
    **dict.fromkeys(("factor", "alpha"), {"above": 0.0}),
    "epsilon": {"above": 0.0, "high": 1.0},
    "mask_share": {"low": 0.0, "high": 1.0},
    "test_share": {"above": 0.0, "below": 1.0},
    "learning_rate": {"low": 0.0},
    **dict.fromkeys(("adaptivity", "temperature"), {"above": 0.0}),
    **dict.fromkeys(("momentum", "beta1", "beta2"), {"low": 0.0, "below": 1.0}),
    **dict.fromkeys(("mu", "gamma", "weight", "floor"), {"low": 0.0}),
    "augment": {"choices": ("none", "crop_flip")},
}
_NORMS = {"choices": ("sbn", "bn", "wbn", "in", "gn", "ln", "none")}
LAYER_RANGES = {
    "norm": _NORMS,
    "kind": _NORMS,
    "residual": {"choices": ("input", "activated")},
    "scaler_at": {"choices": ("norms", "products")},
    "momentum": {"above": 0.0},
    "kernel_size": {"high": 999, "odd": True},
    **dict.fromkeys(("stride", "patch"), {"high": 999}),
}
# What a level must not change: a kernel or stride of another size is another model, not a narrower one.
SAME_AT_EVERY_LEVEL = ("kernel_size", "stride", "patch")


def parse_type(text):
    """An annotation as (type, optional, item): "tuple[int, ...] | None" -> ("tuple", True, "int")."""
    parts = [part.strip() for part in text.split("|")]
    optional = "None" in parts
    parts = [part for part in parts if part != "None"]
    match = re.fullmatch(r"(int|float|str|bool|tuple)(?:\[(int|float|str|bool), \.\.\.\])?", " ".join(parts))
    if match is None or (match.group(2) and match.group(1) != "tuple"):
        raise ValueError(text)
    return match.group(1), optional, match.group(2)


def wanted(option, sizes=False, largest=None):
    """The `Want` of a plug-in's option or, with `sizes`, of a layer's argument.

    Whole numbers start at 1, or at the default where that is lower: no option here counts below nothing.
    """
    type_, optional, item = parse_type(option.type)
    limits = dict(RANGES.get(option.name, {}))
    if sizes:
        limits |= LAYER_RANGES.get(option.name, {})
    if type_ != ("str" if "choices" in limits else "int" if limits.keys() <= {"high", "odd"} else "float"):
        limits = {}
    if type_ == "int":
        lowest = min(1, option.default) if isinstance(option.default, int) else 1
        limits = {"low": lowest, "high": largest, **limits}
    sizes = sizes and type_ == "int" and option.name not in SAME_AT_EVERY_LEVEL
    return Want(type_, optional, item=item, sizes=sizes, **limits)


def convert(value, want, path):
    """The value as the recipe holds it (ints become floats, lists tuples); raises `Wrong`."""
    if value is None and want.optional:
        return None
    if want.sizes and isinstance(value, (Width, Classes)):
        return value
    if want.type == "tuple" and isinstance(value, (list, tuple)):
        return _items(value, want, path)
    if want.type == "pair" and isinstance(value, list) and len(value) == 2:
        one = Want("int", low=want.low, high=want.high)
        return tuple(convert(part, one, (*path, index)) for index, part in enumerate(value))
    fits = {"int": int, "pair": int, "float": (int, float), "str": str, "bool": bool}.get(want.type, ())
    if not isinstance(value, fits) or (isinstance(value, bool) and want.type != "bool"):
        raise _wrong(path, "wrong type", want, value)
    if want.type == "str":
        return _text(value, want, path)
    return value if want.type == "bool" else _number(value, want, path)


def _wrong(path, what, want, value):
    return Wrong(path, f"{what}; {want.allowed()}. Received: {show(value)}")


def _number(value, want, path):
    low, high = want.bounds()
    if (low is not None and value < low) or (want.above is not None and value <= want.above):
        raise _wrong(path, "too small", want, value)
    if value > high or (want.below is not None and value >= want.below):
        raise _wrong(path, "too large", want, value)
    if want.odd and value % 2 == 0:
        raise _wrong(path, "even", want, value)
    return float(value) if want.type == "float" else value


def _text(value, want, path):
    if want.choices and value not in want.choices:
        raise _wrong(path, "unknown value", want, value)
    if want.pattern and not re.fullmatch(want.pattern, value):
        raise _wrong(path, "not allowed", want, value)
    if len(value) > LONGEST_TEXT or any(ord(letter) < 32 for letter in value):
        raise Wrong(
            path, f"not allowed; must be one line of at most {LONGEST_TEXT} characters. Received: {show(value)}"
        )
    return value


def _items(value, want, path):
    if len(value) > MOST_ITEMS:
        raise Wrong(path, f"too long; must hold at most {MOST_ITEMS} items. Received: {len(value)} items")
    items = []
    for index, part in enumerate(value):
        if want.item is None and isinstance(part, int) and not isinstance(part, bool):
            items.append(convert(part, Want("int"), (*path, index)))
        else:
            items.append(convert(part, Want(want.item or "float"), (*path, index)))
    return tuple(items)
