#!/usr/bin/env python3
"""Replays vectors of the HeteroFL authors' code through hetero_tf and compares every stage.

    python tests/parity/replay.py DIR [--precision float64] [--engine sequential]

DIR holds npz files as `tests/parity/README.md` describes them. For each file, precision and engine one line tells the
largest difference of each stage; the exit code is 1 if one is beyond its tolerance.
"""

import argparse
import dataclasses
import os
import sys
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
# As the command line runs on a CPU. With several threads inside an operation, TensorFlow 2.21's oneDNN kernels crash
# on the float32 ResNet without norms.
os.environ.setdefault("TF_NUM_INTRAOP_THREADS", "1")
os.environ.setdefault("TF_NUM_INTEROP_THREADS", "2")
sys.path[:0] = [str(Path(__file__).resolve().parents[2]), str(Path(__file__).resolve().parent)]

import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402
from methods_files import Gaps  # noqa: E402
from vectors import Vectors  # noqa: E402

from hetero_tf import recipe
from hetero_tf.base import registry  # noqa: E402
from hetero_tf.data.dataset import Dataset, Split  # noqa: E402
from hetero_tf.evaluation import calibration
from hetero_tf.inputs import masked_text  # noqa: E402
from hetero_tf.methods.losses.masked_cross_entropy import masked  # noqa: E402
from hetero_tf.partitions.partition import Partition  # noqa: E402
from hetero_tf.partitions.shares import Shares  # noqa: E402
from hetero_tf.planning.plan import Plan
from hetero_tf.process import State, learning_process  # noqa: E402
from hetero_tf.rounds.coverage import axis_masks, coverage  # noqa: E402
from hetero_tf.rounds.cut import coordinates, merged_coordinates, put, take  # noqa: E402
from hetero_tf.rounds.merge import merge_updates
from hetero_tf.rounds.stack_update import StackPlan, train_stack  # noqa: E402
from recipes import recipe_text  # noqa: E402

# float64: 1e-8 everywhere. float32: what the README of the vectors allows.
STAGES = ("cut", "loss", "norm", "client", "merge", "round", "kept", "sbn", "global", "local")
TOLERANCES = {
    "float64": dict.fromkeys(STAGES, 1e-8),
    "float32": dict.fromkeys(STAGES, 1e-5) | {"cut": 0.0, "norm": 1e-4, "kept": 0.0},
}
BIT_EQUAL = ("cut", "kept")
ENGINES = ("sequential", "stacked")
FLIPPED = 1e-3


class Replay:
    """One file in one precision, set up as a learning process."""

    def __init__(self, vectors, engine, label_cut):
        self.vectors = vectors
        self.recipe = recipe.loads(recipe_text(vectors.meta, vectors.precision, engine, label_cut), vectors.name)
        self.levels = [self.recipe.levels.names.index(level) for level in vectors.meta["levels"]]
        self.dataset, self.plans = _text_data(vectors) if vectors.text else _image_data(vectors)
        self.plans = [self._with_levels(plan) for plan in self.plans]
        process = learning_process(self.recipe, self.dataset, self._partition())
        if vectors.text:
            source = _with_given_masks(vectors, self.plans)
            examples = dataclasses.replace(process.parts.examples, input=source)
            parts = dataclasses.replace(process.parts, examples=examples)
            # What measures the model reads the examples too.
            evaluator = dataclasses.replace(process.evaluator, examples=examples)
            process = dataclasses.replace(process, input=source, parts=parts, evaluator=evaluator)
        self.process = process
        self.shapes = [tuple(v.shape) for v in process.evaluator.global_model.trainable_variables]
        start = vectors.parameters("global_init", self.shapes, results=False)
        self.start = [tf.constant(value, vectors.precision) for value in start]

    def _with_levels(self, plan):
        return dataclasses.replace(plan, levels=np.asarray([self.levels[client] for client in plan.clients], np.int32))

    def _partition(self):
        classes = self.dataset.classes
        split = self.vectors.meta["label_split"]
        mask = np.zeros((len(split), classes), bool)
        for client, labels in enumerate(split):
            mask[client, labels] = True
        test = Shares.from_lists(self._tested(client) for client in range(len(split)))
        return Partition(train=Shares.empty(len(split)), test=test, label_mask=mask)

    def _tested(self, client):
        """Which test examples are the client's: those that the file lists, which it must if it has any of its labels."""
        name = f"eval/local{client}/rows"
        own = [] if self.vectors.text else np.isin(self.dataset.test.y, self.vectors.meta["label_split"][client])
        if np.any(own) and name not in self.vectors:
            raise SystemExit(f"{self.vectors.name}: lacks {name}")
        return np.asarray(self.vectors.arrays.get(name, []), np.int32)

    def covered(self, plan):
        """For each variable the entries that some client covers: its level's share of every axis, its own labels."""
        found = [np.zeros(shape, bool) for shape in self.shapes]
        # The label axes: rows of the words' vectors, and the outputs of the last layer.
        axes = {**({0: 0} if self.vectors.text else {}), len(found) - 2: -1, len(found) - 1: -1}
        for client, level in zip(plan.clients.tolist(), plan.levels.tolist()):
            stack = self.process.parts.engine.stacks[self.process.family.submodel_of[level]]
            for place, (mask, shape) in enumerate(zip(found, stack.own_shapes, strict=True)):
                index = [np.arange(size) for size in shape]
                if place in axes:
                    index[axes[place]] = np.asarray(self.vectors.meta["label_split"][client])
                mask[np.ix_(*index)] = True
        return found

    def stages(self):
        """The stages that the file must show."""
        vectors = self.vectors
        work = [(f"round{number}/client{c}", c) for number, own in enumerate(vectors.cohorts) for c in own]
        shown = {
            "cut": vectors.precision == "float32" and any(self._has_cut(*each) for each in work),
            "sbn": vectors.meta.get("norm") == "bn",
            "local": not vectors.text,
        }
        return {stage for stage in STAGES if shown.get(stage, True)}

    def _has_cut(self, place, client):
        """Whether the file holds the sub-model that a client was handed; clients of the global level get everything."""
        whole = self.vectors.meta["levels"][client] == self.vectors.meta["global_level"]
        return not whole and not self.vectors.leaves_out(f"{place}/before")


