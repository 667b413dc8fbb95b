"""Replays FedRolex: rolling windows, or recorded coordinates of each convolution, client and round."""

import dataclasses
import math

import methods_common as common
import numpy as np
import tensorflow as tf
from methods_files import Gaps
from methods_heterofl import Vectors, heterofl_recipe

from hetero_tf.rounds.round_setup import build_submodels


class Channels(int):
    """Size of a convolution's output axis, different from the equal sizes of other axes."""

    def __new__(cls, size, conv):
        channels = super().__new__(cls, size)
        channels.conv = conv
        return channels

    def __eq__(self, other):
        return isinstance(other, Channels) and (int(self), self.conv) == (int(other), other.conv)

    def __hash__(self):
        return hash((int(self), self.conv))


def replay(path):
    """Replay a file: (stage, gap, tolerance) of every stage."""
    file, gaps, examples = Vectors(path, "float64"), Gaps(), common.Examples()
    file.meta |= {"model": "resnet18", "users_per_round": file.cohorts}
    work = examples.rounds(file)
    dataset = examples.dataset(len(file.arrays["global_init/linear.bias"]), file.name)
    # Train clients sequentially with all labels, as in the vectors; run rounds as in production.
    clients = Replay(file, gaps, dataset, "sequential", label_cut=False)
    rounds = Replay(file, gaps, dataset, "stacked", label_cut=True)
    state = rounds.start()
    for number, (cohort, batches) in enumerate(zip(file.meta["rounds"], work)):
        clients.compare_clients(number, batches)
        state = dataclasses.replace(state, round=cohort["t"])
        state = rounds.compare_round(state, rounds.plan_of(batches), number, rounds.covered(number))
    rounds.compare_prediction(state)
    return gaps.check_stages(file, {"loss", "norm", "client", "round", "unchanged", "global", "local"})


class Replay(common.Replay):
    """One file as a learning process with an engine, with or without the label cut."""

    def __init__(self, file, gaps, dataset, engine, label_cut):
        text = heterofl_recipe(file, engine, label_cut, submodel={"name": "rolling"})
        labels = file.meta["label_split"]
        process = common.build_process(text, dataset, [1] * len(labels), labels)
        paths = dict(zip(file.names(), process.paths, strict=True))
        if file.meta["algo"] == "random":
            process = _with_stored_coordinates(process, file, paths)
        super().__init__(file, gaps, process, {})
        self.paths = paths

    def compare_clients(self, number, batches):
        """Compare each client's training, from the weights of the authors' run."""
        before = self.expected(f"round{number - 1}/global_after") if number else self.read_values("global_init")
        state, planned = common.state_of(self.process, before, self.meta["rounds"][number]["t"]), self.plan_of(batches)
        for slot, client in enumerate(batches):
            prefix = f"round{number}/client{client}"
            trained = self.compare_client(state, planned, slot, prefix)
            self.gaps.note("norm", trained.norms, self.file.result(f"{prefix}/grad_norm"), relative=True)

    def covered(self, number):
        """`{path: mask of the entries that some client covers}`, by the windows of its level and its labels."""
        cohort, windows = self.meta["rounds"][number], _windows(self.paths)
        masks = {path: np.zeros(shape, bool) for path, shape in self.shapes.items()}
        for client in cohort["users"]:
            rate = self.meta["level_rate"][self.meta["levels"][client]]
            for name, path in self.paths.items():
                index = [np.arange(size) for size in self.shapes[path]]
                for axis, conv in enumerate(windows[path]):
                    if conv is not None:
                        size = len(index[axis])
                        rolled = (np.arange(math.ceil(rate * size)) - cohort["t"]) % size
                        stored = f"round{number}/client{client}/index/{conv}"
                        index[axis] = self.file.input(stored) if self.meta["algo"] == "random" else rolled
                if name.startswith("linear"):
                    index[-1] = np.asarray(self.meta["label_split"][client])
                masks[path][np.ix_(*index)] = True
        return masks

    def compare_prediction(self, state):
        """Compare logits and loss of the global model, and its logits under every client's labels."""
        images, labels = self.file.input("eval/img"), self.file.input("eval/label")
        logits = common.predict(self.process, state, images, training=True)
        first = common.predict(self.process, state, images[:3], training=True)
        self.note("global", logits, "eval/global/logits")
        self.note("global", common.mean_loss(logits, labels), "eval/global/loss")
        self.note("global", first, "eval/global_first3/logits")
        for client, mask in enumerate(self.process.partition.label_mask):
            self.note("local", np.where(mask, logits, 0.0), f"eval/local{client}/logits")


def _with_stored_coordinates(process, file, paths):
    """Return the process with a separate axis for each convolution, whose coordinates the file has."""
    windows = _windows(paths)
    cut, tables = process.setup.layout.cut, _tables(file)

    def named(axis, conv):
        return axis if conv is None else dataclasses.replace(axis, size=Channels(axis.size, conv))

    axes = tuple(
        tuple(named(axis, conv) for axis, conv in zip(axes, windows[path], strict=True))
        for path, axes in zip(process.paths, cut.axes, strict=True)
    )

    def keep(size, count, round, client, seed):
        return tf.gather_nd(tf.constant(tables[size.conv, count]), [[round, client]])[0]

    layout = dataclasses.replace(process.setup.layout, cut=dataclasses.replace(cut, axes=axes))
    algorithm = dataclasses.replace(process.setup.algorithm, submodel=keep)
    blocks, masks = zip(*((each.block, each.mask) for each in process.setup.submodels))
    submodels = build_submodels(layout, blocks, masks)
    setup = dataclasses.replace(process.setup, layout=layout, algorithm=algorithm, submodels=submodels)
    return dataclasses.replace(process, setup=setup)


def _windows(paths):
    """`{variable path: name of the convolution whose outputs each dimension is, or None}`."""
    windows, entered, left = {}, None, "conv1.weight"
    for name, path in paths.items():
        block, _, layer = name.rpartition(".")[0].rpartition(".")
        inner, outer = f"{block}.conv1.weight", f"{block}.conv2.weight"
        # A block begins with its first norm, which reads the output of the previous block.
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
        windows[path] = ends[layer]
    return windows


def _tables(file):
    """`{(convolution, channels kept): int32 [rounds, clients, kept]}`, by the rounds' own numbers."""
    last, tables = max(cohort["t"] for cohort in file.meta["rounds"]), {}
    for number, cohort in enumerate(file.meta["rounds"]):
        for client in cohort["users"]:
            prefix = f"round{number}/client{client}/index/"
            for name in file.arrays:
                if name.startswith(prefix):
                    index = file.input(name)
                    size = (last + 1, len(file.meta["levels"]), len(index))
                    table = tables.setdefault((name.removeprefix(prefix), len(index)), np.zeros(size, np.int32))
                    table[cohort["t"], client] = index
    return tables
