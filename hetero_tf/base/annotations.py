"""Reads the annotation of an option as a `Constraint`, from source text: no plug-in is imported for it."""

import ast
import functools
import importlib.util
from dataclasses import asdict, replace
from pathlib import Path

from hetero_tf.base.constraints import Constraint, Range
from hetero_tf.base.errors import BadInput

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
        BadInput: It is no such form.
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
    raise BadInput(f"{path.name}: {name!r} is no type of an option; it must be {FORMS}")


def _file(module, path):
    found = importlib.util.find_spec(module)
    if found is None or not found.origin or not found.origin.endswith(".py"):
        raise BadInput(f"{path.name}: types of options cannot be read from {module}, which has no source text")
    return Path(found.origin)


def _unreadable(node, path):
    return BadInput(f"{path.name}: the type of an option must be {FORMS}. Received: {ast.unparse(node)}")
