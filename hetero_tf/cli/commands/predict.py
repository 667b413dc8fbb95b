"""`predict`: predicts pictures, table rows or sentences with the model of a level."""

from absl.flags import FlagValues

from hetero_tf.base.console import Console
from hetero_tf.base.errors import InputError
from hetero_tf.cli.commands import RECIPE_FLAGS
from hetero_tf.cli.open_run import check_level, level_statistics, open_with_data, open_without_data
from hetero_tf.recipe.schema import Recipe

USAGE, SUMMARY = "predict --run_dir DIR X", "predicts pictures, table rows or sentences"
FLAGS, WORDS, SOURCE = ("run_dir", "state", "level", "input", *RECIPE_FLAGS), "input", "run_dir"


def run(recipe: Recipe, flags: FlagValues, console: Console) -> dict:
    """Print the predictions of the model, most likely class first."""
    from hetero_tf.export.predictions import predict as predict

    if not flags.input:
        raise InputError("predict needs a picture file, a row such as 5.1,red, or a sentence")
    check_level(recipe, flags)
    level = recipe.levels.resolve(flags.level)
    opened = open_without_data(recipe, flags, (level,), console)
    process, loaded = open_with_data(recipe, flags, console, opened) if isinstance(opened, str) else opened
    model = process.network(loaded.state, level, level_statistics(process, loaded, level))
    predictions = predict(process, model, flags.input)
    if process.dataset.stand_in_for is not None:
        console.say(f"*** NOT THE REAL DATA: {process.dataset.source} ***")
    for prediction in predictions:
        # A sentence with masked words has one list for each of them; other inputs have one list.
        lists = prediction["answers"]
        lists = [lists] if isinstance(lists[0][0], str) else lists
        console.say(f"{prediction['input']}: " + "; ".join(map(_format_classes, lists)))
    return {"round": loaded.state.round, "state": flags.state, "level": level, "predictions": predictions}


def _format_classes(pairs):
    return ", ".join(f"{name} {percent:.1f} %" for name, percent in pairs)
