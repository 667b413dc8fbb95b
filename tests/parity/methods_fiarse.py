"""Replays vectors of FIARSE's public code: masks of single weights by their magnitude, with and without a gradient.

`f64/` is the public code, whose mask has no gradient; `surrogate/` is the run with the documented gradient.
"""

import methods_common as common
import numpy as np
import tensorflow as tf
from methods_files import File, Gaps

TOLERANCE = {"float64": 1e-9, "float32": 2e-5}
# The runs of a file: prefix of its keys, gradient of the mask, and the engine and precision of the replay.
RUNS = (
    ("f64", False, "sequential", "float64"),
    ("f64", False, "stacked", "float32"),
    ("surrogate", True, "stacked", "float64"),
)
STAGES = {"threshold", "entries", "loss", "client", "round", "unchanged", "eval threshold", "logits", "metrics"}


def replay(path):
    """Replay all clients and rounds of one file, and its predictions: (stage, gap, tolerance) of every stage."""
    file, results = File(path), []
    for run, surrogate, engine, precision in RUNS:
        gaps, file.prefix = Gaps(), f"{run}/"
        fiarse = Replay(file, gaps, surrogate, engine, precision)
        fiarse.compare_predictions(fiarse.compare_rounds())
        # A file may have parts of the run with a gradient.
        stages = STAGES if run == "f64" else gaps.keys() | {"client", "unchanged"}
        rows = gaps.check_stages(file, stages, ("unchanged", "entries"), TOLERANCE[precision])
        results += [(f"{run} {precision} {stage}", *numbers) for stage, *numbers in rows]
    return results


class Replay(common.Replay):
    """One run of a file as a learning process; a level is a share of the entries."""

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

    def note_if_recorded(self, stage, actual, name):
        """Compare a result if the file has it."""
        if self.file.prefix + name in self.file:
            self.note(stage, actual, name)

    def entry(self, number, client):
        """A client's steps of a round: its batches in a cycle, from the position after its last round."""
        steps, batches = self.meta["K"], self.batches[client]
        earlier = sum(client in cohort for cohort in self.file.cohorts[:number])
        chosen = [batches[(earlier * steps + step) % len(batches)] for step in range(steps)]
        return common.Entry(client, list(self.levels.values()).index(self.meta["client_size"][client]), chosen)

    def threshold(self, state, level):
        """Return the threshold of a level for given global values, and the number of maskable values that reach it."""
        setup = self.process.setup
        submodel = self.process.family.submodel_of[list(self.levels).index(level)]
        mask, block = setup.submodels[submodel].mask, setup.submodels[submodel].block
        row = tf.concat([tf.reshape(value, [-1]) for value in state.weights.values()], 0)
        start, key = (tf.tile(each[None], [block.clients, 1]) for each in (row, tf.constant([0, 0, -1])))
        thresholds = mask.prepare(start, key)[0].numpy()
        reached = (np.abs(row) >= thresholds)[thresholds > 0]
        return thresholds.max(), np.count_nonzero(reached)

    def compare_rounds(self):
        """Compare every client of every round and every merge; return the last `State`."""
        state = self.start()
        for number, cohort in enumerate(self.file.cohorts):
            before = {path: value.numpy() for path, value in state.weights.items()}
            trained = [self.compare_steps(state, number, client) for client in cohort]
            covered = {path: np.any([values[path] != old for values in trained], 0) for path, old in before.items()}
            planned = common.plan([self.entry(number, client) for client in cohort])
            merged = common.run_planned_round(self.process, state, planned)
            expected = self.expected(f"round{number}/global_after")
            if expected:
                self.gaps.note("round", merged.weights, expected)
            self.gaps.note_unchanged("unchanged", merged.weights, before, covered)
            state = common.state_of(self.process, expected, number + 1) if expected else merged
        return state

    def compare_steps(self, state, number, client):
        """Compare the recorded threshold, losses and values of one client; return its values."""
        prefix, entry = f"round{number}/client{client}", self.entry(number, client)
        if f"{self.file.prefix}{prefix}/threshold" in self.file:
            threshold, reached = self.threshold(state, list(self.levels)[entry.level])
            self.note("threshold", threshold, f"{prefix}/threshold")
            if self.file.prefix == "f64/":
                self.gaps.note("entries", reached, self.file.arrays[f"{prefix}/mask_nonzeros"])
        trained = self.trainer(state, common.plan([entry]), 0)
        self.note_if_recorded("loss", trained.losses, f"{prefix}/loss")
        if self.expected(f"{prefix}/after"):
            self.compare_values(trained, prefix)
        return trained.values

    def compare_predictions(self, state):
        """Compare thresholds and logits of the levels with batch moments, and loss and accuracy of all batches."""
        for index, size in enumerate(self.meta["sizes"]):
            level = next(name for name, share in self.levels.items() if share == size)
            prefix, losses, hits = f"eval/size{index}", [], []
            if f"{self.file.prefix}{prefix}/threshold" not in self.file:
                continue
            threshold, _ = self.threshold(state, level)
            self.note("eval threshold", threshold, f"{prefix}/threshold")
            for batch, (images, labels) in enumerate(self.file.batches("eval")):
                logits = np.asarray(common.predict(self.process, state, images, level, training=True))
                self.note("logits", logits, f"{prefix}/batch{batch}/logits")
                losses.append(common.mean_loss(logits, labels))
                hits.extend(logits.argmax(1) == labels)
            # The loss is the mean over batches, the accuracy the mean over examples.
            self.note_if_recorded("metrics", [np.mean(losses), np.mean(hits)], f"{prefix}/loss_acc")
