"""`train`: trains a recipe in its run folder, or goes on with it."""

import os
import shlex
from typing import TYPE_CHECKING

from hetero_tf.base.console import Console, duration
from hetero_tf.base.errors import InputError
from hetero_tf.cli.commands import OF_RECIPES
from hetero_tf.cli.flags import again, program
from hetero_tf.cli.open_run import settings_of

if TYPE_CHECKING:
    from absl.flags import FlagValues

    from hetero_tf.recipe.schema import Recipe
    from hetero_tf.run.experiment import Runner, Settings

USAGE, SUMMARY = "--recipe FILE", "trains; the same command resumes"
SHARING = ("workers", "worker", "devices")
FLAGS = ("recipe", "run_dir", "engine", "allow_other_machine", *SHARING, *OF_RECIPES)
WORDS, SOURCE = None, "recipe"


def run(recipe: "Recipe", flags: "FlagValues", console: Console) -> dict:
    """Trains, and says what to type next."""
    settings = settings_of(recipe, flags)
    if not flags.workers and flags.worker is None and flags.devices == 1 and "TF_CONFIG" not in os.environ:
        return train(recipe, settings, flags, console)
    from hetero_tf.workers import runners
    from hetero_tf.workers.cluster import read_cluster

    cluster = read_cluster(flags.workers, flags.worker, os.environ)
    if cluster is not None and flags.devices > 1:
        raise InputError("--devices has no effect beside --workers: every worker uses all of its own GPUs")
    if cluster is None:
        return train(recipe, settings, flags, console, runners.on_devices(flags.devices))
    if cluster.leads:
        return train(recipe, settings, flags, console, runners.on_workers(cluster))
    runners.follow(recipe, cluster, settings.data_dir, settings.threads, console)
    return {"worker": cluster.index}


def train(
    recipe: "Recipe", settings: "Settings", flags: "FlagValues", console: Console, runner: "Runner | None" = None
) -> dict:
    """Trains with these settings, prints the next commands, and returns the summary, ready for JSON.

    Args:
        runner: Runs the rounds; None: they are simulated in this process.
    """
    from hetero_tf.run import experiment

    began = console.clock()
    summary = experiment.train(recipe, settings, console, runner or experiment.simulated)
    summary["seconds"] = round(console.clock() - began, 1)
    where = settings.run_dir
    console.say(
        f"done in {duration(summary['seconds'])}; everything is in {where}: metrics.jsonl, checkpoints/, best/, log.txt"
    )
    run = f"--run_dir {shlex.quote(str(where))}{again(flags)}"
    compare = f"{program()} compare {shlex.quote(str(where))}   (and other runs)"
    console.say(f"next: {program()} evaluate {run}\n      {program()} export {run}\n      {compare}")
    return summary
