"""Commands, one module each, selected by the first word of the command line.

A module defines `USAGE`, `SUMMARY`, `FLAGS` (its flags in addition to `COMMON`), `WORDS` (the flag that receives the
words after the command, or None) and `SOURCE` (the flag that names its recipe, "recipe" or "run_dir", or None).
`run(recipe, flags, console)` executes the command and returns its result, ready for JSON. Importing a module must not
import TensorFlow.

Modules:

    compare         `compare`: a table of runs with the mean and spread over seeds of their metrics and costs
    describe        `describe`: prints the costs of a recipe and the split of its data; draws the split into --draw
    evaluate        `evaluate`: evaluates a state of a run, including the model of every level with --levels all
    explain         `explain`: prints the meaning of a word of the output or of a recipe
    export          `export`: writes a state of a run as SavedModels, for one level or all levels of the mix
    flower          `flower`: trains a recipe on real devices with Flower: `keys`
    launch          `launch`: trains a recipe with several logical devices of this machine that share each round
    list            `list`: shipped recipes and sweeps, and the progress of the runs in runs/ or in the named folders
    measure_device  `measure-device`: measures the training speed of this device with exported files
    new             `new`: writes a commented recipe for data of the user, which trains without changes
    plot            `plot`: draws learning curves of runs, or accuracy over the size of the client models
    predict         `predict`: predicts pictures, clips, table rows and texts, single ones or whole files, with ...
    report          `report`: one HTML page about runs, finished or running, with figures, tables and costs
    schema          `schema`: prints the JSON Schema of recipes, with which editors complete and check them
    serve           `serve`: serves the exports of a run, or of --out, over HTTP
    similarity      `similarity`: linear CKA and SVCCA between the local models of two clients, unit by unit
    sweep           `sweep`: trains a recipe with many values, several runs in parallel; the same command resumes
    tensorboard     `tensorboard`: writes the metrics of runs as event files
    train           `train`: trains a recipe in its run folder, or resumes the run
    upgrade         `upgrade`: rewrites recipes and sweeps with keys or values in an old spelling
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
    *("list", "compare", "plot", "report", "tensorboard", "explain", "schema", "upgrade"),
)


def module_name(command: str) -> str:
    """Return the name of the module of a command."""
    return f"{__name__}.{command.replace('-', '_')}"


# The commands of an outer package are available only if it is installed.
NAMES = tuple(name for name in _ORDER if importlib.util.find_spec(module_name(name)) is not None)
# Commands that do not load TensorFlow.
WITHOUT_TENSORFLOW = (
    *("new", "sweep", "flower", "measure-device"),
    *("list", "compare", "plot", "report", "tensorboard", "explain", "schema", "upgrade"),
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
