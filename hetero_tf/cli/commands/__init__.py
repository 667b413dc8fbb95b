"""The commands, a module each; the first word behind the program's name chooses one.

A module says in `USAGE` how the command is called, in `SUMMARY` what it does, in `FLAGS` which flags have an effect on
it besides `COMMON`, in `WORDS` which flag takes the words behind its name (None: there are none), and in `SOURCE` which
flag names its recipe, "recipe" or "run_dir" (None: it reads none). `run(recipe, flags, console)` does the work and
returns its result, ready for JSON. Importing a module must not import TensorFlow.
"""

import importlib.util
from types import ModuleType

# In the order in which users meet them.
_ORDER = (
    *("train", "launch", "sweep", "describe", "evaluate", "export", "predict", "serve", "flower"),
    *("list", "compare", "plot", "report", "tensorboard", "explain", "schema"),
)
# A package that is not installed takes its commands with it.
NAMES = tuple(name for name in _ORDER if importlib.util.find_spec(f"{__name__}.{name}") is not None)
# They answer without TensorFlow.
QUICK = ("sweep", "flower", "list", "compare", "plot", "report", "tensorboard", "explain", "schema")
# Once stopped, they go on by the same command.
RESUMED = ("train", "launch", "sweep", "flower")
COMMON = ("json", "quiet", "debug", "help", "version")
# Of every command that builds what a recipe describes.
OF_RECIPES = ("set", "plugin", "data_dir", "threads")


def find(name: str) -> ModuleType:
    """Returns the module of a command in `NAMES`."""
    return importlib.import_module(f"{__name__}.{name}")


def with_flag(flag: str) -> list[str]:
    """Lists the commands on which a flag has an effect."""
    return [name for name in NAMES if flag in COMMON or flag in find(name).FLAGS]
