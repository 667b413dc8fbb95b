"""The command `evaluate`."""

import contextlib
from pathlib import Path

from absl.flags import FlagValues

from hetero_tf.base import files, metrics, typed_json
from hetero_tf.base.console import Console, format_metrics
from hetero_tf.base.errors import InputError
from hetero_tf.cli.open_run import open_run, png_figure
from hetero_tf.recipe.schema import Recipe
from hetero_tf.run import notes
from hetero_tf.runs.run_folder import RunFolder


def evaluate(recipe: Recipe, flags: FlagValues, console: Console) -> dict:
    """Evaluate the state and print its metrics."""
    process, loaded = open_run(recipe, flags, console)
    state = loaded.state
    result, _ = process.evaluate(state, flags.levels)
    console.say(f"{flags.state}: round {state.round}  {format_metrics(metrics.displayed_metrics(result))}")
    baseline = notes.baseline(process)
    if baseline is not None:
        metric, value, prediction = baseline
        console.say(f"for comparison: {format_metrics({metric: value})} by always predicting {prediction}")
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
    results = process.class_results(state)
    console.say_lines(results.to_text())
    # Reports do without a matrix that is too large for a file of the run.
    with contextlib.suppress(InputError):
        content = {"state": flags.state, "round": state.round, **results.to_json()}
        files.write_atomic(RunFolder(Path(flags.run_dir)).classes, typed_json.dump(content, "the classes"))
    if flags.draw:
        size = min(max(0.35 * len(results.names), 4), 14)
        with png_figure(flags.draw, size + 1.5, size) as figure:
            results.draw_into(figure)
        console.say(f"drew the confusion of the classes into {flags.draw}")
    return results.to_json()
