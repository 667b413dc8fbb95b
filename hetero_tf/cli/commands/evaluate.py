"""`evaluate`: measures a state of a run again, with the model of every level under --levels all."""

from typing import TYPE_CHECKING

from hetero_tf.base.console import Console
from hetero_tf.cli.commands import OF_RECIPES
from hetero_tf.cli.open_run import open_run

if TYPE_CHECKING:
    from absl.flags import FlagValues

    from hetero_tf.recipe.schema import Recipe

USAGE, SUMMARY = "evaluate --run_dir DIR", "measures a trained model again"
FLAGS, WORDS, SOURCE = ("run_dir", "state", "levels", *OF_RECIPES), None, "run_dir"


def run(recipe: "Recipe", flags: "FlagValues", console: Console) -> dict:
    """Measures the state and prints what it reached."""
    from hetero_tf.base import metrics
    from hetero_tf.base.console import figures

    process, found = open_run(recipe, flags, console)
    state = found.state
    measured, _ = process.evaluate(state, flags.levels)
    console.say(f"{flags.state}: round {state.round}  {figures(metrics.shown(measured))}")
    if process.dataset.stand_in_for is not None:
        console.say(f"*** NOT THE REAL DATA: {process.dataset.source} ***")
    return {
        "run_dir": flags.run_dir,
        "state": flags.state,
        "round": state.round,
        **measured,
        "data": process.dataset.source,
        "stand_in_for": process.dataset.stand_in_for,
    }
