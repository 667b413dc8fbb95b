"""Plug-in modules that installed packages offer by entry points; reading them imports nothing."""

import os
import sys
from dataclasses import dataclass
from importlib import metadata

from hetero_tf.base.errors import InputError

GROUP = "hetero_tf.plugins"


@dataclass(frozen=True)
class InstalledPlugin:
    """A plug-in module of an installed package.

    Attributes:
        name: Name of the entry point, for --plugin.
        module: Module with the plug-in.
        package: Name and version of the package.
        problem: Reason why the entry point cannot be used, or None.
    """

    name: str
    module: str
    package: str
    problem: str | None = None


def installed_plugins() -> list[InstalledPlugin]:
    """Return the entry points of all installed packages, sorted by name, except those of the working folder."""
    folders = [folder for folder in sys.path if os.path.realpath(folder) != os.path.realpath(os.getcwd())]
    by_package: dict[str, list[InstalledPlugin]] = {}
    for distribution in metadata.distributions(path=folders):
        # Python imports the first of several copies.
        by_package.setdefault(distribution.name or "unnamed", _entry_points(distribution))
    entries = [entry for package in by_package.values() for entry in package]
    return sorted(entries, key=lambda entry: (entry.name, entry.package))


def find_module(name: str) -> str | None:
    """Return the module of an entry point, or None if no installed package has one of this name.

    Raises:
        InputError: Several packages define it, or it does not name a module.
    """
    entries = [entry for entry in installed_plugins() if entry.name == name]
    if len({entry.module for entry in entries}) > 1:
        owners = " and ".join(entry.package for entry in entries)
        advice = " or ".join(f"--plugin {entry.module}" for entry in entries)
        raise InputError(f"--plugin {name}: is defined by {owners}; uninstall all but one, or name a module: {advice}")
    if not entries:
        return None
    if entries[0].problem:
        raise InputError(f"--plugin {name}: the package {entries[0].package} {entries[0].problem}")
    return entries[0].module


def _entry_points(distribution):
    package = f"{distribution.name} {distribution.version}"
    try:
        points = [(point.name, point.value) for point in distribution.entry_points if point.group == GROUP]
    except Exception as error:  # The file may hold any text.
        text = distribution.read_text("entry_points.txt") or ""
        problem = f"has an entry_points.txt that cannot be read: {error}"
        return [InstalledPlugin("?", "?", package, problem)] if GROUP in text else []
    return [InstalledPlugin(name, value, package, _problem_of(value)) for name, value in points]


def _problem_of(value):
    if all(part.isidentifier() for part in value.split(".")):
        return None
    return f"must name a module in its entry point, such as my_package.windows. Received: {value!r}"
