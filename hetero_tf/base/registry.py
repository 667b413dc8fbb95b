"""The closed table of plug-ins: a kind is a package, a plug-in is a module of it, named after it.

Names, options, types and meanings are read from source text, so a recipe is checked without importing TensorFlow.
A recipe only names what stands here; code of a person's own comes in by `register_plugin` alone.
"""

import ast
import functools
import importlib
import importlib.util
import inspect
import re
import sys
import traceback
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType

from hetero_tf.base.constraints import LARGEST_SIZE, Constraint, constraint, tree
from hetero_tf.base.errors import InputError, did_you_mean

EXPORTS = {
    "data": "load",
    "inputs": "build",
    "partitions": "split",
    "submodels": "keep",
    "masks": "mask",
    "stages": "divide",
    "losses": "loss",
    "couplings": "couple",
    "corrections": "correct",
    "optimizers": "step",
    "updates": "update",
    "servers": "apply",
    "schedules": "multiplier",
}
KINDS = (*EXPORTS, "layers")
# The other kinds have a folder of their own at the top of the package.
OF_METHODS = tuple(kind for kind in EXPORTS if kind not in ("data", "inputs", "partitions"))
FROM_LEVEL = ("scale", "clients")
REQUIRED = inspect.Parameter.empty
_PACKAGE = Path(__file__).parents[1]
_plugged: dict[str, dict[str, str]] = {kind: {} for kind in KINDS}


@dataclass(frozen=True)
class Option:
    """One option of a plug-in or argument of a layer, and what is allowed of it."""

    name: str
    constraint: Constraint
    required: bool
    default: object
    doc: str


def names(kind: str) -> tuple[str, ...]:
    """Sorted names of all plug-ins of a kind; for "layers" the class names of our own and plugged layers."""
    return tuple(sorted({*_shipped(kind), *_plugged[kind]}))


def find(kind: str, name: str) -> ModuleType:
    """The module of a plug-in, imported; `InputError` names what exists."""
    return importlib.import_module(_module_name(kind, name))


def level_arguments(name: str) -> frozenset[str]:
    """Those of "scale" and "clients" that one of our layers takes: the model builder supplies them, no recipe can."""
    if name not in names("layers"):
        return frozenset()
    return frozenset(FROM_LEVEL) & {option.name for option in _arguments(_source("layers", name), name)}


def options(kind: str, name: str) -> dict[str, Option]:
    """The options of a plug-in as `{option: Option}`, read from its source without importing it.

    A plug-in's options are the annotated keyword-only parameters of its function; a layer's are the annotated
    parameters of `__init__`, without those of `level_arguments`. See `constraints` for what annotations may say.

    Raises:
        InputError: There is no such plug-in, or its source has an annotation or a default that cannot be read.
    """
    path = _source(kind, name)
    if kind == "layers":
        return {option.name: option for option in _arguments(path, name) if option.name not in FROM_LEVEL}
    return {option.name: option for option in _keywords(path, EXPORTS[kind])}


def meaning(kind: str, name: str) -> str:
    """Returns what the source of a plug-in or layer says of it: the first paragraph of its docstring."""
    body = tree(_source(kind, name))
    node = _definition(body.body, ast.ClassDef, name) if kind == "layers" else body
    return " ".join((ast.get_docstring(node) or "").partition("\n\n")[0].split())


def register_plugin(module_name: str) -> list[tuple[str, str]]:
    """Imports a person's own module and adds what it defines, for `--plugin pkg.module`.

    A public function named in `EXPORTS` adds a plug-in of that kind under the last part of the module name;
    every public Keras layer defined there becomes a layer. Returns the added (kind, name) pairs.

    Raises:
        InputError: It is no name of a module, cannot be imported (with the line that failed), or adds nothing new.
    """
    if not all(part.isidentifier() for part in module_name.split(".")) or module_name.endswith(".py"):
        raise InputError(
            f"--plugin {module_name}: must name a module as `import` does, not a file{_as_module(module_name)}"
        )
    try:
        module = importlib.import_module(module_name)
    except Exception as error:
        raise InputError(f"--plugin {module_name}: cannot be imported; {_failure(error)}") from error
    short = module_name.rpartition(".")[2]
    added = [(kind, short) for kind, function in EXPORTS.items() if _defined_in(module, function)]
    added += [("layers", name) for name, value in vars(module).items() if _is_layer(module, name, value)]
    if not added:
        raise InputError(
            f"--plugin {module_name}: defines nothing to add; it must define a Keras layer or one of the "
            f"functions {', '.join(EXPORTS.values())}"
        )
    for kind, name in added:
        if name in names(kind) and _plugged[kind].get(name) != module_name:
            raise InputError(f"--plugin {module_name}: {name!r} already exists in {kind}; rename yours")
    for kind, name in added:
        _plugged[kind][name] = module_name
    return added


def plugged() -> tuple[str, ...]:
    """Names of the modules that `register_plugin` has added something of."""
    return tuple(dict.fromkeys(module for of_kind in _plugged.values() for module in of_kind.values()))


def is_plugged(kind: str, name: str) -> bool:
    """Tells whether `register_plugin` added a plug-in."""
    return name in _plugged[kind]


def unannotated(kind: str, name: str) -> frozenset[str]:
    """Returns the parameters of a plug-in that no recipe can set, because they have no annotation."""
    path = _source(kind, name)
    body = tree(path).body
    if kind == "layers":
        body, function = _definition(body, ast.ClassDef, name).body, "__init__"
    else:
        function = EXPORTS[kind]
    node = _definition(body, ast.FunctionDef, function)
    if node is None:
        return frozenset()
    plain = [*node.args.posonlyargs, *node.args.args][1:] if kind == "layers" else []
    return frozenset(each.arg for each in (*plain, *node.args.kwonlyargs) if each.annotation is None)


