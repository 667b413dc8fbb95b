"""Commands that evaluate a run: `evaluate`, and `similarity` of the local models of two clients."""

import contextlib
import dataclasses
import math
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf
from absl.flags import FlagValues

from hetero_tf.base import files, metrics, typed_json
from hetero_tf.base.console import Console, format_metrics, format_table
from hetero_tf.base.errors import InputError
from hetero_tf.cli.open_run import open_run, png_figure
from hetero_tf.data.inputs import all_labels
from hetero_tf.evaluation import similarity
from hetero_tf.recipe.schema import Recipe
from hetero_tf.run import notes
from hetero_tf.runs.run_folder import RunFolder

# Test examples whose representations are compared.
MOST_EXAMPLES = 1000


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


def compare_clients(recipe: Recipe, flags: FlagValues, console: Console) -> dict:
    """Train both clients from the global model of a state, and print how similar their units are."""
    clients = _pair(recipe, flags.pair)
    process, loaded = open_run(recipe, flags, console)
    units, representations = zip(*(_represent(process, loaded.state, client) for client in clients))
    matrices = similarity.similarities(*representations)
    cells = [[f"{cell:.3f}".replace("nan", "-") for cell in matrix.diagonal()] for matrix in matrices.values()]
    console.say_lines(format_table([("unit", *matrices), *zip(units[0], *cells)]))
    console.say(*(f"note: {note}" for note in _notes(matrices, representations)))
    if flags.draw:
        first, second = (f"client {client}" for client in clients)
        with png_figure(flags.draw, 10, 4.5) as figure:
            similarity.draw_into(figure, matrices, units[0], (first, second))
        console.say(f"drew all pairs of units into {flags.draw}")
    values = {name: matrix.round(6).tolist() for name, matrix in matrices.items()}
    return {"run_dir": flags.run_dir, "round": loaded.state.round, "clients": clients, "units": units[0], **values}


def _notes(matrices, representations):
    """Return the reasons for missing values, and a warning if the examples are too few to compare."""
    pairs = list(zip(*representations))
    examples, channels = len(pairs[0][0]), max(one.shape[1] for pair in pairs for one in pair)
    constant = [similarity.is_constant(one) or similarity.is_constant(other) for one, other in pairs]
    notes = ["-: the outputs of a unit are the same for all examples"] if any(constant) else []
    if any(math.isnan(value) and not known for value, known in zip(matrices["SVCCA"].diagonal(), constant)):
        notes.append(f"-: SVCCA needs more examples than the main directions of both models. Received: {examples:,}")
    if examples <= channels:
        notes.append(
            f"{examples:,} test examples are few for {channels:,} channels: linear CKA of unrelated models is high too"
        )
    return notes


def _pair(recipe, texts):
    """Return the ids of --pair for a recipe whose merge of one client is that client's model."""
    number = recipe.partition.options["clients"]
    clients = [int(text) for text in texts if text.isdecimal() and int(text) < number]
    if len(clients) != 2 or len(texts) != 2:
        raise InputError(
            f"--pair must be two ids of clients below {number}, such as 0,1. Received: --pair={','.join(texts)}"
        )
    if recipe.round.server.name != "replace" or recipe.levels.ensemble or recipe.round.personal:
        raise InputError(
            "similarity needs a round whose merge of one client is its model: round.server: replace, no levels.members "
            f"and no round.personal. Received: round.server={recipe.round.server.name}"
        )
    return clients


def _represent(process, state, client):
    """Return the names of the units, and their outputs in the local model of a client on test examples."""
    # A round at the rate of the state's last one: schedules may end at 0.
    state = dataclasses.replace(state, round=max(state.round - 1, 0))
    plan = process.plan(state.round, [client])
    trained, _ = process.run(state, [plan])
    model = process.network(trained, process.recipe.levels.names[plan.levels[0]])
    known = {layer.name: layer for layer in model.layers}
    specs = [spec for spec in process.recipe.model.layers if spec.exit is None and spec.name in known]
    with_weights = {spec.unit for spec in specs if known[spec.name].weights}
    # The last layer of each unit.
    layers = {spec.unit: known[spec.name] for spec in specs if spec.unit in with_weights}
    test, rows = process.dataset.test, tf.range(min(len(process.dataset.test.x), MOST_EXAMPLES))
    key, labels = tf.zeros(4, tf.int32), all_labels(process.dataset.classes)
    inputs, _ = process.input.batch(test.x, test.y, rows, 0, key, labels, training=False)
    outputs = keras.Model(model.inputs, [layer.output for layer in layers.values()]).predict(inputs, verbose=0)
    return list(layers), [np.float64(values.mean(tuple(range(1, values.ndim - 1)))) for values in outputs]