def _image_data(vectors):
    """All batches of all clients as one training split, and the plans that read them in the given order."""
    images, labels, planned = [], [], []
    for number, cohort in enumerate(vectors.cohorts):
        work = []
        for client in cohort:
            place = f"round{number}/client{client}"
            batches = []
            for step in range(vectors.steps(place)):
                first = sum(map(len, labels))
                labels.append(vectors.input(f"{place}/batch{step}/label"))
                images.append(vectors.input(f"{place}/batch{step}/img"))
                batches.append(np.arange(first, first + len(labels[-1]), dtype=np.int32))
            work.append((batches, [0] * len(batches)))
        planned.append(_plan(cohort, work))
    train = Split(np.concatenate(images), np.concatenate(labels))
    test = Split(vectors.input("eval/img"), vectors.input("eval/label"))
    classes = len(vectors.arrays["global_init/" + vectors.names()[-1]])
    return Dataset(train, test, classes=classes, source=vectors.name), planned


def _text_data(vectors):
    """All token rows as one split, padded on the right, and the plans that read them segment by segment."""
    rows, planned = [], []
    for number, cohort in enumerate(vectors.cohorts):
        work = []
        for client in cohort:
            place = f"round{number}/client{client}"
            own = np.arange(len(rows), len(rows) + len(vectors.arrays[f"{place}/tokens"]), dtype=np.int32)
            rows.extend(vectors.input(f"{place}/tokens"))
            steps = vectors.steps(place)
            work.append(([own] * steps, [step * vectors.meta["bptt"] for step in range(steps)]))
        planned.append(_plan(cohort, work))
    longest = max(map(len, rows))
    padded = np.stack([np.pad(row, (0, longest - len(row))) for row in rows])
    test = Split(vectors.input("eval/tokens"), None)
    return Dataset(Split(padded, None), test, classes=vectors.meta["num_tokens"], source=vectors.name), planned


def _plan(cohort, work):
    size = (len(cohort), max(len(starts) for _, starts in work), max(len(batch) for rows, _ in work for batch in rows))
    rows, firsts = np.full(size, -1, np.int32), np.zeros(size[:2], np.int32)
    for slot, (batches, starts) in enumerate(work):
        firsts[slot, : len(starts)] = starts
        for step, batch in enumerate(batches):
            rows[slot, step, : len(batch)] = batch
    steps = np.asarray([len(starts) for _, starts in work], np.int32)
    zeros = np.zeros(len(cohort), np.int32)
    return Plan(np.asarray(cohort, np.int32), zeros, steps, rows, firsts, np.zeros_like(firsts), zeros)


