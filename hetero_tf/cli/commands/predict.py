"""`predict`: answers pictures, rows of a table, or sentences by the model of a level."""

from typing import TYPE_CHECKING

from hetero_tf.base.console import Console
from hetero_tf.base.errors import InputError
from hetero_tf.cli.commands import OF_RECIPES
from hetero_tf.cli.open_run import check_level, open_described, open_with_data, statistics_of

if TYPE_CHECKING:
    from absl.flags import FlagValues

    from hetero_tf.recipe.schema import Recipe

USAGE, SUMMARY = "predict --run_dir DIR X", "answers pictures, rows of a table, or sentences"
FLAGS, WORDS, SOURCE = ("run_dir", "state", "level", "input", *OF_RECIPES), "input", "run_dir"


def run(recipe: "Recipe", flags: "FlagValues", console: Console) -> dict:
    """Prints what the model answers, the likeliest first."""
    from hetero_tf import export as exports
    from hetero_tf.export.predictions import predict as answered

    if not flags.input:
        raise InputError("predict needs a picture file, a row such as 5.1,red, or a sentence, behind it")
    check_level(recipe, flags)
    level = exports.check_level(recipe.levels, flags.level)
    opened = open_described(recipe, flags, (level,), console)
    process, found = open_with_data(recipe, flags, console, opened) if isinstance(opened, str) else opened
    model = process.network(found.state, level, statistics_of(process, found, level))
    answers = answered(process, model, flags.input)
    if process.dataset.stand_in_for is not None:
        console.say(f"*** NOT THE REAL DATA: {process.dataset.source} ***")
    for one in answers:
        # A sentence with hidden words has a list of answers for each of them, everything else one list.
        lists = one["answers"] if recipe.input.name == "masked_text" else [one["answers"]]
        console.say(f"{one['input']}: " + "; ".join(map(_likely, lists)))
    return {"round": found.state.round, "state": flags.state, "level": level, "predictions": answers}


def _likely(pairs):
    return ", ".join(f"{name} {percent:.1f} %" for name, percent in pairs)
