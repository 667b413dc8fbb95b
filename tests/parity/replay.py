#!/usr/bin/env python3
"""Replays vectors of the HeteroFL authors' code through hetero_tf and compares every stage.

    python tests/parity/replay.py DIR [--precision float64] [--engine sequential]

DIR holds npz files as `tests/parity/README.md` describes them. For each file, precision and engine one line tells the
largest difference of each stage; the exit code is 1 if one is beyond its tolerance.
"""

import argparse
import os
import sys
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
# As the command line runs on a CPU. With several threads inside an operation, TensorFlow 2.21's oneDNN kernels crash
# on the float32 ResNet without norms.
os.environ.setdefault("TF_NUM_INTRAOP_THREADS", "1")
os.environ.setdefault("TF_NUM_INTEROP_THREADS", "2")
sys.path[:0] = [str(Path(__file__).resolve().parents[2]), str(Path(__file__).resolve().parent)]

import numpy as np
import tensorflow as tf
from heterofl import STAGES, Replay
from methods_common import Trainer
from methods_files import Gaps
from vectors import Vectors

from hetero_tf.base import registry
from hetero_tf.evaluation import calibration
from hetero_tf.methods.losses.masked_cross_entropy import masked
from hetero_tf.rounds.coverage import axis_masks, coverage
from hetero_tf.rounds.cut import coordinates, merged_coordinates, put, take
from hetero_tf.rounds.merge import merge_updates

# float64: 1e-8 everywhere. float32: what the README of the vectors allows.
TOLERANCES = {
    "float64": dict.fromkeys(STAGES, 1e-8),
    "float32": dict.fromkeys(STAGES, 1e-5) | {"cut": 0.0, "norm": 1e-4, "kept": 0.0},
}
BIT_EQUAL = ("cut", "kept")
ENGINES = ("sequential", "stacked")
FLIPPED = 1e-3


def compare_clients(replay, differences):
    """Cut and local training of every client of every round, from the weights of the authors' run."""
    vectors, parts = replay.vectors, replay.process.parts
    submodel_of = replay.process.family.submodel_of
    state, trainer = replay.start, Trainer(replay.process)
    for number, plan in enumerate(replay.plans):
        weights, total, masks = list(state.weights.values()), None, []
        for slot, (client, level) in enumerate(zip(plan.clients.tolist(), plan.levels.tolist())):
            place, submodel = f"round{number}/client{client}", submodel_of[level]
            _note_cut(replay, submodel, weights, client, number, differences)
            update = trainer(state, plan, slot)
            trained = list(update.values.values())
            differences.note("loss", update.losses, vectors.result(f"{place}/loss"))
            differences.note("norm", update.norms, vectors.result(f"{place}/grad_norm"), relative=True)
            after = vectors.parameters(f"{place}/after", [value.shape for value in trained])
            # A shortened file may leave out the weights of wide clients; their part of the merge still tells.
            _note_all(differences, "client", trained if after else [], after or [])
            rows = _rows(parts, submodel, client, number)
            added = put(parts.placement.cut, submodel, list(map(tf.constant, trained)), rows)
            total = added if total is None else [have + more for have, more in zip(total, added)]
            masks.append(axis_masks(parts.placement.cut, rows, vectors.precision))
        stacked = {axis: tf.stack([mask[axis] for mask in masks]) for axis in parts.placement.cut.distinct}
        counting = [tf.ones(len(masks), vectors.precision)] * len(weights)
        covered = coverage(parts.placement.cut, stacked, counting)
        merged, _ = merge_updates(parts, {"weights": weights, "slots": []}, total, covered)
        after = vectors.parameters(f"round{number}/global_after", replay.shapes)
        _note_all(differences, "merge", merged, after)
        state = replay.state(number + 1, after)


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
    state = replay.start
    for number, plan in enumerate(replay.plans):
        old = state.weights
        state, _ = process.run(state, [plan])
        after = vectors.parameters(f"round{number}/global_after", replay.shapes)
        place = f"round{number - 1}/global_after" if number else "global_init"
        before = vectors.parameters(place, replay.shapes, results=number > 0)
        for name, new, was, mask in zip(process.paths, after, before, covered[number], strict=True):
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