def _with_given_masks(vectors, planned):
    """The production input, reading the file's masks instead of random numbers, and rows without their padding."""
    bptt = vectors.meta["bptt"]
    most = max(max(plan.rows.shape[2] for plan in planned), *vectors.arrays["eval/mask"].shape[:1])
    clients, steps = len(vectors.meta["levels"]), max(plan.rows.shape[1] for plan in planned)
    table = np.zeros((len(planned) + 1, clients, max(steps, 1), most, bptt), np.float32)
    work = [(number, client) for number, cohort in enumerate(vectors.cohorts) for client in cohort]
    rows = sum(len(vectors.arrays[f"round{number}/client{client}/tokens"]) for number, client in work)
    lengths = np.zeros(rows, np.int32)
    for number, (cohort, plan) in enumerate(zip(vectors.cohorts, planned)):
        for slot, client in enumerate(cohort):
            tokens = vectors.arrays[f"round{number}/client{client}/tokens"]
            lengths[plan.rows[slot, 0][: len(tokens)]] = tokens.shape[1]
            for step in range(plan.steps[slot]):
                mask = vectors.arrays[f"round{number}/client{client}/step{step}/mask"]
                table[number, client, step, : mask.shape[0], : mask.shape[1]] = mask
    mask = vectors.arrays["eval/mask"]
    table[-1, 0, 0, : mask.shape[0], : mask.shape[1]] = mask

    def given(key, shape):
        # Training keys are (seed, round, client, step), one for each client of a stack; those of the test are
        # (seed, row, start).
        mask = tf.gather_nd(table, key[..., 1:]) if key.shape[-1] == 4 else tf.constant(table)[-1, 0, 0]
        return 1.0 - mask[..., : shape[0], : shape[1]]

    source = masked_text.build(vectors.precision, segment=bptt, uniform=given)

    def batch(x, y, rows, start, key, labels, training, length=None):
        # The clients that idle in a tick read row 0, which is not shorter than the rows of the others.
        most = tf.reduce_min(tf.gather(lengths, rows[..., 0])) if training else x.shape[1]
        return source.batch(x[:, :most], y, rows, start, key, labels, training)

    return dataclasses.replace(source, batch=batch)


def compare_clients(replay, differences):
    """Cut and local training of every client of every round, from the weights of the authors' run."""
    vectors, parts = replay.vectors, replay.process.parts
    submodel_of = replay.process.family.submodel_of
    training = [_training(replay, submodel) for submodel in range(len(parts.engine.stacks))]
    weights = replay.start
    for number, plan in enumerate(replay.plans):
        total, masks = None, []
        for slot, (client, level) in enumerate(zip(plan.clients.tolist(), plan.levels.tolist())):
            place, submodel = f"round{number}/client{client}", submodel_of[level]
            _note_cut(replay, submodel, weights, client, number, differences)
            trained, losses, norms = training[submodel](weights, client, number, plan, slot)
            differences.note("loss", losses, vectors.result(f"{place}/loss"))
            differences.note("norm", norms, vectors.result(f"{place}/grad_norm"), relative=True)
            after = vectors.parameters(f"{place}/after", [tuple(value.shape) for value in trained])
            # A shortened file may leave out the weights of wide clients; their part of the merge still tells.
            _note_all(differences, "client", trained if after else [], after or [])
            rows = _rows(parts, submodel, client, number)
            added = put(parts.placement.cut, submodel, trained, rows)
            total = added if total is None else [have + more for have, more in zip(total, added)]
            masks.append(axis_masks(parts.placement.cut, rows, vectors.precision))
        stacked = {axis: tf.stack([mask[axis] for mask in masks]) for axis in parts.placement.cut.distinct}
        counting = [tf.ones(len(masks), vectors.precision)] * len(weights)
        covered = coverage(parts.placement.cut, stacked, counting)
        merged, _ = merge_updates(parts, {"weights": weights, "slots": []}, total, covered)
        after = vectors.parameters(f"round{number}/global_after", replay.shapes)
        _note_all(differences, "merge", merged, after)
        weights = [tf.constant(value, vectors.precision) for value in after]


