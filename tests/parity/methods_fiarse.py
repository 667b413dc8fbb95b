"""Replays vectors of FIARSE's public code: masks of single weights by their magnitude, with and without a gradient.

`f64/` is the public code, whose mask has no gradient; `surrogate/` is the run in which it has the documented one.
"""

import methods_common as common
import numpy as np
import tensorflow as tf
from methods_files import File, Gaps

TOLERANCE = {"float64": 1e-9, "float32": 2e-5}
# The runs of a file: how its keys begin, whether the mask has a gradient, and how it is computed here.
RUNS = (
    ("f64", False, "sequential", "float64"),
    ("f64", False, "stacked", "float32"),
    ("surrogate", True, "stacked", "float64"),
)
STAGES = {"threshold", "entries", "loss", "client", "round", "kept", "eval threshold", "logits", "metrics"}


def replay(path):
    """All clients and rounds of one file, and its predictions: (stage, gap, tolerance) one after the other."""
    file, found = File(path), []
    for run, surrogate, engine, precision in RUNS:
        gaps, file.prefix = Gaps(), f"{run}/"
        fiarse = Replay(file, gaps, surrogate, engine, precision)
        fiarse.compare_predictions(fiarse.compare_rounds())
        # Of the run with a gradient a file may hold parts.
        stages = STAGES if run == "f64" else gaps.keys() | {"client", "kept"}
        told = gaps.told(file, stages, ("kept", "entries"), TOLERANCE[precision])
        found += [(f"{run} {precision} {stage}", *numbers) for stage, *numbers in told]
    return found


class Replay(common.Replay):
    """One run of a file set up as a learning process; a level is a share of the entries."""

    def __init__(self, file, gaps, surrogate, engine, precision):
        meta, examples = file.meta, common.Examples()
        self.levels, self.batches = common.named_levels(meta["sizes"]), examples.clients(file)
        layers, stems = common.post_activation_resnet(meta, meta["num_blocks"], "sbn", "norm")
        text = common.recipe_text(
            file,
            len(meta["client_size"]),
            layers,
            dict.fromkeys(self.levels, 1.0),
            levels={"entries": self.levels},
            round={
                "mask": {"name": "fiarse", "surrogate": surrogate},
                "label_rows": "all",
                "server": {"name": "sgd", "learning_rate": meta["lr_global"]},
            },
            engine=engine,
            precision=precision,
        )
        dataset = examples.dataset(meta["classes"], file.name)
        process = common.build_process(text, dataset, [1] * len(meta["client_size"]))
        super().__init__(file, gaps, process, stems)

    def note_some(self, stage, found, name):
        """Compares a result, if the file has it."""
        if self.file.prefix + name in self.file:
            self.note(stage, found, name)

    def entry(self, number, client):
        """A client's steps of a round: its batches in order, over and over, going on where it stopped before."""
        steps, batches = self.meta["K"], self.batches[client]
        earlier = sum(client in cohort for cohort in self.file.cohorts[:number])
        chosen = [batches[(earlier * steps + step) % len(batches)] for step in range(steps)]
        return common.Entry(client, list(self.levels.values()).index(self.meta["client_size"][client]), chosen)

    def threshold(self, state, level):
        """The threshold of a level at some global values, and how many of the maskable ones reach it."""
        parts = self.process.parts
        submodel = self.process.family.submodel_of[list(self.levels).index(level)]
        mask, stack = parts.algorithm.masks[submodel], parts.engine.stacks[submodel]
        row = tf.concat([tf.reshape(value, [-1]) for value in state.weights.values()], 0)
        start, key = (tf.tile(each[None], [stack.clients, 1]) for each in (row, tf.constant([0, 0, -1])))
        thresholds = mask.prepare(start, key)[0].numpy()
        reached = (np.abs(row) >= thresholds)[thresholds > 0]
        return thresholds.max(), np.count_nonzero(reached)

    def compare_rounds(self):
        """Every client of every round and every merge: the last `State`."""
        state = self.start()
        for number, cohort in enumerate(self.file.cohorts):
            before = {path: value.numpy() for path, value in state.weights.items()}
            trained = [self.compare_steps(state, number, client) for client in cohort]
            covered = {path: np.any([values[path] != old for values in trained], 0) for path, old in before.items()}
            planned = common.plan([self.entry(number, client) for client in cohort])
            found = common.merged(self.process, state, planned)
            expected = self.expected(f"round{number}/global_after")
            if expected:
                self.gaps.note("round", found.weights, expected)
            self.gaps.note_kept("kept", found.weights, before, covered)
            state = common.state_of(self.process, expected, number + 1) if expected else found
        return state

    def compare_steps(self, state, number, client):
        """Threshold, losses and values of one client, as far as the file has them; gives its values."""
        place, entry = f"round{number}/client{client}", self.entry(number, client)
        if f"{self.file.prefix}{place}/threshold" in self.file:
            threshold, reached = self.threshold(state, list(self.levels)[entry.level])
            self.note("threshold", threshold, f"{place}/threshold")
            if self.file.prefix == "f64/":
                self.gaps.note("entries", reached, self.file.arrays[f"{place}/mask_nonzeros"])
        found = self.trainer(state, common.plan([entry]), 0)
        self.note_some("loss", found.losses, f"{place}/loss")
        if self.expected(f"{place}/after"):
            self.compare_values(found, place)
        return found.values

    def compare_predictions(self, state):
        """Thresholds and logits of the levels, norms with moments of the batch; loss and accuracy of all batches."""
        for index, size in enumerate(self.meta["sizes"]):
            level = next(name for name, share in self.levels.items() if share == size)
            place, losses, hits = f"eval/size{index}", [], []
            if f"{self.file.prefix}{place}/threshold" not in self.file:
                continue
            threshold, _ = self.threshold(state, level)
            self.note("eval threshold", threshold, f"{place}/threshold")
            for batch, (images, labels) in enumerate(self.file.batches("eval")):
                found = np.asarray(common.predict(self.process, state, images, level, training=True))
                self.note("logits", found, f"{place}/batch{batch}/logits")
                losses.append(common.mean_loss(found, labels))
                hits.extend(found.argmax(1) == labels)
            # The loss is the mean over batches, the accuracy that over examples.
            self.note_some("metrics", [np.mean(losses), np.mean(hits)], f"{place}/loss_acc")
