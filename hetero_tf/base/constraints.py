"""Allowed values of recipe keys, options of plug-ins and arguments of layers, as annotations.

An annotation is a plain type (int, float, str, bool), `Literal["link", "branch"]` for choices,
`Annotated[float, Range(low=0.0, below=1.0)]` for bounds, `tuple[Share, ...]` for lists, `dict[str, Share]` for values
by level (by any name with `Text(named=True)`), `| None`, or an alias of these. `read_annotation` turns it into a
`Constraint`. The annotations of plug-ins are read from their source text (`parse_annotation`), so a recipe is checked
without importing them.
"""

import ast
import functools
import importlib.util
import inspect
import re
from collections.abc import Iterator
from dataclasses import KW_ONLY, MISSING, dataclass, field, fields, is_dataclass, replace
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from hetero_tf.base.errors import InputError

LARGEST_INT = 2**31 - 1
LARGEST_FLOAT = 1e9
# Products of smaller numbers underflow in float32.
SMALLEST_FLOAT = 1e-18
LARGEST_SIZE = 1_000_000


@dataclass(frozen=True, kw_only=True)
class Range:
    """Bounds of a number in an annotation.

    Attributes:
        low, high: Inclusive bounds. On a mapping, low=1 refuses an empty one.
        above, below: Exclusive bounds.
        odd: Refuse even numbers.
        sizes: Allow `!w n` and `!classes`: a size that scales with the level or the number of classes.
        fractions: Allow texts such as "1/6".
        memory: Allow texts such as "20 MiB", which become `Mebibytes`.
    """

    low: float | None = None
    high: float | None = None
    above: float | None = None
    below: float | None = None
    odd: bool = False
    sizes: bool = False
    fractions: bool = False
    memory: bool = False


@dataclass(frozen=True, kw_only=True)
class Text:
    """Allowed texts in an annotation; on a mapping: texts that may replace it.

    Attributes:
        pattern: Regular expression that a text must match.
        choices: Allowed texts (of a `Literal` also whole numbers).
        numbered: Allow whole numbers in a list of texts.
        named: Allow any text as a key of a mapping, such as the name of a column, instead of a level.
    """

    pattern: str | None = None
    choices: tuple | None = None
    numbered: bool = False
    named: bool = False
    single: bool = False


@dataclass(frozen=True)
class Kind:
    """Kind of a plug-in in an annotation, such as "servers"."""

    kind: str


@dataclass(frozen=True)
class Plugin:
    """A plug-in name with its options: `{name: labels, clients: 100, per_client: 2}`."""

    name: str
    options: dict = field(default_factory=dict)


Count = Annotated[int, Range(low=1, high=10_000_000)]
SmallCount = Annotated[int, Range(low=1, high=1_000_000)]
CountOrZero = Annotated[int, Range(low=0, high=10_000_000)]
# How texts become tokens, see `data.words.TokenOptions`.
Tokenizer = Literal["words", "characters", "subwords"]
Vocabulary = Annotated[int, Range(low=3, high=10_000_000)]
Pixels = Annotated[int, Range(low=1, high=4096)]
Positive = Annotated[float, Range(above=0.0)]
NotNegative = Annotated[float, Range(low=0.0)]
Share = Annotated[float, Range(low=0.0, below=1.0)]
TestShare = Annotated[float, Range(above=0.0, below=1.0)]
Probability = Annotated[float, Range(low=0.0, high=1.0)]
Epsilon = Annotated[float, Range(above=0.0, high=1.0)]
Size = Annotated[int, Range(low=1, high=LARGEST_SIZE, sizes=True)]
# Kernel, stride or patch size: it must be the same at every level, since a sub-model only has fewer channels.
FixedSize = Annotated[int, Range(low=1, high=999)]
# TensorFlow's convolution gradients abort the process for larger kernels.
OddSize = Annotated[int, Range(low=1, high=127, odd=True)]
# Of images; a single number is that of both axes.
Window = Annotated[int | tuple[int, int], Range(low=1, high=1000)]
# See `OddSize`.
KernelSize = Annotated[int | tuple[int, int], Range(low=1, high=127)]
Edge = Annotated[int | tuple[int, int], Range(low=0, high=1000)]
Groups = Annotated[int, Range(low=1, high=LARGEST_SIZE)]
Padding = Literal["valid", "same"]
Slope = Annotated[float, Range(low=0.0, high=1000.0)]
ACTIVATIONS = ("elu", "gelu", "hard_silu", "leaky_relu", "linear", "mish", "relu", "relu6", "selu", "sigmoid", "silu",
               "softplus", "tanh")  # fmt: skip