def _training(replay, submodel):
    """Local training of one client of a sub-model, alone in its stack; compiled once for all its clients."""
    parts, rate = replay.process.parts, tf.constant(replay.vectors.meta["lr"], replay.vectors.precision)
    stack = parts.engine.stacks[submodel]
    weights = [tf.TensorSpec(shape, replay.vectors.precision) for shape in replay.shapes]
    # One trace for every number of steps and every size of a batch.
    work = [
        tf.TensorSpec(shape, tf.int32)
        for shape in ([stack.clients], [stack.clients], [], [stack.clients, None, None], [None], [None])
    ]

    @tf.function(autograph=False, input_signature=[weights, tf.TensorSpec([], tf.int32), *work])
    def train(weights, number, *work):
        state = {"weights": weights, "slots": [], "tables": {"personal": {}, "memory": {}}}
        work = StackPlan(*work)
        update = train_stack(parts, submodel, state, number, tf.constant(0), work, rate)
        return stack.from_row(update.local.weights[0]), update.local.losses[:, 0], update.local.gradient_norms[:, 0]

    def alone(weights, client, number, plan, slot):
        steps = plan.steps[slot]
        empty = [(0, stack.clients - 1), (0, 0), (0, 0)]
        clients = np.pad([client], empty[:1], constant_values=-1).astype(np.int32)
        rows = np.pad(plan.rows[slot : slot + 1, :steps], empty, constant_values=-1)
        work = (clients, np.zeros_like(clients), steps, rows, plan.starts[slot, :steps], plan.stages[slot, :steps])
        return train(weights, tf.constant(number), *map(tf.constant, work))

    return alone


def _note_cut(replay, submodel, weights, client, number, differences):
    """The sub-model that the server hands out, bit by bit; files have it in float32, global-level clients never."""
    vectors, parts, place = replay.vectors, replay.process.parts, f"round{number}/client{client}"
    if vectors.precision == "float32" and replay._has_cut(place, client):
        shapes = parts.engine.stacks[submodel].own_shapes[: parts.placement.trainable]
        before = vectors.parameters(f"{place}/before", shapes, results=False)
        where = _where(parts, submodel, client, number)
        _note_all(differences, "cut", take(parts.placement.cut, submodel, weights, where), before)


def _where(parts, submodel, client, number):
    labels, number, client, zero = tf.range(parts.examples.present.shape[1]), *map(tf.constant, (number, client, 0))
    return coordinates(parts.placement.cut, submodel, parts.algorithm.submodel, number, client, zero, labels, zero)


def _rows(parts, submodel, client, number):
    return merged_coordinates(
        parts.placement.cut, _where(parts, submodel, client, number), tf.gather(parts.examples.present, client)
    )


def _note_all(differences, stage, found, expected):
    for mine, theirs in zip(found, expected, strict=True):
        differences.note(stage, mine, theirs)


def compare_rounds(replay, covered, differences):
    """All rounds, one after the other; entries that no client covers must be bit-equal to their old value.

    Args:
        covered: For each round the masks of `Replay.covered`.
    """
    vectors, process = replay.vectors, replay.process
    names = [v.path for v in process.evaluator.global_model.trainable_variables]
    state = State(0, dict(zip(names, replay.start)))
    process = dataclasses.replace(process)
    object.__setattr__(process, "learning_rate", lambda round: vectors.meta["lr"])
    for number, plan in enumerate(replay.plans):
        old = state.weights
        state, _ = process.run(state, [plan])
        after = vectors.parameters(f"round{number}/global_after", replay.shapes)
        place = f"round{number - 1}/global_after" if number else "global_init"
        before = vectors.parameters(place, replay.shapes, results=number > 0)
        for name, new, was, mask in zip(names, after, before, covered[number], strict=True):
            differences.note("round", state.weights[name], new)
            differences.note("kept", np.asarray(state.weights[name])[~mask], np.asarray(old[name])[~mask])
            differences.note("kept", np.asarray(new)[~mask], np.asarray(was)[~mask])
    return state


def compare_evaluation(replay, state, differences):
    """The statistics query, global and local logits and losses of the final model."""
    vectors, process = replay.vectors, replay.process
    weights = list(state.weights.values())
    statistics = []
    if vectors.statistics_names():
        statistics = _statistics(replay, weights)
        if len(statistics) != 2 * len(vectors.statistics_names()):
            raise SystemExit(f"{vectors.name}: has statistics of some norms only")
        names = [f"sbn/{name}.running_{part}" for name in vectors.statistics_names() for part in ("mean", "var")]
        _note_all(differences, "sbn", statistics, map(vectors.result, names))
    elif calibration.statistics_paths(process.evaluator.global_model):
        raise SystemExit(f"{vectors.name}: the model has statistics but the file has none")
    found = process.evaluator.measure_global(weights, statistics)
    if vectors.text:
        paths = calibration.statistics_paths(process.evaluator.global_model)
        model = process.model(state, statistics=dict(zip(paths, statistics)))
        hidden = vectors.input("eval/mask") == 1
        logits = model(np.where(hidden, vectors.meta["num_tokens"], vectors.input("eval/tokens")), training=False)
        differences.note("global", np.transpose(logits, (0, 2, 1)), vectors.result("eval/global/logits"))
        differences.note("global", found["global_perplexity"], vectors.result("eval/global/perplexity"), relative=True)
    else:
        logits = tf.function(process.evaluator.global_logits)(weights, statistics)
        differences.note("global", logits, vectors.result("eval/global/logits"))
        _compare_local(replay, logits, differences)
    differences.note("global", found["global_loss"], vectors.result("eval/global/loss"))


