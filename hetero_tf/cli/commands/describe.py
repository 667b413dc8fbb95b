"""`describe`: prints what a recipe costs and how its data are split; draws the split into --draw."""

from pathlib import Path
from typing import TYPE_CHECKING

from hetero_tf.base.console import Console
from hetero_tf.cli.commands import OF_RECIPES
from hetero_tf.cli.opened import settings_of

if TYPE_CHECKING:
    from absl.flags import FlagValues

    from hetero_tf.recipe.schema import Recipe

USAGE, SUMMARY = "describe --recipe FILE", "cost of every level, and how the data are split"
FLAGS, WORDS, SOURCE = ("recipe", "engine", "draw", *OF_RECIPES), None, "recipe"


def run(recipe: "Recipe", flags: "FlagValues", console: Console) -> dict:
    """Prints the report, and draws where --draw asks for it."""
    from hetero_tf import describe as report
    from hetero_tf.partitions import picture
    from hetero_tf.run import experiment

    process = experiment.build_process(recipe, settings_of(recipe, flags))
    description = report.describe(process)
    if not flags.json:
        console.say(report.to_text(description))
    if flags.draw:
        picture.draw(process.partition, process.dataset.train.labels, Path(flags.draw))
        console.say(
            f"drew the split into {flags.draw}: clients from left to right, their examples above, their labels below"
        )
    return report.to_json(description)