def _as_module(path):
    """What to type instead of a path, as the end of a sentence."""
    parts = Path(path.removesuffix(".py").removeprefix("./")).parts
    return f"; try --plugin {'.'.join(parts)}" if parts and all(map(str.isidentifier, parts)) else ""


def _failure(error):
    """An error of a person's own module, after the place where it happened if that is in a file of theirs."""
    told = f"{type(error).__name__}: {error}"
    if isinstance(error, SyntaxError):
        return f"{error.filename}:{error.lineno}: SyntaxError: {error.msg}"
    places = [frame for frame in traceback.extract_tb(error.__traceback__) if not _is_importing(frame.filename)]
    return f"{places[-1].filename}:{places[-1].lineno}: {told}" if places else told


def _is_importing(filename):
    return filename.startswith("<frozen importlib") or filename in (__file__, importlib.__file__)


def blamed(error: BaseException) -> str | None:
    """Returns FILE:LINE of the innermost line of a plugged module that an error came through; None if there is none."""
    files = {getattr(sys.modules.get(name), "__file__", None) for name in plugged()}
    lines = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename in files]
    return f"{lines[-1].filename}:{lines[-1].lineno}" if lines else None


def snake_case(name: str) -> str:
    """The file name of a class: `PaddedConv2D` -> `padded_conv2d`, `GELU` -> `gelu`."""
    name = re.sub(r"(.)([A-Z][a-z]+)", r"\1_\2", name)
    return re.sub(r"([a-z])([A-Z])", r"\1_\2", name).lower()


def _defined_in(module, name):
    return inspect.isfunction(getattr(module, name, None)) and getattr(module, name).__module__ == module.__name__


def _is_layer(module, name, value):
    # By name of the base class: importing keras here would make every recipe check wait for it.
    bases = inspect.getmro(value) if inspect.isclass(value) else ()
    return (
        not name.startswith("_")
        and getattr(value, "__module__", None) == module.__name__
        and any(base.__name__ == "Layer" and base.__module__.split(".")[0] == "keras" for base in bases)
    )


def _module_name(kind, name):
    if name not in names(kind):
        raise InputError(f"no {name!r} in {kind}{did_you_mean(name, names(kind))}")
    if name in _plugged[kind]:
        return _plugged[kind][name]
    return ".".join(("hetero_tf", *_folder(kind), _shipped(kind)[name].stem))


def _source(kind, name):
    module = _module_name(kind, name)
    if name in _plugged[kind]:
        return Path(importlib.util.find_spec(module).origin)
    return _shipped(kind)[name]


def _folder(kind):
    """The folders between the package and the modules of a kind."""
    return ("methods", kind) if kind in OF_METHODS else (kind,)


@functools.lru_cache
def _shipped(kind):
    """`{name: file}` of the modules of the package that define what the kind asks for."""
    found = {}
    for path in sorted(_PACKAGE.joinpath(*_folder(kind)).glob("[a-z]*.py")):
        for node in tree(path).body:
            if kind == "layers" and isinstance(node, ast.ClassDef) and snake_case(node.name) == path.stem:
                found[node.name] = path
            elif kind != "layers" and isinstance(node, ast.FunctionDef) and node.name == EXPORTS[kind]:
                found[path.stem] = path
    return found


def _definition(body, kind, name):
    return next((node for node in body if isinstance(node, kind) and node.name == name), None)


@functools.lru_cache
def _keywords(path, function):
    """Options from the keyword-only parameters of a function."""
    node = _definition(tree(path).body, ast.FunctionDef, function)
    return _options(zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True), ast.get_docstring(node) or "", path)


@functools.lru_cache
def _arguments(path, name):
    """Options from `__init__` of a class; none if it has no `__init__`."""
    node = _definition(tree(path).body, ast.ClassDef, name)
    init = _definition(node.body, ast.FunctionDef, "__init__")
    if init is None:
        return ()
    plain = init.args.posonlyargs + init.args.args
    defaults = [None] * (len(plain) - len(init.args.defaults)) + init.args.defaults
    pairs = [*zip(plain, defaults, strict=True), *zip(init.args.kwonlyargs, init.args.kw_defaults, strict=True)]
    return _options(pairs[1:], ast.get_docstring(node) or "", path, sizes=True)


def _options(pairs, docstring, path, sizes=False):
    # A parameter without annotation is for other code (an injected function), never for a recipe.
    meanings, options = argument_docs(docstring), []
    for argument, node in pairs:
        if argument.annotation is not None:
            default = REQUIRED if node is None else _literal(argument.arg, node)
            allowed = _with_limits(constraint(argument.annotation, path), default, sizes)
            doc = meanings.get(argument.arg, "")
            options.append(Option(argument.arg, allowed, default is REQUIRED, default, doc))
    return tuple(options)


def _with_limits(constraint, default, sizes):
    """A plain `int` starts at 1, or at its default where that is lower; that of a layer is a size."""
    if constraint != Constraint("int", constraint.optional):
        return constraint
    low = min(1, default) if isinstance(default, int) else 1
    return replace(constraint, low=low, high=LARGEST_SIZE if sizes else None, sizes=sizes)


def _literal(name, default):
    try:
        return ast.literal_eval(default)
    except ValueError:
        raise InputError(
            f"option {name!r} of a plug-in has a default that is not a plain value; write a number, text, "
            f"tuple, true, false or None. Received: {ast.unparse(default)}"
        ) from None


def argument_docs(docstring: str) -> dict[str, str]:
    """`{argument: meaning}` from the `Args:` section of a docstring, continuation lines joined."""
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
