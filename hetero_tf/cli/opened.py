"""What commands share: the settings of a run, and the state of a run folder."""

import os
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from hetero_tf.base import hardware, registry
from hetero_tf.base.console import Console
from hetero_tf.base.errors import BadInput, did_you_mean
from hetero_tf.cli.flags import program

if TYPE_CHECKING:
    from absl.flags import FlagValues

    from hetero_tf.process import LearningProcess
    from hetero_tf.recipe.schema import Recipe
    from hetero_tf.run.checkpoint import Opened
    from hetero_tf.run.experiment import Settings


def settings_of(recipe: "Recipe", flags: "FlagValues") -> "Settings":
    """Returns what --run_dir, --data_dir, --threads and --allow_other_machine say of a run."""
    from hetero_tf.run.experiment import Settings

    hardware.prepare(flags.threads)
    data_dir = Path(flags.data_dir) if flags.data_dir else None
    return Settings(run_dir_of(recipe, flags), data_dir, flags.threads, flags.allow_other_machine, typed())


def run_dir_of(recipe: "Recipe", flags: "FlagValues") -> Path:
    """Returns the folder of a run: --run_dir, or a folder below `runs` named after the recipe and what was set."""
    from hetero_tf.recipe.naming import run_name

    return Path(flags.run_dir or Path("runs") / run_name(recipe, flags.recipe, list(flags["set"].value or ())))


def typed() -> str:
    """Returns the command as a person typed it."""
    return shlex.join([program(), *sys.argv[1:]])


def register_plugins(flags: "FlagValues") -> None:
    """Imports the modules of --plugin, which then belong to the plug-ins that recipes name.

    Raises:
        BadInput: One cannot be imported, or adds nothing.
    """
    if flags.plugin:
        # Only for --plugin, and behind everything else: a file of the working folder never replaces a library.
        sys.path.append(os.getcwd())
        hardware.import_quietly()
    for module in flags.plugin:
        try:
            registry.register_plugin(module)
        except SystemExit as error:
            raise BadInput(
                f"--plugin {module}: ends the program when it is imported; give a module that only defines things"
            ) from error


def open_run(recipe: "Recipe", flags: "FlagValues", console: Console) -> "tuple[LearningProcess, Opened]":
    """Returns the process of a run folder, and the state that --state names."""
    from hetero_tf.run.opened import open_state

    return open_state(recipe, settings_of(recipe, flags), flags.state, console.say)


def statistics_of(process: "LearningProcess", found: "Opened", level: str) -> dict:
    """Returns the statistics of a level: those that the state was sealed with where they are its own, else queried."""
    sealed = found.statistics if level == process.recipe.levels.global_level else None
    return sealed or process.statistics(found.state, level)


def check_level(recipe: "Recipe", flags: "FlagValues", *others: str) -> None:
    """Refuses a --level that the recipe does not have; `others` are words that are allowed besides."""
    if flags.level is not None and flags.level not in recipe.levels.widths:
        known = [*recipe.levels.widths, *others]
        raise BadInput(f"--level {flags.level}: no such level{did_you_mean(flags.level, known)}")