Activation = Annotated[str, Text(choices=ACTIVATIONS)]
INITIALIZERS = ("fan_in_uniform", "glorot_normal", "glorot_uniform", "he_normal", "he_uniform", "lecun_normal",
                "lecun_uniform", "ones", "orthogonal", "random_normal", "random_uniform", "truncated_normal",
                "zeros")  # fmt: skip
Initializer = Annotated[str, Text(choices=INITIALIZERS)]
# A bias has no fan-in, so only constant initializers apply.
ConstantInitializer = Literal["zeros", "ones"]
# Names of columns; a single name need not be a list.
Names = Annotated[tuple[str, ...], Text(single=True)]
# Names of units; a number is the index of a unit in model.layers.
Units = Annotated[tuple[str, ...], Text(numbered=True)]


@dataclass(frozen=True)
class Constraint(Range, Text):
    """Constraint on one value: the limits of `Range` and `Text`, and those below.

    Attributes:
        type: int, float, str, bool, tuple, dict (level to value), pair (a whole number or a list of two), plugin, or
            section (the keys of a dataclass).
        optional: Allow null.
        by_level: Also allow a mapping of level to such values.
        item: Constraint on the items of a tuple or dict. None allows any numbers in a tuple and any values in a dict.
    """

    type: str
    optional: bool = False
    _: KW_ONLY
    by_level: bool = False
    item: "Constraint | None" = None
    kind: str = ""
    section: Any = None

    def allowed(self) -> str:
        """Return the constraint as text, e.g. "must be a whole number from 1 to 10"."""
        return "must be " + self.noun()

    def noun(self) -> str:
        """Return a noun phrase for the value, e.g. "a whole number from 1 to 10 or null"."""
        if self.named and self.item:
            text = f"a mapping of names to {self.item.noun()}"
        elif self.type == "dict":
            text = ("text or " if self.pattern else "") + ("a mapping" if self.item else "a mapping of names to values")
        elif self.choices:
            text = "one of " + ", ".join(map(str, self.choices))
        elif self.type == "tuple":
            text = self._list()
        elif self.type in ("int", "float", "pair"):
            text = ("an odd whole number" if self.odd else _NOUNS[self.type]) + self._range()
        else:
            text = _NOUNS[self.type] if self.pattern is None else f"text like {self.pattern}"
        text += (", `!w n` or `!classes`" if self.sizes else "") + (" or a mapping" if self.by_level else "")
        return text + (" or null" if self.optional else "")

    def bounds(self) -> tuple:
        """Return inclusive bounds; the global limits replace missing ones."""
        largest = LARGEST_FLOAT if self.type == "float" else LARGEST_INT
        unbounded = self.low is None and self.above is None
        return (-largest if unbounded else self.low), (largest if self.high is None else self.high)

    def _list(self):
        item = self.item or Constraint("float")
        is_plain = item == Constraint(item.type, section=item.section)
        if self.single:
            return "text or a list of texts"
        return f"a list of {_PLURALS[item.type]}" if is_plain else f"a list, each item {item.noun()}"

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
    "section": "a mapping",
}
# The only list of sections is model.layers.
_PLURALS = {
    "int": "whole numbers",
    "float": "numbers",
    "str": "texts",
    "bool": "true and false",
    "section": "layers, units and Repeats",
}
REQUIRED = inspect.Parameter.empty