def _statistics(replay, weights):
    vectors, process = replay.vectors, replay.process
    images, labels = tf.constant(vectors.input("sbn/img")), tf.constant(vectors.input("sbn/label"))
    models = process.evaluator.global_model, process.family.predictor(process.recipe.levels.global_level)
    size = vectors.meta["sbn_batch"]
    calibrate = calibration.build_calibrate(*models, process.input, images, labels, size, parallel=2)
    full, short = calibration.statistics_batches([np.arange(len(images))], size)
    return calibrate(weights, full, short, 0)


def _compare_local(replay, logits, differences):
    tests, first = replay.process.evaluator.tests, 0
    logits = tf.gather(logits, tests.examples)
    if registry.find("losses", replay.process.recipe.client.loss.name).MASKS_LABELS:
        logits = masked(logits, tests.present)
    for client, ids in enumerate(replay.process.partition.test):
        if len(ids):
            own = logits[first : first + len(ids)]
            differences.note("local", own, replay.vectors.result(f"eval/local{client}/logits"))
            first += len(ids)


def replay_file(path, precision, engine):
    """All stages of one file: `Gaps`."""
    vectors = Vectors(path, precision)
    differences = Gaps()
    whole = Replay(vectors, engine, label_cut=False)
    compare_clients(whole, differences)
    covered = [whole.covered(plan) for plan in whole.plans]
    state = compare_rounds(whole, covered, differences)
    compare_rounds(Replay(vectors, engine, label_cut=True), covered, differences)
    compare_evaluation(whole, state, differences)
    if differences.keys() != whole.stages():
        raise SystemExit(f"{vectors.name}: shows {sorted(differences)} instead of {sorted(whole.stages())}")
    return differences


def within(precision, differences, double_passes):
    """Whether every stage is inside its tolerance; returns the stages that are not."""
    limits = TOLERANCES[precision]
    slack = FLIPPED if precision == "float32" and double_passes else 0.0
    return [
        stage
        for stage, gap in differences.items()
        if gap > (limits[stage] if stage in BIT_EQUAL else max(limits[stage], slack))
    ]


def main(argv=None):
    """Replays a folder and returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--precision", choices=("float64", "float32"), action="append")
    parser.add_argument("--engine", choices=ENGINES, action="append")
    args = parser.parse_args(argv)
    files = sorted(args.folder.glob("*.npz"))
    if not files:
        print(f"{args.folder}: no .npz file")
        return 2
    failed = sum(
        not _report(path, engine, args.precision or ("float64", "float32"))
        for path in files
        for engine in args.engine or ENGINES
    )
    print(f"{len(files)} files, {failed} failed")
    return int(failed > 0)


def _report(path, engine, precisions):
    """Replays one file with one engine, prints a line for each precision, and says whether all is within."""
    passes, good = False, True
    for precision in precisions:
        if not Vectors(path, precision).has_results:
            continue
        try:
            differences = replay_file(path, precision, engine)
        except SystemExit as problem:
            print(f"FAIL {path.name:24} {precision} {engine:6}  {problem}", flush=True)
            return False
        beyond = within(precision, differences, passes and _may_flip(path))
        passes, good = precision == "float64" and not beyond, good and not beyond
        told = "  ".join(f"{stage} {gap:.1e}" for stage, gap in differences.items())
        print(
            f"{'FAIL' if beyond else 'ok  '} {path.name:24} {precision} {engine:6}  {told}"
            + (f"  beyond tolerance: {', '.join(beyond)}" if beyond else ""),
            flush=True,
        )
    return good


def _may_flip(path):
    """In float32 one ReLU near zero can move a small ResNet with batch norm by 1e-3; only that file type may."""
    meta = Vectors(path, "float32").meta
    return meta["model"] == "resnet18" and meta["norm"] == "bn"


if __name__ == "__main__":
    sys.exit(main())
