"""`describe`: prints what a recipe costs and how its data are split; draws the split into --draw."""

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING

from hetero_tf.base.console import Console
from hetero_tf.cli.commands import OF_RECIPES
from hetero_tf.cli.open_run import settings_of

if TYPE_CHECKING:
    from absl.flags import FlagValues

    from hetero_tf.recipe.schema import Recipe

USAGE, SUMMARY = "describe --recipe FILE", "cost of every level, and how the data are split"
FLAGS, WORDS, SOURCE = ("recipe", "engine", "draw", "workers", "devices", *OF_RECIPES), None, "recipe"


def run(recipe: "Recipe", flags: "FlagValues", console: Console) -> dict:
    """Prints the report, and draws where --draw asks for it."""
    from hetero_tf import describe as report
    from hetero_tf.partitions import drawing
    from hetero_tf.run import experiment

    settings, replicas = settings_of(recipe, flags), len(flags.workers) or flags.devices
    # Every worker has so many threads of its own; devices of a process share them.
    settings = dataclasses.replace(settings, threads=flags.threads * max(len(flags.workers), 1))
    description = report.describe(process := experiment.build_process(recipe, settings), replicas)
    if not flags.json:
        console.say(report.to_text(description))
    if flags.draw:
        drawing.draw(process.partition, process.dataset.train.labels, Path(flags.draw))
        console.say(
            f"drew the split into {flags.draw}: clients from left to right, their examples above, their labels below"
        )
    return report.to_json(description)