@dataclass(frozen=True)
class Option:
    """A recipe key, an option of a plug-in or an argument of a layer."""

    name: str
    constraint: Constraint
    default: Any
    doc: str

    @property
    def required(self) -> bool:
        """True if a recipe must set it."""
        return self.default is REQUIRED

    @property
    def is_section(self) -> bool:
        """True for a key that contains other keys."""
        return self.constraint.type == "section"

    @property
    def is_plugin(self) -> bool:
        """True for a key that selects a plug-in."""
        return self.constraint.type == "plugin"


def build_option(name: str, constraint: Constraint, default: object, doc: str, largest: int | None = None) -> Option:
    """Return an `Option`; that of a plain `int` is at least 1, or its default if that is lower.

    Args:
        name, default, doc: See `Option`.
        constraint: The one of its annotation.
        largest: Bound of a plain `int`, which is then a size (`!w n` and `!classes` are allowed); None for numbers.
    """
    if constraint == Constraint("int", constraint.optional):
        low = min(1, default) if isinstance(default, int) else 1
        constraint = replace(constraint, low=low, high=largest, sizes=largest is not None)
    return Option(name, constraint, default, doc)


@functools.lru_cache
def keys(cls: Any) -> dict[str, Option]:
    """Return the recipe keys of a section by name: the fields that `Args:` of its docstring describes."""
    docs = argument_docs(inspect.getdoc(cls) or "")
    return {field.name: _key(field, docs[field.name]) for field in fields(cls) if field.name in docs}


@functools.lru_cache
def inline_plugin(cls: Any) -> Option | None:
    """Return the plug-in whose options share the section with its keys; None if the section has none."""
    others = (field for field in fields(cls) if field.name not in keys(cls))
    return next((_key(field, "") for field in others if get_args(field.type)[:1] == (Plugin,)), None)


def walk_keys(cls: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Option]]:
    """Yield the path and the `Option` of every key of a section and of its subsections.

    The name of a section in a mapping is `NAME`, as in `fleet.devices.NAME.memory`.
    """
    for name, option in keys(cls).items():
        yield (*path, name), option
        item = option.constraint.item
        if option.is_section:
            yield from walk_keys(option.constraint.section, (*path, name))
        elif option.constraint.type == "dict" and item and item.section:
            yield from walk_keys(item.section, (*path, name, "NAME"))


def _key(field, doc):
    default = field.default if field.default_factory is MISSING else field.default_factory()
    return build_option(field.name, read_annotation(field.type), REQUIRED if default is MISSING else default, doc)


def argument_docs(docstring: str) -> dict[str, str]:
    """Return `{argument: meaning}` from the `Args:` section of a docstring, joining continuation lines."""
    section = re.search(r"^Args:\n((?:[ ]+.*\n?|\n(?=[ ]))*)", docstring, re.MULTILINE)
    meanings: dict[str, str] = {}
    current: list[str] = []
    for line in section.group(1).splitlines() if section else ():
        start = re.match(r" {1,4}(\w+(?:, \w+)*): (.*)", line)
        if start:
            current = start.group(1).split(", ")
            meanings.update(dict.fromkeys(current, start.group(2).strip()))
        elif line.strip():
            meanings.update({name: f"{meanings[name]} {line.strip()}" for name in current})
    return meanings


