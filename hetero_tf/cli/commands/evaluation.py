"""Commands that evaluate a run: `evaluate`, and `similarity` of the local models of two clients.

Similarity compares representations: the outputs of a unit on examples, averaged over positions, float64 `[examples,
channels]`.

Reference: Kornblith et al. 2019 (arXiv 1905.00414) for CKA, Raghu et al. 2017 (arXiv 1706.05806) for SVCCA.
"""

import contextlib
import dataclasses
import math
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from absl.flags import FlagValues

from hetero_tf.base import files
from hetero_tf.base.console import Console, format_table
from hetero_tf.base.errors import InputError
from hetero_tf.cli.open_run import open_run, png_figure
from hetero_tf.recipe.schema import Recipe
from hetero_tf.runs.run_folder import RunFolder

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Test examples whose representations are compared.
MOST_EXAMPLES = 1000


def evaluate(recipe: Recipe, flags: FlagValues, console: Console) -> dict:
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
    from hetero_tf.base import typed_json

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
    matrices = similarities(*representations)
    cells = [[f"{cell:.3f}".replace("nan", "-") for cell in matrix.diagonal()] for matrix in matrices.values()]
    console.say_lines(format_table([("unit", *matrices), *zip(units[0], *cells)]))
    for note in _notes(matrices, representations):
        console.say_folded(f"note: {note}")
    if flags.draw:
        first, second = (f"client {client}" for client in clients)
        with png_figure(flags.draw, 10, 4.5) as figure:
            draw_similarities(figure, matrices, units[0], (first, second))
        console.say(f"drew all pairs of units into {flags.draw}")
    values = {name: matrix.round(6).tolist() for name, matrix in matrices.items()}
    return {"run_dir": flags.run_dir, "round": loaded.state.round, "clients": clients, "units": units[0], **values}


def _notes(matrices, representations):
    """Return the reasons for missing values, and a warning if the examples are too few to compare."""
    pairs = list(zip(*representations))
    examples, channels = len(pairs[0][0]), max(one.shape[1] for pair in pairs for one in pair)
    constant = [is_constant(one) or is_constant(other) for one, other in pairs]
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
    import keras
    import tensorflow as tf

    from hetero_tf.data.inputs import all_labels

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


# Share of its variance that a representation keeps in SVCCA.
VARIANCE = 0.99


def linear_cka(first: np.ndarray, second: np.ndarray) -> float:
    """Return linear CKA: 1 if one representation is a rotated and scaled copy of the other; NaN if one is constant."""
    if is_constant(first) or is_constant(second):
        return float("nan")
    grams = [centred @ centred.T for centred in (first - first.mean(0), second - second.mean(0))]
    return float(np.sum(grams[0] * grams[1]) / np.prod([np.linalg.norm(gram) for gram in grams]))


def svcca(first: np.ndarray, second: np.ndarray) -> float:
    """Return the mean canonical correlation of the main directions of two representations.

    NaN if one is constant, or if both have more directions than the examples allow: then any two have common ones.
    """
    if is_constant(first) or is_constant(second):
        return float("nan")
    directions = [_main_directions(representation) for representation in (first, second)]
    if sum(each.shape[1] for each in directions) > len(first) - 1:
        return float("nan")
    return float(np.linalg.svd(directions[0].T @ directions[1], compute_uv=False).mean())


def is_constant(representation: np.ndarray) -> bool:
    """Return True if a representation is the same for all examples, up to rounding."""
    return bool(np.ptp(representation, axis=0).max() <= 1e-7 * np.abs(representation).max())


MEASURES: dict[str, Callable[[np.ndarray, np.ndarray], float]] = {"linear CKA": linear_cka, "SVCCA": svcca}


def similarities(first: Iterable[np.ndarray], second: Iterable[np.ndarray]) -> dict[str, np.ndarray]:
    """Return `{measure: values [units of the first, units of the second]}`."""
    columns = list(second)
    return {name: np.array([[measure(x, y) for y in columns] for x in first]) for name, measure in MEASURES.items()}


def draw_similarities(
    figure: "Figure", matrices: dict[str, np.ndarray], units: Sequence[str], labels: tuple[str, str]
) -> None:
    """Draw the similarities into an empty figure, a panel for each measure."""
    for panel, (name, matrix) in zip(figure.subplots(1, len(matrices)), matrices.items()):
        image = panel.imshow(matrix, cmap="Blues", vmin=0, vmax=1, origin="lower")
        panel.set(title=name, ylabel=f"units of {labels[0]}", xlabel=f"units of {labels[1]}")
        panel.set_xticks(range(len(units)), units, rotation=90)
        panel.set_yticks(range(len(units)), units)
    figure.colorbar(image, ax=figure.axes, label="similarity")


def _main_directions(representation):
    """Return orthonormal columns: the first principal components, up to `VARIANCE` of the variance."""
    columns, values, _ = np.linalg.svd(representation - representation.mean(0), full_matrices=False)
    shares = np.cumsum(values**2) / np.sum(values**2)
    return columns[:, : np.searchsorted(shares, VARIANCE) + 1]
