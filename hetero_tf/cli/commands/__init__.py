"""Commands, one module each, selected by the first word of the command line.

A module defines `USAGE`, `SUMMARY`, `FLAGS` (its flags in addition to `COMMON`), `WORDS` (the flag that receives the
words after the command, or None) and `SOURCE` (the flag that names its recipe, "recipe" or "run_dir", or None).
`run(recipe, flags, console)` executes the command and returns its result, ready for JSON. Importing a module must not
import TensorFlow.
"""

import importlib.util
from types import ModuleType

# In the order of typical use.
_ORDER = (
    *(
        "new",
        "train",
        "launch",
        "sweep",
        "describe",
        "evaluate",
        "similarity",
        "export",
        "predict",
        "serve",
        "flower",
        "measure-device",
    ),
    *("list", "compare", "plot", "report", "tensorboard", "explain", "schema"),
)


def module_name(command: str) -> str:
    """Return the name of the module of a command."""
    return f"{__name__}.{command.replace('-', '_')}"


# The commands of an outer package are available only if it is installed.
NAMES = tuple(name for name in _ORDER if importlib.util.find_spec(module_name(name)) is not None)
# Commands that do not load TensorFlow.
WITHOUT_TENSORFLOW = (
    *("new", "sweep", "flower", "measure-device"),
    *("list", "compare", "plot", "report", "tensorboard", "explain", "schema"),
)
# Commands that continue a stopped run when called again.
RESUMABLE = ("train", "launch", "sweep", "flower")
COMMON = ("json", "quiet", "debug", "help", "version")
# Flags of every command that builds a recipe.
RECIPE_FLAGS = ("set", "plugin", "data_dir", "threads")


def find(name: str) -> ModuleType:
    """Return the module of a command in `NAMES`."""
    return importlib.import_module(module_name(name))


def commands_with_flag(flag: str) -> list[str]:
    """Return the commands on which a flag has an effect."""
    return [name for name in NAMES if flag in COMMON or flag in find(name).FLAGS]