def read_annotation(annotation: Any) -> Constraint:
    """Return the `Constraint` that an annotation expresses.

    Raises:
        TypeError: The annotation has another form.
    """
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        items = (item for limit in arguments[1:] for item in vars(limit).items())
        limits = {name: value for name, value in items if value is not None and value is not False}
        return replace(read_annotation(arguments[0]), **limits)
    if origin in (Union, UnionType):
        return _read_union(arguments)
    if origin is Literal and {type(value) for value in arguments} in ({str}, {int}):
        return Constraint(type(arguments[0]).__name__, choices=arguments)
    if origin is tuple and arguments[1:] == (...,):
        return Constraint("tuple", item=read_annotation(arguments[0]))
    if origin is dict and arguments[0] is str:
        return Constraint("dict", item=read_annotation(arguments[1]))
    if annotation in (int, float, str, bool, tuple, dict):
        return Constraint(annotation.__name__)
    if annotation is Plugin:
        return Constraint("plugin")
    if isinstance(annotation, type) and is_dataclass(annotation):
        return Constraint("section", section=annotation)
    raise TypeError(annotation)


def _read_union(members):
    first, *others = (member for member in members if member is not NoneType)
    constraint = replace(read_annotation(first), optional=NoneType in members)
    for other in others:
        if first is int and other == tuple[int, int]:
            constraint = replace(constraint, type="pair")
        elif get_origin(other) is dict and get_args(other) == (str, first):
            constraint = replace(constraint, by_level=True)
        else:
            raise TypeError(other)
    return constraint


ANNOTATION_FORMS = (
    'int, float, str, bool, tuple, Literal["a", "b"], Annotated[float, Range(low=0.0)], tuple[int, ...], one of these '
    "| None, or a name for one of these"
)
# Names that `parse_annotation` does not look up in the module.
_FORMS: dict[str, Any] = {
    **{form.__name__: form for form in (int, float, str, bool, tuple, dict, Range, Text)},
    "Annotated": Annotated,
    "Literal": Literal,
}


@functools.cache
def parse_source(path: Path) -> ast.Module:
    """Return the syntax tree of a source file."""
    return ast.parse(path.read_text("utf-8"))


def parse_annotation(node: ast.expr, path: Path) -> Constraint:
    """Return the `Constraint` that an annotation in a source file expresses, without importing the file.

    Args:
        node: One of `ANNOTATION_FORMS`.
        path: File of the annotation. Aliases are resolved there, following imports.

    Raises:
        InputError: The annotation has another form.
    """
    try:
        return read_annotation(_evaluate(node, path))
    except (TypeError, ValueError):
        raise InputError(
            f"{path.name}: the type of an option must be {ANNOTATION_FORMS}. Received: {ast.unparse(node)}"
        ) from None


def _evaluate(node, path):
    """Return the value of an annotation's source text; raise TypeError or ValueError for other expressions."""
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=("Annotated" | "Literal") as name):
            return _FORMS[name] if name in _FORMS else _evaluate(*_lookup(name, path))
        case ast.BinOp(left=left, op=ast.BitOr(), right=right):
            return _evaluate(left, path) | _evaluate(right, path)
        case ast.Subscript(value=form, slice=inside):
            return _evaluate(form, path)[_evaluate(inside, path)]
        case ast.Tuple(elts=items):
            return tuple(_evaluate(item, path) for item in items)
        case ast.Call(func=ast.Name(id=("Range" | "Text") as name), args=[], keywords=limits):
            # The name of `**limits` is None, which no form accepts.
            return _FORMS[name](**{str(limit.arg): _evaluate(limit.value, path) for limit in limits})
    return ast.literal_eval(node)


def _lookup(name, path):
    """Return the expression assigned to a module-level name and its file, following imports."""
    for node in parse_source(path).body:
        match node:
            case ast.Assign(targets=[ast.Name(id=assigned)], value=value) if assigned == name:
                return value, path
            case ast.ImportFrom(module=str(module), names=names, level=0):
                for imported in names:
                    if name == (imported.asname or imported.name) and (source := find_source(module)):
                        return _lookup(imported.name, source)
    raise InputError(f"{path.name}: {name!r} is not a type of an option; it must be {ANNOTATION_FORMS}")


def find_source(module: str) -> Path | None:
    """Return the source file of a module without importing it; None if it has none."""
    spec = importlib.util.find_spec(module)
    return Path(spec.origin) if spec and spec.origin and spec.origin.endswith(".py") else None
