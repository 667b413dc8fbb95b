"""Contract tests for plug-ins: `check_plugin` in a test of your package, see docs/plugins.md.

from hetero_tf import testing
import my_windows

def test_contract():
    testing.check_plugin("submodels", my_windows)

A violated rule raises `AssertionError` with the plug-in, the rule and the value. The shipped plug-ins pass the same
checks, in tests/contracts, and `violated_contracts` checks those of a recipe once for each version of a file.
"""

import contextlib
import hashlib
import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from hetero_tf.base import registry
from hetero_tf.base.constraints import Plugin
from hetero_tf.base.version import __version__
from hetero_tf.recipe.plugin_rules import plugin_at
from hetero_tf.recipe.recipe_files import PLUGINS
from hetero_tf.recipe.schema import Recipe
from hetero_tf.testing import cut_checks, data_checks, layer_checks, loss_checks, step_checks
from hetero_tf.testing.effects import RESULTS, check_effects
from hetero_tf.testing.subject import Subject

CHECKS = {
    kind: checks
    for module in (cut_checks, data_checks, layer_checks, loss_checks, step_checks)
    for kind, checks in module.CHECKS.items()
}


@dataclass(frozen=True)
class Check:
    """A rule for a plug-in; call it to test the rule, and pass `ids=str` to `pytest.mark.parametrize`.

    Attributes:
        function: Raises `AssertionError` if the plug-in violates the rule.
    """

    subject: Subject
    function: Callable[[Subject], None]

    def __call__(self) -> None:
        self.function(self.subject)

    def __str__(self) -> str:
        return f"{self.subject.name}-{self.function.__name__.removeprefix('check_')}"


def plugin_checks(kind: str, name: str, options: Mapping[str, Any] | None = None, **example: Any) -> list[Check]:
    """Return the checks of a shipped or registered plug-in; see `check_plugin`.

    Args:
        options, example: See `check_plugin`.

    Raises:
        ValueError: The kind is unknown.
    """
    if kind not in CHECKS:
        raise ValueError(f"`kind` must be one of {', '.join(sorted(CHECKS))}. Received: kind={kind!r}")
    subject = Subject(kind, name, options or {}, **example)
    functions = CHECKS[kind] if kind == "layers" else (*COMMON_CHECKS, *CHECKS[kind])
    functions += (check_effects,) if kind in RESULTS else ()
    return [Check(subject, function) for function in functions]


def check_plugin(
    kind: str,
    module: ModuleType,
    options: Mapping[str, Any] | None = None,
    *,
    inputs: np.ndarray | None = None,
    data_dir: str | None = None,
) -> None:
    """Register the plug-ins of a module, and test those of one kind against the contract of the kind.

    Args:
        kind: "submodels", "losses", "layers" and so on, see `base.registry.KINDS`.
        module: The module, which defines the function of the kind, or layers.
        options: Options without a default; for layers, arguments of the constructor.
        inputs: Layers: example inputs, by default images [4, 6, 6, 8].
        data_dir: Data: folder of the data.

    Raises:
        AssertionError: A rule is violated.
        InputError: The module has no plug-in.
        ValueError: The kind is unknown, or the module has no plug-in of it.
    """
    names = [name for each, name in registry.register_plugin(module.__name__) if each == kind]
    checks = [
        check
        for name in names or [""]
        for check in plugin_checks(kind, name, options, inputs=inputs, data_dir=data_dir)
    ]
    if not names:
        raise ValueError(f"`module` must define a plug-in of the kind {kind}. Received: {module.__name__}")
    for check in checks:
        check()


# The row of the function that names the plug-ins of a kind.
CONTRACTS = {row["kind"]: row for row in registry.FUNCTIONS}


def check_parameters(subject: Subject) -> None:
    """Functions have the parameters of their kind; options are keyword-only, the same in each function."""
    kind, options = subject.kind, registry.options(subject.kind, subject.name)
    for row in (row for row in registry.FUNCTIONS if row["kind"] == kind):
        function, expected = row["function"], row["parameters"]
        if function == "remember" and not subject.module.REMEMBERS:
            continue  # A correction without memory.
        if function == "message_bits" and subject.constant("UNBIASED") is None:
            continue  # An update that is no compression.
        subject.require(hasattr(subject.module, function), f"a function `{function}({expected})` is missing")
        parameters = inspect.signature(getattr(subject.module, function)).parameters
        # The outputs of a classification are logits.
        names = ["outputs" if name == "logits" and kind == "losses" else name for name in parameters]
        # Keywords without annotation that are passed only to functions with such a parameter.
        optional = [name for name in row["optional"].split() if name in names]
        others = [name for name in names if name not in options]
        subject.require(
            others == [*expected.split(), *optional], f"`{function}` must have the parameters {expected}", others
        )
        is_plain = all(parameters[name].annotation is inspect.Parameter.empty for name in optional)
        subject.require(is_plain, f"parameters other than options must have no annotation: {optional}")
        for option in options.values():
            parameter = parameters.get(option.name)
            default = inspect.Parameter.empty if option.required else option.default
            is_same = (
                parameter is not None and parameter.kind is parameter.KEYWORD_ONLY and parameter.default == default
            )
            subject.require(is_same, f"`{function}` must have the keyword-only option {option.name} with its default")


