"""Allowed values of recipe keys, read from the annotations of plug-in signatures.

A signature uses plain types (int, float, str, bool), `Literal["link", "branch"]` for choices,
`Annotated[float, Range(low=0.0, below=1.0)]` for bounds, `tuple[Share, ...]` for lists, `| None`, and aliases of
these: the aliases below, or aliases in the module of the plug-in. `parse_annotation` reads them from source text.
"""

import ast
import functools
import importlib.util
from dataclasses import MISSING, Field, asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Annotated, Any

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
        low, high: Inclusive bounds.
        above, below: Exclusive bounds.
        odd: Refuse even numbers.
        sizes: Allow `!w n` and `!classes`: a size that scales with the level or the number of classes.
    """

    low: float | None = None
    high: float | None = None
    above: float | None = None
    below: float | None = None
    odd: bool = False
    sizes: bool = False


Count = Annotated[int, Range(low=1, high=10_000_000)]
CountOrZero = Annotated[int, Range(low=0, high=10_000_000)]
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


@dataclass(frozen=True)
class Constraint:
    """Constraint on one value.

    Attributes:
        type: int, float, str, bool, tuple, or pair (a whole number or a list of two).
        optional: Allow null.
        low, high, above, below, odd, sizes: As in `Range`.
        choices: Allowed strings or whole numbers; None: no restriction.
        pattern: Regular expression that a string must match.
        item: Constraint on list items; None: any numbers.
    """

    type: str
    optional: bool = False
    low: float | None = None
    high: float | None = None
    above: float | None = None
    below: float | None = None
    odd: bool = False
    sizes: bool = False
    choices: tuple | None = None
    pattern: str | None = None
    item: "Constraint | None" = None

    def allowed(self) -> str:
        """Return the constraint as text, e.g. "must be a whole number from 1 to 10"."""
        return "must be " + self.noun()

    def noun(self) -> str:
        """Return a noun phrase for the value, e.g. "a whole number from 1 to 10 or null"."""
        if self.choices:
            text = "one of " + ", ".join(map(str, self.choices))
        elif self.type == "tuple":
            text = self._list()
        elif self.type in ("int", "float", "pair"):
            text = ("an odd whole number" if self.odd else _NOUNS[self.type]) + self._range()
        else:
            text = _NOUNS[self.type] if self.pattern is None else f"text like {self.pattern}"
        return text + (", `!w n` or `!classes`" if self.sizes else "") + (" or null" if self.optional else "")

    def bounds(self) -> tuple:
        """Return inclusive bounds; the global limits replace missing ones."""
        largest = LARGEST_FLOAT if self.type == "float" else LARGEST_INT
        unbounded = self.low is None and self.above is None
        return (-largest if unbounded else self.low), (largest if self.high is None else self.high)

    def _list(self):
        item = self.item or Constraint("float")
        plain = item == Constraint(item.type)
        return f"a list of {_PLURALS[item.type]}" if plain else f"a list, each item {item.noun()}"

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
PLAIN_TYPES = ("int", "float", "str", "bool", "tuple")
ANNOTATION_FORMS = (
    'int, float, str, bool, tuple, Literal["a", "b"], Annotated[float, Range(low=0.0)], tuple[int, ...], one of these '
    "| None, or a name for one of these"
)


@functools.lru_cache
def parse_source(path: Path) -> ast.Module:
    """Return the syntax tree of a source file."""
    return ast.parse(path.read_text("utf-8"))


def parse_annotation(annotation: ast.expr, path: Path) -> Constraint:
    """Return the `Constraint` that an annotation expresses.

    Args:
        annotation: One of `ANNOTATION_FORMS`.
        path: File of the annotation. Aliases are resolved there, following imports.

    Raises:
        InputError: The annotation has another form.
    """
    match annotation:
        case ast.Name(id=name) if name in PLAIN_TYPES:
            return Constraint(name)
        case ast.Name(id=name):
            return parse_annotation(*_lookup(name, path))
        case ast.BinOp(left=left, op=ast.BitOr(), right=ast.Constant(value=None)):
            return replace(parse_annotation(left, path), optional=True)
        case ast.Subscript(value=ast.Name(id=form) | ast.Attribute(attr=form), slice=inside):
            return _form(form, inside, annotation, path)
    raise _unreadable(annotation, path)


def _form(form, inside, annotation, path):
    match form, inside:
        case "Literal", _:
            return _choices(inside, annotation, path)
        case "tuple", ast.Tuple(elts=[item, ast.Constant(value=value)]) if value is ...:
            return Constraint("tuple", item=parse_annotation(item, path))
        case "Annotated", ast.Tuple(elts=[number, ast.Call(func=ast.Name(id="Range"), args=[], keywords=keywords)]):
            limits = {keyword.arg: _value(keyword.value, path) for keyword in keywords}
            if limits.keys() <= asdict(Range()).keys():
                return replace(parse_annotation(number, path), **limits)
    raise _unreadable(annotation, path)


def _choices(inside, annotation, path):
    values = tuple(_value(item, path) for item in (inside.elts if isinstance(inside, ast.Tuple) else [inside]))
    types = {type(value) for value in values}
    if types not in ({str}, {int}):
        raise _unreadable(annotation, path)
    return Constraint(types.pop().__name__, choices=values)


def _value(node, path):
    """Evaluate a literal, or a constant of the module."""
    if isinstance(node, ast.Name):
        return _value(*_lookup(node.id, path))
    try:
        return ast.literal_eval(node)
    except ValueError:
        raise _unreadable(node, path) from None


def _lookup(name, path):
    """Return the expression assigned to a module-level name and its file, following imports."""
    for node in parse_source(path).body:
        match node:
            case ast.Assign(targets=[ast.Name(id=assigned)], value=value) if assigned == name:
                return value, path
            case ast.ImportFrom(module=str(module), names=names, level=0):
                for imported in names:
                    if name == (imported.asname or imported.name):
                        return _lookup(imported.name, _source_file(module, path))
    raise InputError(f"{path.name}: {name!r} is not a type of an option; it must be {ANNOTATION_FORMS}")


def _source_file(module, path):
    spec = importlib.util.find_spec(module)
    if spec is None or not spec.origin or not spec.origin.endswith(".py"):
        raise InputError(f"{path.name}: cannot read option types from {module}: it has no source file")
    return Path(spec.origin)


def _unreadable(node, path):
    return InputError(f"{path.name}: the type of an option must be {ANNOTATION_FORMS}. Received: {ast.unparse(node)}")


def key(
    doc: str,
    default: Any = None,
    required: bool = False,
    choices: tuple[str, ...] | None = None,
    low: float | None = None,
    high: float | None = None,
    above: float | None = None,
    below: float | None = None,
    kind: str | None = None,
    pattern: str | None = None,
) -> Any:
    """Return a dataclass field for a recipe key, with its meaning and allowed values.

    Args:
        doc: One-line description.
        default: Used if the recipe omits the key (unless `required`).
        required: The recipe must set the key.
        choices: Allowed strings.
        low, high: Inclusive bounds of a number.
        above, below: Exclusive bounds of a number.
        kind: Plug-in kind.
        pattern: Regular expression that a string must match.
    """
    limits = {"choices": choices, "low": low, "high": high, "above": above, "below": below, "pattern": pattern}
    metadata = {"doc": doc, "required": required, "kind": kind, "limits": limits}
    if required:
        return field(metadata=metadata)
    return (
        field(default_factory=dict, metadata=metadata) if default == {} else field(default=default, metadata=metadata)
    )


def default_of(field: Field) -> object:
    """Return the value of a key that a recipe omits."""
    return field.default if field.default_factory is MISSING else field.default_factory()


@dataclass(frozen=True)
class Plugin:
    """A plug-in name with its options: `{name: labels, clients: 100, per_client: 2}`."""

    name: str
    options: dict = field(default_factory=dict)


def is_plugin(field: Field) -> bool:
    """Return True for a key whose value is a plug-in, or an optional one."""
    return field.type in (Plugin, Plugin | None)


def is_by_level(field: Field) -> bool:
    """Return True for a key that accepts one value for all levels or a mapping of level to value."""
    return str(field.type).endswith(" | dict")


def inline_plugin_field(cls: type) -> Field | None:
    """Return the plug-in field whose options share the section with its keys; None if the section has none."""
    return next((field for field in fields(cls) if is_plugin(field) and "doc" not in field.metadata), None)


def keys(cls: type) -> dict[str, Field]:
    """Return the fields of a section that are recipe keys, by name."""
    return {field.name: field for field in fields(cls) if "doc" in field.metadata}


def constraint_of(field: Field) -> Constraint:
    """Return the `Constraint` of a field with one value, or one value for each level."""
    name = field.type.__name__ if isinstance(field.type, type) else str(field.type).removesuffix(" | dict")
    annotated = parse_annotation(ast.parse(name, mode="eval").body, Path(__file__))
    return replace(annotated, **field.metadata["limits"])
