"""Replays FedRolex: windows that roll, or coordinates that the file gives for each convolution, client and round."""

import dataclasses
import math

import methods_common as common
import methods_files as files
import numpy as np
import tensorflow as tf
import vectors

from recipes import recipe_text


class Channels(int):
    """The size of a convolution's output axis, which tells it from the other axes of that size."""

    def __new__(cls, size, conv):
        found = super().__new__(cls, size)
        found.conv = conv
        return found

    def __eq__(self, other):
        return isinstance(other, Channels) and (int(self), self.conv) == (int(other), other.conv)

    def __hash__(self):
        return hash((int(self), self.conv))


def replay(path):
    """(stage, gap, tolerance) of one file."""
    file, gaps = files.File(path), files.Gaps()
    examples = common.Examples()
    work = [
        [(client, examples.batches(file, f"round{number}/client{client}")) for client in cohort["users"]]
        for number, cohort in enumerate(file.meta["rounds"])
    ]
    dataset = examples.dataset(len(file.arrays["global_init/linear.bias"]), file.name)
    # Clients one by one with all labels, as the vectors have them; rounds as they are run.
    for engine, label_cut in (("sequential", False), ("stacked", True)):
        process = _process(file, dataset, engine, label_cut)
        names = [name for name in vectors._resnet(file.meta) if f"global_init/{name}" in file]
        paths = dict(zip(names, process.paths, strict=True))
        if file.meta["algo"] == "random":
            process = _with_stored_coordinates(process, file, paths)
        if label_cut:
            _compare_prediction(file, process, _compare_rounds(file, process, paths, work, gaps), gaps)
        else:
            _compare_clients(file, process, paths, work, gaps)
    return gaps.told(file, {"loss", "norm", "client", "round", "kept", "global", "local"})


def _process(file, dataset, engine, label_cut):
    meta = {**file.meta, "model": "resnet18", "users_per_round": [round["users"] for round in file.meta["rounds"]]}
    text = recipe_text(meta, "float64", engine, label_cut).replace("round: {", "round: {submodel: {name: rolling}, ")
    labels = file.meta["label_split"]
    return common.build_process(text, dataset, [1] * len(labels), labels, lambda number: file.meta["lr"])


def _plan(file, process, work):
    names, levels = process.recipe.levels.names, file.meta["levels"]
    entries = [common.Entry(client, names.index(levels[client]), batches) for client, batches in work]
    return common.plan(entries)


def _compare_clients(file, process, paths, work, gaps):
    """Each client's training, from the weights of the authors' run."""
    shapes, trainer = dict(zip(process.paths, process.parts.placement.cut.shapes)), common.Trainer(process)
    before = file.weights("global_init", paths, shapes)
    for number, cohort in enumerate(file.meta["rounds"]):
        state, planned = common.state_of(process, before, cohort["t"]), _plan(file, process, work[number])
        for slot, client in enumerate(cohort["users"]):
            place, trained = f"round{number}/client{client}", trainer(state, planned, slot)
            own = {path: value.shape for path, value in trained.values.items()}
            gaps.note("loss", trained.losses, file.result(f"{place}/loss"))
            gaps.note("norm", trained.norms, file.result(f"{place}/grad_norm"), relative=True)
            gaps.note("client", trained.values, file.weights(f"f64/{place}/after", paths, own))
        before = file.weights(f"f64/round{number}/global_after", paths, shapes)


def _compare_rounds(file, process, paths, work, gaps):
    """Every round, on the weights of the one before; the last `State`."""
    shapes = dict(zip(process.paths, process.parts.placement.cut.shapes))
    before = file.weights("global_init", paths, shapes)
    state = common.state_of(process, before)
    for number, cohort in enumerate(file.meta["rounds"]):
        old = common.with_round(state, cohort["t"])
        state = common.merged(process, old, _plan(file, process, work[number]))
        expected = file.weights(f"f64/round{number}/global_after", paths, shapes)
        gaps.note("round", state.weights, expected)
        covered = _covered(file, paths, shapes, number)
        gaps.note_kept("kept", state.weights, old.weights, covered)
        gaps.note_kept("kept", expected, before, covered)
        before = expected
    return state


