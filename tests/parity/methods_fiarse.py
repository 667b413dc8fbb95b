"""Replays vectors of FIARSE's public code: masks of single weights by their magnitude, with and without a gradient.

`f64/` is the public code, whose mask has no gradient; `surrogate/` is the run in which it has the documented one.
"""

import json

import numpy as np
import tensorflow as tf
from methods_common import Entry, Examples, Trainer, build_process, merged, plan, predict, recipe_head, state_of
from methods_files import File, Gaps, variable_paths

LETTERS = "abcdefghijklmnopqrstuvwxyz"
HEAD = "[GlobalAveragePooling2D, Dense: {units: !classes}]"
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
    for place, surrogate, engine, precision in RUNS:
        gaps = Gaps()
        _compare(Replay(file, place, surrogate, engine, precision), gaps)
        # Of the run with a gradient a file may hold parts.
        stages = STAGES if place == "f64" else gaps.keys() | {"client", "kept"}
        told = gaps.told(file, stages, ("kept", "entries"), TOLERANCE[precision])
        found += [(f"{place} {precision} {stage}", *numbers) for stage, *numbers in told]
    return found


class Replay:
    """One run of a file set up as a learning process; a level is a share of the entries."""

    def __init__(self, file, place, surrogate, engine, precision):
        self.file, self.place, meta = file, place, file.meta
        self.levels = dict(zip(LETTERS, sorted(meta["sizes"], reverse=True)))
        examples, self.batches = Examples(), {}
        for client in sorted({client for cohort in meta["users_per_round"] for client in cohort}):
            self.batches[client] = examples.batches(file, f"client{client}")
        self.process = build_process(
            _recipe(meta, self.levels, surrogate, engine, precision),
            examples.dataset(meta["classes"], file.name),
            [1] * len(meta["client_size"]),
        )
        self.shapes = {path: tuple(value.shape) for path, value in self.process.initialize().weights.items()}
        self.paths = variable_paths(self.process.paths, _stems(self.process, meta))
        self.trainer = Trainer(self.process)

    def weights(self, place):
        """`{path: value}` under a place of the file; empty where it has none."""
        return self.file.weights(place, self.paths, self.shapes)

    def entry(self, number, client):
        """A client's steps of a round: its batches in order, over and over, going on where it stopped before."""
        steps, batches = self.file.meta["K"], self.batches[client]
        earlier = sum(client in cohort for cohort in self.file.meta["users_per_round"][:number])
        chosen = [batches[(earlier * steps + step) % len(batches)] for step in range(steps)]
        return Entry(client, list(self.levels.values()).index(self.file.meta["client_size"][client]), chosen)

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


def _stems(process, meta):
    """`{PyTorch module: Keras layer}`."""
    named = {spec.kind: spec.name for spec in process.recipe.model.layers}
    blocks = [spec.name for spec in process.recipe.model.layers if spec.kind == "PostActivationBlock"]
    stems = {"conv1": named["PaddedConv2D"], "norm1": f"{named['Norm']}/sbn", "linear": named["Dense"]}
    places = [(stage, block) for stage, count in enumerate(meta["num_blocks"], 1) for block in range(count)]
    for layer, (stage, block) in zip(blocks, places, strict=True):
        stem = f"layer{stage}.{block}"
        stems |= {f"{stem}.{part}": f"{layer}/{part}" for part in ("conv1", "conv2")}
        stems |= {f"{stem}.norm{part}": f"{layer}/norm{part}/sbn" for part in (1, 2)}
        stems |= {f"{stem}.shortcut.0": f"{layer}/shortcut", f"{stem}.shortcut.1": f"{layer}/norm3/sbn"}
    return stems


