"""What a value of a recipe may be, and how the signature of a plug-in says so.

A signature uses plain types (int, float, str, bool), `Literal["link", "branch"]` for choices,
`Annotated[float, Range(low=0.0, below=1.0)]` for bounds, `tuple[Share, ...]` for lists, `| None`, and names that stand
for one of these: the names below, and those of the module itself. `annotations` reads them from source text.
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


# Products of smaller numbers vanish in float32.
SMALLEST_FLOAT = 1e-18


LARGEST_SIZE = 1_000_000


@dataclass(frozen=True, kw_only=True)
class Range:
    """Bounds of a number in an annotation.

    Attributes:
        low, high: The smallest and the largest number that are allowed.
        above, below: Bounds that are not allowed themselves.
        odd: Whether even numbers are refused.
        sizes: Whether `!w n` and `!classes` may stand for the number: a size that follows the level or the labels.
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


# Of a kernel, stride or patch: with another one at every level it would be another model, not a narrower one.
FixedSize = Annotated[int, Range(low=1, high=999)]


# TensorFlow's gradients of convolutions end the process at larger kernels.
OddSize = Annotated[int, Range(low=1, high=127, odd=True)]


@dataclass(frozen=True)
class Constraint:
    """What is allowed of one value.

    Attributes:
        type: int, float, str, bool, tuple, or pair, which is a whole number or a list of two.
        optional: Whether null is allowed.
        low, high, above, below, odd, sizes: As in `Range`.
        choices: The allowed texts or whole numbers; None: all that the rest allows.
        pattern: Regular expression that a text must match.
        item: What a list holds; None: any numbers.
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
        """The sentence part that says it, e.g. "must be a whole number from 1 to 10"."""
        return "must be " + self.noun()

    def noun(self) -> str:
        """What the value is, e.g. "a whole number from 1 to 10 or null"."""
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
        """Inclusive bounds with the general limits filled in: nothing in a recipe is astronomical."""
        largest = LARGEST_FLOAT if self.type == "float" else LARGEST_INT
        unbounded = self.low is None and self.above is None
        return (-largest if unbounded else self.low), (largest if self.high is None else self.high)

    def _list(self):
        item = self.item or Constraint("float")
        plain = item == Constraint(item.type)
        return f"a list of {_PLURALS[item.type]}" if plain else f"a list, each of it {item.noun()}"

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


PLAIN = ("int", "float", "str", "bool", "tuple")


FORMS = (
    'int, float, str, bool, tuple, Literal["a", "b"], Annotated[float, Range(low=0.0)], tuple[int, ...], one of these '
    "| None, or a name for one of these"
)


@functools.lru_cache
def tree(path: Path) -> ast.Module:
    """The parsed source of a file."""
    return ast.parse(path.read_text("utf-8"))


def constraint(annotation: ast.expr, path: Path) -> Constraint:
    """What an annotation allows.

    Args:
        annotation: One of `FORMS`.
        path: The file it stands in; names are looked up there and where they are imported from.

    Raises:
        InputError: It is no such form.
    """
    match annotation:
        case ast.Name(id=name) if name in PLAIN:
            return Constraint(name)
        case ast.Name(id=name):
            return constraint(*_lookup(name, path))
        case ast.BinOp(left=left, op=ast.BitOr(), right=ast.Constant(value=None)):
            return replace(constraint(left, path), optional=True)
        case ast.Subscript(value=ast.Name(id=form) | ast.Attribute(attr=form), slice=inside):
            return _form(form, inside, annotation, path)
    raise _unreadable(annotation, path)


def _form(form, inside, annotation, path):
    match form, inside:
        case "Literal", _:
            return _choices(inside, annotation, path)
        case "tuple", ast.Tuple(elts=[item, ast.Constant(value=value)]) if value is ...:
            return Constraint("tuple", item=constraint(item, path))
        case "Annotated", ast.Tuple(elts=[number, ast.Call(func=ast.Name(id="Range"), args=[], keywords=keywords)]):
            limits = {keyword.arg: _value(keyword.value, path) for keyword in keywords}
            if limits.keys() <= asdict(Range()).keys():
                return replace(constraint(number, path), **limits)
    raise _unreadable(annotation, path)


def _choices(inside, annotation, path):
    values = tuple(_value(item, path) for item in (inside.elts if isinstance(inside, ast.Tuple) else [inside]))
    types = {type(value) for value in values}
    if types not in ({str}, {int}):
        raise _unreadable(annotation, path)
    return Constraint(types.pop().__name__, choices=values)


def _value(node, path):
    """A plain value, or that of a constant of the module."""
    if isinstance(node, ast.Name):
        return _value(*_lookup(node.id, path))
    try:
        return ast.literal_eval(node)
    except ValueError:
        raise _unreadable(node, path) from None


def _lookup(name, path):
    """The expression that a name stands for at the top of a file, and the file with it; imports are followed."""
    for node in tree(path).body:
        match node:
            case ast.Assign(targets=[ast.Name(id=assigned)], value=value) if assigned == name:
                return value, path
            case ast.ImportFrom(module=str(module), names=names, level=0):
                for imported in names:
                    if name == (imported.asname or imported.name):
                        return _lookup(imported.name, _file(module, path))
    raise InputError(f"{path.name}: {name!r} is no type of an option; it must be {FORMS}")


def _file(module, path):
    found = importlib.util.find_spec(module)
    if found is None or not found.origin or not found.origin.endswith(".py"):
        raise InputError(f"{path.name}: types of options cannot be read from {module}, which has no source text")
    return Path(found.origin)


def _unreadable(node, path):
    return InputError(f"{path.name}: the type of an option must be {FORMS}. Received: {ast.unparse(node)}")


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
    """A dataclass field with its meaning and allowed range.

    Args:
        doc: One line for a person.
        default: Used where the recipe leaves the key out (unless `required`).
        required: The recipe must give it.
        choices: Allowed strings.
        low, high: Inclusive bounds of a number.
        above, below: Exclusive bounds of a number.
        kind: Kind of a plug-in.
        pattern: Regular expression that text must match.
    """
    limits = {"choices": choices, "low": low, "high": high, "above": above, "below": below, "pattern": pattern}
    about = {"doc": doc, "required": required, "kind": kind, "limits": limits}
    if required:
        return field(metadata=about)
    return field(default_factory=dict, metadata=about) if default == {} else field(default=default, metadata=about)


def default_of(field: Field) -> object:
    """Returns the value of a key that a recipe leaves out."""
    return field.default if field.default_factory is MISSING else field.default_factory()


@dataclass(frozen=True)
class Plugin:
    """A plug-in by name with its own options: `{name: labels, clients: 100, per_client: 2}`."""

    name: str
    options: dict = field(default_factory=dict)


def is_plugin(field: Field) -> bool:
    """Tells whether a key holds a plug-in, or null where there need be none."""
    return field.type in (Plugin, Plugin | None)


def is_by_level(field: Field) -> bool:
    """Tells whether a key holds one value for all levels, or a mapping of level to value."""
    return str(field.type).endswith(" | dict")


def plugin_beside(cls: type) -> Field | None:
    """Returns the field of a section for the plug-in whose options stand beside its keys; None: it has none."""
    return next((field for field in fields(cls) if is_plugin(field) and "doc" not in field.metadata), None)


def keys(cls: type) -> dict[str, Field]:
    """Returns the fields of a section that are keys of a recipe, by name."""
    return {field.name: field for field in fields(cls) if "doc" in field.metadata}


def constraint_of(field: Field) -> Constraint:
    """Returns the `Constraint` of a field that holds one value, or one for each level in a mapping."""
    name = field.type.__name__ if isinstance(field.type, type) else str(field.type).removesuffix(" | dict")
    stated = constraint(ast.parse(name, mode="eval").body, Path(__file__))
    return replace(stated, **field.metadata["limits"])
