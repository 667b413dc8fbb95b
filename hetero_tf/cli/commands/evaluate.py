"""`evaluate`: evaluates a state of a run, including the model of every level with --levels all."""

import contextlib
from pathlib import Path

from absl.flags import FlagValues

from hetero_tf.base import files
from hetero_tf.base.console import Console
from hetero_tf.base.errors import InputError
from hetero_tf.cli.commands import RECIPE_FLAGS
from hetero_tf.cli.open_run import open_run
from hetero_tf.recipe.schema import Recipe
from hetero_tf.runs.run_folder import RunFolder

USAGE, SUMMARY = "evaluate --run_dir DIR", "evaluates a trained model"
FLAGS, WORDS, SOURCE = ("run_dir", "state", "levels", "classes", "draw", *RECIPE_FLAGS), None, "run_dir"


def run(recipe: Recipe, flags: FlagValues, console: Console) -> dict:
    """Evaluate the state and print its metrics."""
    from hetero_tf.base import metrics
    from hetero_tf.base.console import format_metrics
    from hetero_tf.run import notes

    process, loaded = open_run(recipe, flags, console)
    state = loaded.state
    result, _ = process.evaluate(state, flags.levels)
    console.say_folded(f"{flags.state}: round {state.round}  {format_metrics(metrics.displayed_metrics(result))}")
    baseline = notes.baseline(process)
    if baseline is not None:
        metric, value, prediction = baseline
        console.say_folded(f"for comparison: {format_metrics({metric: value})} by always predicting {prediction}")
    if process.dataset.stand_in_for is not None:
        console.say(f"*** NOT THE REAL DATA: {process.dataset.source} ***")
    classes = {"classes": _show_classes(process, state, flags, console)} if flags.classes or flags.draw else {}
    return {
        "run_dir": flags.run_dir,
        "state": flags.state,
        "round": state.round,
        **result,
        **classes,
        "baseline": baseline and {baseline[0]: baseline[1]},
        "data": process.dataset.source,
        "stand_in_for": process.dataset.stand_in_for,
    }


def _show_classes(process, state, flags, console):
    """Print the results of the classes of the global model, store and draw them, and return them for JSON."""
    from hetero_tf.runs import plain_json

    results = process.class_results(state)
    console.say_lines(results.to_text())
    # Reports do without a matrix that is too large for a file of the run.
    with contextlib.suppress(InputError):
        content = {"state": flags.state, "round": state.round, **results.to_json()}
        files.write_atomic(RunFolder(Path(flags.run_dir)).classes, plain_json.dump(content, "the classes"))
    if flags.draw:
        results.draw(Path(flags.draw))
        console.say(f"drew the confusion of the classes into {flags.draw}")
    return results.to_json()