def _recipe(meta, levels, surrogate, engine, precision):
    stem = f"[PaddedConv2D: {{filters: {meta['widths'][0]}, use_bias: false}}, Norm: {{kind: sbn}}, ReLU]"
    blocks = [
        f"PostActivationBlock: {{filters: {width}, stride: {2 if stage and not block else 1}, scaler: false}}"
        for stage, (width, count) in enumerate(zip(meta["widths"], meta["num_blocks"], strict=True))
        for block in range(count)
    ]
    return f"""
{recipe_head(len(meta["client_size"]), [stem, *blocks, HEAD])}
levels:
  widths: {json.dumps(dict.fromkeys(levels, 1.0))}
  mix: {json.dumps(dict.fromkeys(levels, 1))}
  entries: {json.dumps(levels)}
round:
  clients: {max(map(len, meta["users_per_round"]))}
  mask: {{name: fiarse, surrogate: {str(surrogate).lower()}}}
  label_rows: all
  server: {{name: sgd, learning_rate: {meta["lr_global"]}}}
client: {{batch_size: 10, loss: cross_entropy}}
optimizer:
  {{learning_rate: {meta["lr"]}, momentum: {meta["momentum"]}, weight_decay: {meta["weight_decay"]}, clip_norm: null}}
rounds: 1
engine: {engine}
precision: {precision}
"""


def _compare(replay, gaps):
    """Every client of every round, every merge, and the predictions at the end."""
    state = state_of(replay.process, replay.weights("global_init"))
    for number, cohort in enumerate(replay.file.meta["users_per_round"]):
        before = {path: value.numpy() for path, value in state.weights.items()}
        trained = [_compare_client(replay, state, number, client, gaps) for client in cohort]
        covered = {path: np.any([values[path] != old for values in trained], 0) for path, old in before.items()}
        found = merged(replay.process, state, plan([replay.entry(number, client) for client in cohort]))
        expected = replay.weights(f"{replay.place}/round{number}/global_after")
        if expected:
            gaps.note("round", found.weights, expected)
        gaps.note_kept("kept", found.weights, before, covered)
        state = state_of(replay.process, expected, number + 1) if expected else found
    _compare_predictions(replay, state, gaps)


def _compare_client(replay, state, number, client, gaps):
    """Threshold, losses and values of one client, as far as the file has them; gives its values."""
    place, arrays = f"{replay.place}/round{number}/client{client}", replay.file.arrays
    entry = replay.entry(number, client)
    if f"{place}/threshold" in arrays:
        threshold, reached = replay.threshold(state, list(replay.levels)[entry.level])
        gaps.note("threshold", threshold, arrays[f"{place}/threshold"])
        if replay.place == "f64":
            gaps.note("entries", reached, arrays[f"round{number}/client{client}/mask_nonzeros"])
    trained = replay.trainer(state, plan([entry]), 0)
    if f"{place}/loss" in arrays:
        gaps.note("loss", trained.losses, arrays[f"{place}/loss"])
    expected = replay.weights(f"{place}/after")
    if expected:
        gaps.note("client", trained.values, expected)
    return trained.values


def _compare_predictions(replay, state, gaps):
    """Thresholds and logits of the levels, norms using the moments of the batch; loss and accuracy over all batches."""
    for index, size in enumerate(replay.file.meta["sizes"]):
        level = next(name for name, share in replay.levels.items() if share == size)
        place, losses, hits = f"{replay.place}/eval/size{index}", [], []
        if f"{place}/threshold" not in replay.file:
            continue
        gaps.note("eval threshold", replay.threshold(state, level)[0], replay.file.arrays[f"{place}/threshold"])
        for batch in range(replay.file.steps("eval")):
            images = replay.file.input(f"eval/batch{batch}/img").astype(replay.process.recipe.precision)
            found = np.asarray(predict(replay.process, state, images, level, training=True))
            gaps.note("logits", found, replay.file.arrays[f"{place}/batch{batch}/logits"])
            labels = replay.file.input(f"eval/batch{batch}/label")
            losses.append(np.mean(np.log(np.exp(found).sum(1)) - found[np.arange(len(labels)), labels]))
            hits.extend(found.argmax(1) == labels)
        if f"{place}/loss_acc" in replay.file:
            # The loss is the mean over batches, the accuracy that over examples.
            gaps.note("metrics", [np.mean(losses), np.mean(hits)], replay.file.arrays[f"{place}/loss_acc"])