def check_options(subject: Subject) -> None:
    """Every option is documented in `Args:` and has a name that recipes do not use otherwise."""
    options = registry.options(subject.kind, subject.name)
    undocumented = [option.name for option in options.values() if not option.doc]
    subject.require(not undocumented, "`Args:` of the docstring must describe every option", undocumented)
    # Keys that a recipe contains next to the options.
    reserved = {"name", *CONTRACTS[subject.kind]["reserved"].split()} & options.keys()
    subject.require(not reserved, "an option must not have the name of another key of recipes", sorted(reserved))


def check_constants(subject: Subject) -> None:
    """Constants of the kind exist with their types."""
    if flag := CONTRACTS[subject.kind]["flag"]:
        value = getattr(subject.module, flag, None)
        subject.require(type(value) is bool, f"{flag} must be True or False", value)
    if subject.kind in ("optimizers", "servers"):
        slots = getattr(subject.module, "SLOTS", None)
        is_valid = isinstance(slots, tuple) and len(set(slots)) == len(slots)
        subject.require(is_valid, "SLOTS must be a tuple of different names", slots)


COMMON_CHECKS = (check_parameters, check_options, check_constants)


# An empty file for each version of a plug-in that keeps its contract.
FOLDER = Path("~/.cache/hetero_tf/contracts")
CHECKED_KINDS = {*registry.METHOD_KINDS, "inputs", "partitions"}
# Hexadecimal digits of the hash in the name of a file.
DIGITS = 16


def violated_contracts(recipe: Recipe) -> list[str]:
    """Return a sentence for each registered plug-in of a recipe that violates the contract of its kind.

    Excluded are layers and loaders of data, whose contracts need examples of the user, and effects of options, which
    these examples may not show.
    """
    sentences = []
    for kind, plugin in _used_plugins(recipe):
        if kind in CHECKED_KINDS and registry.is_registered(kind, plugin.name):
            file = _cache_file(kind, plugin.name)
            if file is None or not file.exists():
                problem = _violated_rule(kind, plugin)
                if problem is not None:
                    sentences.append(f"a plug-in violates the contract of its kind: {problem}")
                elif file is not None:
                    with contextlib.suppress(OSError):
                        file.parent.mkdir(parents=True, exist_ok=True)
                        file.touch()
    return sentences


def _used_plugins(recipe: Recipe) -> Iterator[tuple[str, Plugin]]:
    """Yield the kind and the plug-in of every key of a recipe, and the metrics that it names."""
    for path, option in PLUGINS.items():
        if (plugin := plugin_at(recipe, path)) is not None:
            yield option.constraint.kind, plugin
    for name in recipe.metrics:
        yield "metrics", Plugin(name)


def _cache_file(kind, name):
    """Return the path whose existence says that a plug-in keeps its contract; None without a home folder."""
    source = inspect.getsource(registry.find(kind, name))
    key = hashlib.sha256("\n".join([__version__, source]).encode("utf-8", "backslashreplace")).hexdigest()[:DIGITS]
    try:
        return FOLDER.expanduser() / f"{kind}-{name}-{key}"
    except RuntimeError:
        return None


def _violated_rule(kind, plugin):
    """Return the first rule that a plug-in violates, with its name; None if it keeps all of them."""
    # The examples of the contract have their own channels and clients.
    of_examples = (*(registry.constant(kind, plugin.name, "PER_CHANNEL") or ()), "clients")
    options = {name: value for name, value in plugin.options.items() if name not in of_examples}
    for check in plugin_checks(kind, plugin.name, options):
        if check.function is check_effects:
            continue
        try:
            check()
        except AssertionError as error:
            lines = str(error).strip().splitlines()
            rule = next((line for line in lines if line.startswith(str(check.subject))), str(check))
            return rule.partition(". Received:")[0]
        # The code of a plug-in may raise anything.
        except Exception as error:
            return f"{check.subject}: {check} ends with {type(error).__name__}: {' '.join(str(error).split())[:200]}"
    return None
