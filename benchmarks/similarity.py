#!/usr/bin/env python3
"""Similarity of the local models of two clients, unit by unit: linear CKA and SVCCA, as in FeDepth's Figure 5.

    benchmarks/similarity.py --run_dir RUN --pair 0,80 [--draw pairs.png]

Both clients train from the global model of a state of the run. The representation of a unit is its output on at most
1,000 test examples, averaged over positions: float64 `[examples, channels]`. The table compares each unit with the same
unit of the other model; the picture and `--json` compare all pairs of units.

Reference: Kornblith et al. 2019 (arXiv 1905.00414) for CKA, Raghu et al. 2017 (arXiv 1706.05806) for SVCCA.
"""

import argparse
import dataclasses
import json
import math
from collections.abc import Callable, Iterable

import checkout  # noqa: F401  finds hetero_tf and its libraries
import numpy as np

import hetero_tf
from hetero_tf.base import hardware, registry
from hetero_tf.base.console import format_table
from hetero_tf.base.errors import InputError, UserError, require_modules
from hetero_tf.base.typed_json import finite

# Share of its variance that a representation keeps in SVCCA.
VARIANCE = 0.99
# Test examples whose representations are compared.
MOST_EXAMPLES = 1000


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
    directions = [main_directions(representation) for representation in (first, second)]
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


def main_directions(representation):
    """Return orthonormal columns: the first principal components, up to `VARIANCE` of the variance."""
    columns, values, _ = np.linalg.svd(representation - representation.mean(0), full_matrices=False)
    shares = np.cumsum(values**2) / np.sum(values**2)
    return columns[:, : np.searchsorted(shares, VARIANCE) + 1]


def notes_on(matrices, representations):
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


def clients_of(recipe, text):
    """Return the ids of --pair for a recipe whose merge of one client is that client's model."""
    number, texts = recipe.partition.options["clients"], text.split(",")
    clients = [int(text) for text in texts if text.isdecimal() and int(text) < number]
    if len(clients) != 2 or len(texts) != 2:
        raise InputError(f"--pair must be two ids of clients below {number}, such as 0,1. Received: --pair={text}")
    if recipe.round.server.name != "replace" or recipe.levels.ensemble or recipe.round.personal:
        raise InputError(
            "similarity needs a round whose merge of one client is its model: round.server: replace, no levels.members "
            f"and no round.personal. Received: round.server={recipe.round.server.name}"
        )
    return clients


def represent(process, state, client):
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


def draw(path, matrices, units, clients):
    """Draw all pairs of units into a PNG file, a panel for each measure."""
    require_modules("--draw", ["matplotlib"], "plot")
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 4.5), dpi=120, layout="constrained")
    for panel, (name, matrix) in zip(figure.subplots(1, len(matrices)), matrices.items()):
        image = panel.imshow(matrix, cmap="Blues", vmin=0, vmax=1, origin="lower")
        panel.set(title=name, ylabel=f"units of client {clients[0]}", xlabel=f"units of client {clients[1]}")
        panel.set_xticks(range(len(units)), units, rotation=90)
        panel.set_yticks(range(len(units)), units)
    figure.colorbar(image, ax=figure.axes, label="similarity")
    figure.savefig(path, format="png")


def compare(args):
    """Train both clients from the global model of the state, and print how similar their units are."""
    hardware.import_quietly()
    hardware.configure_threads(args.threads)
    for module in args.plugin:
        registry.register_plugin(module)
    process, state = hetero_tf.load_run(args.run_dir, args.state, args.data_dir, args.threads)
    clients = clients_of(process.recipe, args.pair)
    units, representations = zip(*(represent(process, state, client) for client in clients))
    matrices = similarities(*representations)
    if args.json:
        values = {name: matrix.round(6).tolist() for name, matrix in matrices.items()}
        row = {"run_dir": args.run_dir, "round": state.round, "clients": clients, "units": units[0], **values}
        print(json.dumps(finite(row), allow_nan=False))
    else:
        cells = [[f"{cell:.3f}".replace("nan", "-") for cell in matrix.diagonal()] for matrix in matrices.values()]
        print(format_table([("unit", *matrices), *zip(units[0], *cells)]))
        for note in notes_on(matrices, representations):
            print(f"note: {note}")
    if args.draw:
        draw(args.draw, matrices, units[0], clients)


def main():
    """Read the arguments and compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run_dir", required=True, help="folder of a trained run")
    parser.add_argument("--pair", required=True, metavar="A,B", help="ids of the two clients, such as 0,60")
    parser.add_argument("--state", default="best", help="best or last")
    parser.add_argument("--draw", metavar="FILE", help="PNG file to draw all pairs of units into")
    parser.add_argument("--plugin", action="append", default=[], metavar="MODULE", help="a plug-in module of the run")
    parser.add_argument("--data_dir")
    parser.add_argument("--threads", type=int, default=hardware.core_count())
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    try:
        compare(args)
    except UserError as error:
        parser.error(str(error))


if __name__ == "__main__":
    main()
