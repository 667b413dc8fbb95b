"""Contracts of the registered plug-ins that a recipe uses, checked once for each version of a file."""

import contextlib
import hashlib
import inspect
from collections.abc import Iterator
from functools import reduce
from pathlib import Path

from hetero_tf.base import registry
from hetero_tf.base.constraints import Plugin
from hetero_tf.base.version import __version__
from hetero_tf.recipe.changes import PLUGINS
from hetero_tf.recipe.schema import Recipe
from hetero_tf.testing import plugin_checks

# An empty file for each version of a plug-in that keeps its contract.
FOLDER = Path("~/.cache/hetero_tf/contracts")
CHECKED_KINDS = {*registry.METHOD_KINDS, "inputs", "partitions"}
# Hexadecimal digits of the hash in the name of a file.
DIGITS = 16


def violated_contracts(recipe: Recipe) -> list[str]:
    """Return a sentence for each registered plug-in of a recipe that violates the contract of its kind.

    Excluded are layers and loaders of data, whose contracts need examples of the user.
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
        value = reduce(getattr, path, recipe)
        plugin = value if isinstance(value, Plugin | None) else getattr(value, option.name)
        if plugin is not None:
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
