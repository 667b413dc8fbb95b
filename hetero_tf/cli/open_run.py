"""Shared by commands: the settings of a run, and the state of a run folder."""

import contextlib
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from absl.flags import FlagValues

from hetero_tf.base import hardware, registry
from hetero_tf.base.console import Console
from hetero_tf.base.errors import InputError, NotBuilt, did_you_mean, require_modules
from hetero_tf.base.files import replace_file
from hetero_tf.base.formatting import join_shell
from hetero_tf.cli.flags import program_name
from hetero_tf.recipe.naming import run_name
from hetero_tf.recipe.schema import Recipe
from hetero_tf.runs.run_folder import RunFolder

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from hetero_tf.run.experiment import Settings
    from hetero_tf.run.learning_process import LearningProcess
    from hetero_tf.run.resume import LoadedState


def build_settings(recipe: Recipe, flags: FlagValues) -> "Settings":
    """Return the settings of --run_dir, --data_dir, --threads, --allow_other_machine and --log."""
    from hetero_tf.run.experiment import Settings

    hardware.configure_threads(flags.threads)
    data_dir, trackers = Path(flags.data_dir) if flags.data_dir else None, tuple(dict.fromkeys(flags.log or ()))
    run_dir = Path(flags.run_dir or Path("runs") / run_name(recipe, flags.recipe, list(flags["set"].value or ())))
    return Settings(run_dir, data_dir, flags.threads, flags.allow_other_machine, command_line(), trackers)


def command_line() -> str:
    """Return the command line that the user typed."""
    return join_shell([program_name(), *sys.argv[1:]])


@contextlib.contextmanager
def png_figure(path: str, width: float, height: float) -> Iterator["Figure"]:
    """Yield an empty figure of some inches; it becomes the PNG file of --draw at the end of the block, atomically."""
    require_modules("--draw", ["matplotlib"], "plot")
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), dpi=120, layout="constrained")
    yield figure
    with replace_file(path) as file:
        figure.savefig(file, format="png")


def register_plugins(flags: FlagValues) -> None:
    """Import the modules of --plugin and register their plug-ins."""
    if flags.plugin:
        # Only for --plugin, and at the end of the path: a file in the working folder never shadows a library.
        sys.path.append(os.getcwd())
        hardware.import_quietly()
    for module in flags.plugin:
        try:
            registry.register_plugin(module)
        except SystemExit as error:
            raise InputError(
                f"--plugin {module}: the import ends the program; use a module that only contains definitions"
            ) from error


def open_run(recipe: Recipe, flags: FlagValues, console: Console) -> "tuple[LearningProcess, LoadedState]":
    """Return the learning process of a run folder, and the state of --state."""
    from hetero_tf.run.experiment import open_state

    return open_state(recipe, build_settings(recipe, flags), flags.state, console.say)


def open_levels(
    recipe: Recipe, flags: FlagValues, levels: Sequence[str], console: Console, reads_data: bool
) -> "tuple[LearningProcess, LoadedState]":
    """Open a run folder like `open_run`, for models of levels: without the data if possible, or if they are missing.

    Args:
        reads_data: Read the data; if they are missing, print a note.
    """
    opened = "" if reads_data else _open_described(recipe, flags, levels, console)
    if not isinstance(opened, str):
        return opened
    try:
        return open_run(recipe, flags, console)
    except NotBuilt as problem:
        opened = opened or _open_described(recipe, flags, levels, console)
        # The message precedes the quoted line of the recipe.
        message, *quoted = str(problem).split("\n")
        if isinstance(opened, str):
            raise NotBuilt("\n".join([f"{message}; the data are needed: {opened}", *quoted])) from problem
        console.say(f"note: exported without data, so the files are not evaluated: {message}")
        return opened


def _open_described(recipe, flags, levels, console):
    """Open a run folder without data; if the levels need the data, return the reason."""
    from hetero_tf.run.experiment import open_state

    run = RunFolder(flags.run_dir)
    if not (run.data.exists() and run.partition.exists()):
        return "the run folder has no description of the data"
    process, loaded = open_state(recipe, build_settings(recipe, flags), flags.state, console.say, described=True)
    missing = [level for level in levels if _checkpoint_statistics(process, loaded, level) is None]
    if missing:
        return (
            f"the run folder lacks the batch normalization statistics of level {', '.join(missing)}; runs with "
            "evaluate.levels: all save them for all levels"
        )
    return process, loaded


def _checkpoint_statistics(process, loaded, level):
    """Return the statistics of a level from the checkpoint; None if they must be computed from data."""
    return loaded.statistics.get(level) if process.evaluator.queried(level) else {}


def level_statistics(process: "LearningProcess", loaded: "LoadedState", level: str) -> dict:
    """Return the statistics of a level from the checkpoint, or compute them from data."""
    stored = _checkpoint_statistics(process, loaded, level)
    return process.statistics(loaded.state, level) if stored is None else stored


def check_level(recipe: Recipe, flags: FlagValues, *others: str) -> None:
    """Refuse a --level that the recipe does not have; `others` are additional allowed words."""
    if flags.level is not None and flags.level not in recipe.levels.widths:
        known = [*recipe.levels.widths, *others]
        raise InputError(f"--level {flags.level}: no such level{did_you_mean(flags.level, known)}")
