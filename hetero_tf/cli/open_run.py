"""What commands share: the settings of a run, and the state of a run folder."""

import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from hetero_tf.base import hardware, registry
from hetero_tf.base.console import Console
from hetero_tf.base.errors import InputError, NotBuilt, did_you_mean
from hetero_tf.cli.flags import program

if TYPE_CHECKING:
    from absl.flags import FlagValues

    from hetero_tf.process.learning_process import LearningProcess
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
        InputError: One cannot be imported, or adds nothing.
    """
    if flags.plugin:
        # Only for --plugin, and behind everything else: a file of the working folder never replaces a library.
        sys.path.append(os.getcwd())
        hardware.import_quietly()
    for module in flags.plugin:
        try:
            registry.register_plugin(module)
        except SystemExit as error:
            raise InputError(
                f"--plugin {module}: ends the program when it is imported; give a module that only defines things"
            ) from error


def open_run(recipe: "Recipe", flags: "FlagValues", console: Console) -> "tuple[LearningProcess, Opened]":
    """Returns the process of a run folder, and the state that --state names."""
    from hetero_tf.run.load_run import open_state

    return open_state(recipe, settings_of(recipe, flags), flags.state, console.say)


def open_described(
    recipe: "Recipe", flags: "FlagValues", levels: Sequence[str], console: Console
) -> "tuple[LearningProcess, Opened] | str":
    """Opens a run folder as `open_run` does, without the data; returns why `levels` need the data where they do."""
    from hetero_tf.run.load_run import open_state
    from hetero_tf.store.run_folder import RunFolder

    run = RunFolder(flags.run_dir)
    if not (run.data.exists() and run.partition.exists()):
        return "the run folder has no description of the data"
    if recipe.evaluate.members != "first":
        return f"evaluate.members: {recipe.evaluate.members} compares networks on held-out examples"
    process, found = open_state(recipe, settings_of(recipe, flags), flags.state, console.say, described=True)
    missing = [level for level in levels if _sealed_statistics(process, found, level) is None]
    if missing:
        return (
            f"the run folder lacks the batch normalization statistics of level {', '.join(missing)}; it has those of "
            "all levels where the recipe says evaluate.levels: all"
        )
    return process, found


def open_with_data(
    recipe: "Recipe", flags: "FlagValues", console: Console, reason: str
) -> "tuple[LearningProcess, Opened]":
    """Opens a run folder as `open_run` does; an error about the data says why they are needed."""
    try:
        return open_run(recipe, flags, console)
    except NotBuilt as problem:
        raise data_needed(problem, reason) from problem


def data_needed(problem: NotBuilt, reason: str) -> NotBuilt:
    """Returns an error with the reason why a command needs the data, see `open_described`."""
    # The line of the recipe and its mark follow the sentence.
    sentence, *quoted = str(problem).split("\n")
    return NotBuilt("\n".join([f"{sentence}; the data are needed: {reason}", *quoted]))


def _sealed_statistics(process, found, level):
    """The statistics of a level as the state was sealed with them; None where they have to be queried."""
    from hetero_tf.evaluation.calibration import statistics_paths

    if not statistics_paths(process.family.predictor(level)):
        return {}
    return found.statistics.get(level)


def statistics_of(process: "LearningProcess", found: "Opened", level: str) -> dict:
    """Returns the statistics of a level: the sealed ones where there are any, else queried."""
    sealed = _sealed_statistics(process, found, level)
    return process.statistics(found.state, level) if sealed is None else sealed


def check_level(recipe: "Recipe", flags: "FlagValues", *others: str) -> None:
    """Refuses a --level that the recipe does not have; `others` are words that are allowed besides."""
    if flags.level is not None and flags.level not in recipe.levels.widths:
        known = [*recipe.levels.widths, *others]
        raise InputError(f"--level {flags.level}: no such level{did_you_mean(flags.level, known)}")