def _covered(file, paths, shapes, number):
    """`{path: mask of the entries that a client of a round covers}`, by the windows of its level and its labels."""
    cohort, windows = file.meta["rounds"][number], _windows(paths)
    found = {path: np.zeros(shape, bool) for path, shape in shapes.items()}
    for client in cohort["users"]:
        rate = file.meta["level_rate"][file.meta["levels"][client]]
        for name, path in paths.items():
            index = [np.arange(size) for size in shapes[path]]
            for axis, conv in enumerate(windows[path]):
                if conv is not None:
                    kept = np.arange(math.ceil(rate * shapes[path][axis]))
                    rolled = (kept - cohort["t"]) % shapes[path][axis]
                    stored = f"round{number}/client{client}/index/{conv}"
                    index[axis] = file.input(stored) if file.meta["algo"] == "random" else rolled
            if name.startswith("linear"):
                index[-1] = np.asarray(file.meta["label_split"][client])
            found[path][np.ix_(*index)] = True
    return found


def _compare_prediction(file, process, state, gaps):
    images, labels = file.input("eval/img"), file.input("eval/label")
    logits = common.predict(process, state, images, training=True)
    gaps.note("global", logits, file.result("eval/global/logits"))
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
    gaps.note("global", tf.reduce_mean(losses), file.result("eval/global/loss"))
    first = common.predict(process, state, images[:3], training=True)
    gaps.note("global", first, file.result("eval/global_first3/logits"))
    for client, mask in enumerate(process.partition.label_mask):
        gaps.note("local", np.where(mask, logits, 0.0), file.result(f"eval/local{client}/logits"))


def _with_stored_coordinates(process, file, paths):
    """The process with an axis of its own for each convolution, whose coordinates stand in the file."""
    windows = _windows(paths)
    cut, tables = process.parts.placement.cut, _tables(file)

    def named(axis, conv):
        return axis if conv is None else dataclasses.replace(axis, size=Channels(axis.size, conv))

    axes = tuple(
        tuple(named(axis, conv) for axis, conv in zip(axes, windows[path], strict=True))
        for path, axes in zip(process.paths, cut.axes, strict=True)
    )

    def keep(size, kept, round, client, seed):
        return tf.gather_nd(tf.constant(tables[size.conv, kept]), [[round, client]])[0]

    placement = dataclasses.replace(process.parts.placement, cut=dataclasses.replace(cut, axes=axes))
    algorithm = dataclasses.replace(process.parts.algorithm, submodel=keep)
    parts = dataclasses.replace(process.parts, placement=placement, algorithm=algorithm)
    return dataclasses.replace(process, parts=parts)


def _windows(paths):
    """`{variable path: name of the convolution whose outputs each dimension is, or None}`."""
    found, entered, left = {}, None, "conv1.weight"
    for name, path in paths.items():
        block, _, layer = name.rpartition(".")[0].rpartition(".")
        inner, outer = f"{block}.conv1.weight", f"{block}.conv2.weight"
        # A block's first norm is the first of it: it reads what the block before has left.
        if name.endswith(".n1.weight"):
            entered, left = left, outer
        ends = {
            "n1": (entered,),
            "n2": (inner,),
            "n4": (left,),
            "linear": (left, None) if name.endswith("weight") else (None,),
            "conv1": (None, None, entered, inner) if block else (None, None, None, name),
            "conv2": (None, None, inner, outer),
            "shortcut": (None, None, entered, outer),
        }
        found[path] = ends[layer]
    return found


def _tables(file):
    """`{(convolution, channels kept): int32 [rounds, clients, kept]}`, by the rounds' own numbers."""
    last, found = max(cohort["t"] for cohort in file.meta["rounds"]), {}
    for number, cohort in enumerate(file.meta["rounds"]):
        for client in cohort["users"]:
            place = f"round{number}/client{client}/index/"
            for name in file.arrays:
                if name.startswith(place):
                    index = file.input(name)
                    size = (last + 1, len(file.meta["levels"]), len(index))
                    table = found.setdefault((name.removeprefix(place), len(index)), np.zeros(size, np.int32))
                    table[cohort["t"], client] = index
    return found
