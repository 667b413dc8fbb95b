"""What commands share: the settings of a run, and the state of a run folder."""

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from hetero_tf.base import hardware
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
    from hetero_tf.recipe.naming import run_name
    from hetero_tf.run.experiment import Settings

    hardware.prepare(flags.threads)
    run_dir = Path(flags.run_dir or Path("runs") / run_name(recipe, flags.recipe, flags["set"].value))
    data_dir = Path(flags.data_dir) if flags.data_dir else None
    command = shlex.join([program(), *sys.argv[1:]])
    return Settings(run_dir, data_dir, flags.threads, flags.allow_other_machine, command)


def open_run(recipe: "Recipe", flags: "FlagValues", console: Console) -> "tuple[LearningProcess, Opened]":
    """Returns the process of a run folder, and the state that --state names."""
    from hetero_tf.run import best, experiment, facts, resume
    from hetero_tf.run.checkpoint import open_newest
    from hetero_tf.store.run_folder import RunFolder

    run = RunFolder(flags.run_dir)
    # Read before the state, as a training that goes on seals the best state first.
    newest = facts.newest(run)
    folder = run.best if flags.state == "best" else run.checkpoints
    process = experiment.build_process(recipe, settings_of(recipe, flags), run)
    found = open_newest(folder, process)
    if found is None:
        also = " or choose --state last" if flags.state == "best" and run.checkpoints.exists() else ""
        raise BadInput(f"{folder}: holds no finished round yet; train first{also}")
    about = facts.of(found.sealed, folder)
    resume.check_stored_recipe(run, newest or about)
    if flags.state == "best":
        best.require(run, about, newest)
        if newest is not None and newest["best_seal"] is None:
            console.say("note: an earlier version sealed this run; its best state is known by its round and metrics")
    for sentence in found.skipped:
        console.say(f"skipped: {sentence}")
    return process, found


def statistics_of(process: "LearningProcess", found: "Opened", level: str) -> dict:
    """Returns the statistics of a level: those that the state was sealed with where they are its own, else queried."""
    sealed = found.statistics if level == process.recipe.levels.global_level else None
    return sealed or process.statistics(found.state, level)


def check_level(recipe: "Recipe", flags: "FlagValues", *others: str) -> None:
    """Refuses a --level that the recipe does not have; `others` are words that are allowed besides."""
    if flags.level is not None and flags.level not in recipe.levels.widths:
        known = [*recipe.levels.widths, *others]
        raise BadInput(f"--level {flags.level}: no such level{did_you_mean(flags.level, known)}")
