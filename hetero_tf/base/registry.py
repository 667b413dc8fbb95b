"""Closed registry of plug-ins: a kind is a package, and each of its modules is a plug-in with the module's name.

Names, options, types and meanings are read from source text, so recipes are checked without importing TensorFlow.
A recipe can only name registered plug-ins; `register_plugin` is the only way to add user code.
"""

import ast
import functools
import importlib
import inspect
import re
import sys
import traceback
from collections.abc import Callable
from hashlib import sha256
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import Any

from hetero_tf.base.constraints import (
    LARGEST_SIZE,
    REQUIRED,
    Option,
    Plugin,
    argument_docs,
    build_option,
    find_source,
    parse_annotation,
    parse_source,
)
from hetero_tf.base.errors import InputError, did_you_mean
from hetero_tf.base.files import read_rows

# Group of the entry points by which installed packages offer modules with plug-ins.
GROUP = "hetero_tf.plugins"


def installed_plugins() -> list[metadata.EntryPoint]:
    """Return the entry points of installed packages, sorted by name; nothing is imported."""
    return sorted(metadata.entry_points(group=GROUP), key=lambda point: (point.name, package_of(point)))


def package_of(point: metadata.EntryPoint) -> str:
    """Return the name and version of the package of an entry point."""
    return "unnamed" if point.dist is None else f"{point.dist.name} {point.dist.version}"


def find_module(name: str) -> str | None:
    """Return the module of an entry point, or None if no installed package has one of this name.

    Raises:
        InputError: Several packages define it.
    """
    points = [point for point in installed_plugins() if point.name == name]
    if len({point.value for point in points}) > 1:
        owners = " and ".join(map(package_of, points))
        advice = " or ".join(f"--plugin {point.value}" for point in points)
        raise InputError(f"--plugin {name}: is defined by {owners}; uninstall all but one, or name a module: {advice}")
    return points[0].value if points else None


# The functions of every kind with their parameters; the last one of a kind names its plug-ins.
FUNCTIONS = read_rows(Path(__file__).with_name("plugin_kinds.csv"))
EXPORTS = {row["kind"]: row["function"] for row in FUNCTIONS if row["function"]}
_FOLDERS = {row["kind"]: tuple(row["folder"].split("/")) for row in FUNCTIONS}
KINDS = tuple(_FOLDERS)
METHOD_KINDS = tuple(kind for kind, parts in _FOLDERS.items() if parts[0] == "methods")
LEVEL_PARAMETERS = ("scale", "clients")
_PACKAGE = Path(__file__).parents[1]
_registered: dict[str, dict[str, str]] = {kind: {} for kind in KINDS}


def names(kind: str) -> tuple[str, ...]:
    """Return the sorted plug-in names of a kind; for "layers", the class names of shipped and registered layers."""
    return tuple(sorted({*_shipped(kind), *_registered[kind]}))


def module_name(kind: str, name: str) -> str:
    """Return the name of the module of a plug-in, which is not imported; `InputError` lists the existing names."""
    if name not in names(kind):
        raise InputError(f"no {name!r} in {kind}{did_you_mean(name, names(kind))}")
    if name in _registered[kind]:
        return _registered[kind][name]
    return ".".join(("hetero_tf", *folder(kind), _shipped(kind)[name].stem))


def find(kind: str, name: str) -> ModuleType:
    """Import and return the module of a plug-in; `InputError` lists the existing names."""
    return importlib.import_module(module_name(kind, name))


def level_arguments(name: str) -> frozenset[str]:
    """Return the parameters of a layer ("scale", "clients") that the model builder sets and recipes cannot."""
    if name not in names("layers"):
        return frozenset()
    return frozenset(LEVEL_PARAMETERS) & {option.name for option in _arguments(_source("layers", name), name)}


def options(kind: str, name: str) -> dict[str, Option]:
    """Return the options of a plug-in as `{option: Option}`, read from its source without importing it.

    Options of a plug-in are the annotated keyword-only parameters of its function. Options of a layer are the annotated
    parameters of `__init__`, except those of `level_arguments`. `constraints` describes the annotations.

    Raises:
        InputError: The plug-in does not exist, or an annotation or default cannot be read.
    """
    path = _source(kind, name)
    if kind == "layers":
        return {option.name: option for option in _arguments(path, name) if option.name not in LEVEL_PARAMETERS}
    return {option.name: option for option in _keywords(path, function_name(kind, name))}


def function_name(kind: str, name: str) -> str:
    """Return the name of a plug-in's function: that of its kind, or FUNCTION of a model function MODULE:FUNCTION."""
    return name.partition(":")[2] or EXPORTS[kind]


