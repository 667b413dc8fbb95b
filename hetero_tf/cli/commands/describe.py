"""`describe`: prints the costs of a recipe and the split of its data; draws the split into --draw."""

import dataclasses
from pathlib import Path

from absl.flags import FlagValues

from hetero_tf.base.console import Console
from hetero_tf.cli.commands import RECIPE_FLAGS
from hetero_tf.cli.open_run import build_settings
from hetero_tf.recipe.schema import Recipe

USAGE, SUMMARY = "describe --recipe FILE", "costs of every level, and the split of the data"
FLAGS, WORDS, SOURCE = ("recipe", "fleet", "engine", "draw", "workers", "devices", *RECIPE_FLAGS), None, "recipe"


def run(recipe: Recipe, flags: FlagValues, console: Console) -> dict:
    """Print the report, and draw the split if --draw is set."""
    from hetero_tf.data.partitions import drawing
    from hetero_tf.reports import describe as report
    from hetero_tf.run import experiment
    from hetero_tf.run.data import by_strata

    settings, replicas = build_settings(recipe, flags), len(flags.workers) or flags.devices
    # Each worker has this many threads; devices of one process share them.
    settings = dataclasses.replace(settings, threads=flags.threads * max(len(flags.workers), 1))
    description = report.describe(process := experiment.build_process(recipe, settings), replicas)
    if not flags.json:
        console.say_lines(report.to_text(description))
    if flags.draw:
        drawing.draw(by_strata(process.partition, process.dataset), process.dataset.strata[0], Path(flags.draw))
        console.say(f"drew the split into {flags.draw}: one column for each client, examples above and labels below")
    return report.to_json(description)