def function_of(kind: str, plugin: Plugin, name: str | None = None) -> Callable:
    """Return a function of a plug-in with the recipe's options: by default the main one of its kind."""
    function = getattr(find(kind, plugin.name), name or function_name(kind, plugin.name))
    return functools.partial(function, **plugin.options)


def constant(kind: str, name: str, attribute: str) -> Any:
    """Return a constant of a plug-in's module or a layer's class, read from its source without importing it, or None.

    Raises:
        InputError: Its value is not a plain value.
    """
    return _constant(_source(kind, name), attribute, name if kind == "layers" else None)


def constants(kind: str, name: str, attribute: str) -> list:
    """Return a constant of the package of a kind, which holds for all of its plug-ins, and of a plug-in, if defined.

    Raises:
        InputError: See `constant`.
    """
    values = (_constant(_PACKAGE.joinpath(*folder(kind), "__init__.py"), attribute), constant(kind, name, attribute))
    return [value for value in values if value is not None]


def meaning(kind: str, name: str) -> str:
    """Return the first paragraph of the docstring of a plug-in or layer; its name without one."""
    body = parse_source(_source(kind, name))
    node = _definition(body.body, ast.ClassDef, name) if kind == "layers" else body
    return " ".join((ast.get_docstring(node) or name).partition("\n\n")[0].split())


def register_plugin(module_name: str) -> list[tuple[str, str]]:
    """Import a user module and register its plug-ins, for `--plugin pkg.module`.

    A public function named in `EXPORTS` adds a plug-in of that kind, named after the last part of the module name.
    Every public Keras layer defined there becomes a layer, and every public function whose first parameter is `width`
    becomes a model function, named MODULE:FUNCTION. Returns the added (kind, name) pairs.

    Args:
        module_name: The module, or the name of an entry point of an installed package, which takes precedence.

    Raises:
        InputError: The name is invalid, the import failed (with the line), or the module adds nothing new.
    """
    requested, module_name = module_name, find_module(module_name) or module_name
    if not all(part.isidentifier() for part in module_name.split(".")) or module_name.endswith(".py"):
        raise InputError(f"--plugin {requested}: must name a module as `import` does, such as own.layers, not a file")
    try:
        module = importlib.import_module(module_name)
    except Exception as error:
        raise InputError(f"--plugin {requested}: cannot be imported; {_describe_failure(error)}") from error
    short = module_name.rpartition(".")[2]
    models = model_functions(module)
    others = [(kind, name) for kind, name in EXPORTS.items() if kind != "models" and name not in models]
    added = [(kind, short) for kind, name in others if _defined_in(module, name)]
    added += [("models", f"{short}:{name}") for name in models]
    added += [("layers", name) for name, value in vars(module).items() if _is_layer(module, name, value)]
    if not added:
        raise InputError(
            f"--plugin {requested}: defines nothing to add; it must define a Keras layer, a function "
            f"(width, classes) -> keras.Model, or one of the functions {', '.join(dict.fromkeys(EXPORTS.values()))}"
        )
    if find_source(module_name) is None:
        raise InputError(f"--plugin {requested}: must have a source file (.py), from which its options are read")
    for kind, name in added:
        if name in names(kind) and _registered[kind].get(name) != module_name:
            raise InputError(f"--plugin {requested}: {name!r} already exists in {kind}; rename yours")
    for kind, name in added:
        _registered[kind][name] = module_name
    return added


def model_functions(module: ModuleType) -> dict[str, Callable]:
    """Return the public functions of a module whose first parameter is `width`, by name."""
    functions = {name: value for name, value in vars(module).items() if name[0] != "_" and _defined_in(module, name)}
    return {name: each for name, each in functions.items() if [*inspect.signature(each).parameters][:1] == ["width"]}


def plugin_modules() -> tuple[str, ...]:
    """Return the names of the modules that `register_plugin` has added."""
    return tuple(dict.fromkeys(module for of_kind in _registered.values() for module in of_kind.values()))


def plugin_digests() -> dict[str, str]:
    """Return the first 16 digits of the SHA-256 of the source of each module that `register_plugin` has added."""
    sources = {module: find_source(module) for module in plugin_modules()}
    return {module: sha256(file.read_bytes()).hexdigest()[:16] for module, file in sources.items() if file}


def registered_plugins() -> tuple[tuple[str, str], ...]:
    """Return the sorted (kind, name) pairs that `register_plugin` has added."""
    return tuple(sorted((kind, name) for kind, of_kind in _registered.items() for name in of_kind))


def is_registered(kind: str, name: str) -> bool:
    """Return True for a plug-in that `register_plugin` added."""
    return name in _registered[kind]


def _describe_failure(error):
    """Describe an error of a user module, with file and line if it was raised there."""
    message = f"{type(error).__name__}: {error}"
    if isinstance(error, SyntaxError):
        return f"{error.filename}:{error.lineno}: SyntaxError: {error.msg}"
    ours = ("<frozen importlib", __file__, importlib.__file__)
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith(ours)]
    return f"{frames[-1].filename}:{frames[-1].lineno}: {message}" if frames else message


def plugin_location(error: BaseException) -> str | None:
    """Return FILE:LINE of the innermost traceback line in a registered module, or None."""
    files = {getattr(sys.modules.get(name), "__file__", None) for name in plugin_modules()}
    lines = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename in files]
    return f"{lines[-1].filename}:{lines[-1].lineno}" if lines else None


def snake_case(name: str) -> str:
    """Return the file name of a class: `PaddedConv2D` -> `padded_conv2d`, `GELU` -> `gelu`."""
    name = re.sub(r"(.)([A-Z][a-z]+)", r"\1_\2", name)
    return re.sub(r"([a-z])([A-Z])", r"\1_\2", name).lower()


def _defined_in(module, name):
    return inspect.isfunction(getattr(module, name, None)) and getattr(module, name).__module__ == module.__name__


def _is_layer(module, name, value):
    # Compare the name of the base class: importing keras here would delay every recipe check.
    bases = inspect.getmro(value) if inspect.isclass(value) else ()
    return (
        not name.startswith("_")
        and getattr(value, "__module__", None) == module.__name__
        and any(base.__name__ == "Layer" and base.__module__.split(".")[0] == "keras" for base in bases)
    )


def _source(kind, name):
    module = module_name(kind, name)
    if name in _registered[kind]:
        source = find_source(module)
        assert source is not None  # `register_plugin` has found it
        return source
    return _shipped(kind)[name]


def folder(kind):
    """Return the folders from the package to the modules of a kind."""
    return _FOLDERS[kind]


@functools.lru_cache
def _shipped(kind):
    """Return `{name: file}` of the shipped modules that define the function or layer of a kind."""
    file_by_name = {}
    for path in sorted(_PACKAGE.joinpath(*folder(kind)).glob("[a-z]*.py")):
        for node in parse_source(path).body:
            if kind == "layers" and isinstance(node, ast.ClassDef) and snake_case(node.name) == path.stem:
                file_by_name[node.name] = path
            elif kind != "layers" and isinstance(node, ast.FunctionDef) and node.name == EXPORTS[kind]:
                file_by_name[path.stem] = path
            elif isinstance(node, ast.ImportFrom) and EXPORTS.get(kind) in [each.name for each in node.names]:
                # A second name of a plug-in.
                file_by_name[path.stem] = _PACKAGE.parent / f"{(node.module or '').replace('.', '/')}.py"
    return file_by_name


def _definition(body, kind, name):
    return next((node for node in body if isinstance(node, kind) and node.name == name), None)


@functools.cache
def _constant(path, attribute, layer=None):
    tree = parse_source(path)
    for node in (_definition(tree.body, ast.ClassDef, layer) if layer else tree).body:
        match node:
            case ast.Assign(targets=[ast.Name(id=assigned)], value=value) if assigned == attribute:
                return _literal(value, attribute, path)
    return None


@functools.cache
def _keywords(path, function):
    node = _definition(parse_source(path).body, ast.FunctionDef, function)
    return _options(node.args.kwonlyargs, node.args.kw_defaults, ast.get_docstring(node), path)


@functools.cache
def _arguments(path, name):
    """Return options from `__init__` of a class; none if it has no `__init__`."""
    node = _definition(parse_source(path).body, ast.ClassDef, name)
    init = _definition(node.body, ast.FunctionDef, "__init__")
    if init is None:
        return ()
    plain = (init.args.posonlyargs + init.args.args)[1:]
    defaults = [*[None] * (len(plain) - len(init.args.defaults)), *init.args.defaults, *init.args.kw_defaults]
    return _options([*plain, *init.args.kwonlyargs], defaults, ast.get_docstring(node), path, LARGEST_SIZE)


def _options(parameters, defaults, docstring, path, largest=None):
    """Return the options of parameters with an annotation; others are for other code (an injected function)."""
    docs, options = argument_docs(docstring or ""), []
    for parameter, node in zip(parameters, defaults, strict=True):
        if parameter.annotation is not None:
            default = REQUIRED if node is None else _literal(node, parameter.arg, path)
            constraint = parse_annotation(parameter.annotation, path)
            options.append(build_option(parameter.arg, constraint, default, docs.get(parameter.arg, ""), largest))
    return tuple(options)


def _literal(node, name, path):
    try:
        return ast.literal_eval(node)
    except ValueError:
        raise InputError(
            f"{path.name}:{node.lineno}: {name} must be a plain value, since the module is not imported: numbers, "
            f"texts, lists or dictionaries. Received: {ast.unparse(node)}"
        ) from None
