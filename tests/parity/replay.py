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
from heterofl import STAGES, Replay, Vectors
from methods_common import merge, state_of
from methods_files import Gaps

from hetero_tf.base import registry
from hetero_tf.base.replicas import Replicas
from hetero_tf.evaluation import calibration
from hetero_tf.methods.losses.masked_cross_entropy import masked
from hetero_tf.rounds.gather import coordinates, merged_coordinates, put, take
from hetero_tf.rounds.merge import axis_masks

# float64: 1e-8 everywhere. float32: what the README of the vectors allows.
TOLERANCES = {
    "float64": dict.fromkeys(STAGES, 1e-8),
    "float32": dict.fromkeys(STAGES, 1e-5) | {"cut": 0.0, "norm": 1e-4, "kept": 0.0},
}
BIT_EQUAL = ("cut", "kept")
ENGINES = ("sequential", "stacked")
FLIPPED = 1e-3


def compare_clients(replay):
    """Cut and local training of every client of every round and their merge, from the weights of the authors' run."""
    file, gaps, state, submodel_of = replay.file, replay.gaps, replay.start(), replay.process.family.submodel_of
    for number, plan in enumerate(replay.plans):
        trained = []
        for slot, client in enumerate(plan.clients.tolist()):
            place = f"round{number}/client{client}"
            if replay.has_cut(number, client):
                submodel, cut = submodel_of[plan.levels[slot]], replay.process.parts.placement.cut
                found = take(cut, submodel, list(state.weights.values()), _where(replay, plan, slot, number))
                handed_out = dict(zip(replay.process.paths, found, strict=True))
                gaps.note("cut", handed_out, replay.given(f"{place}/before", handed_out))
            found = replay.trainer(state, plan, slot)
            replay.note("loss", found.losses, f"{place}/loss")
            gaps.note("norm", found.norms, file.result(f"{place}/grad_norm"), relative=True)
            # A shortened file may leave out the weights of wide clients; their part of the merge still tells.
            if not file.leaves_out(f"{place}/after"):
                replay.compare_values(found, place)
            trained.append(found.values)
        after = replay.expected(f"round{number}/global_after")
        gaps.note("merge", _merge(replay, state, plan, number, trained), after)
        state = state_of(replay.process, after, number + 1)


def _merge(replay, state, plan, number, trained):
    """`{path: value}` after the merge of what the clients of a plan have trained."""
    parts, submodel_of, added, masks = replay.process.parts, replay.process.family.submodel_of, [], []
    for slot, values in enumerate(trained):
        where, present = _where(replay, plan, slot, number), parts.examples.present[plan.clients[slot]]
        rows = merged_coordinates(parts.placement.cut, where, present)
        tensors = list(map(tf.constant, values.values()))
        added.append(put(parts.placement.cut, submodel_of[plan.levels[slot]], tensors, rows))
        masks.append(axis_masks(parts.placement.cut, rows, replay.file.precision))
    stacked = {axis: tf.stack([mask[axis] for mask in masks]) for axis in parts.placement.cut.distinct}
    total, counts = list(map(sum, zip(*added))), tf.ones(len(masks), replay.file.precision)
    return merge(replay.process, state, total, stacked, counts)


def _where(replay, plan, slot, number):
    """The coordinates of the client in a slot of a plan."""
    parts, submodel = replay.process.parts, replay.process.family.submodel_of[plan.levels[slot]]
    labels = tf.range(parts.examples.present.shape[1])
    number, client, zero = map(tf.constant, (number, int(plan.clients[slot]), 0))
    return coordinates(parts.placement.cut, submodel, parts.algorithm.submodel, number, client, zero, labels, zero)


def compare_rounds(replay, covered):
    """All rounds, one after the other, with the masks of `Replay.covered` of each: the last `State`."""
    state = replay.start()
    for number, plan in enumerate(replay.plans):
        state = replay.compare_round(state, plan, number, covered[number])
    return state


def compare_evaluation(replay, state):
    """The statistics query, global and local logits and losses of the final model."""
    file, gaps, evaluator = replay.file, replay.gaps, replay.process.evaluator
    weights, paths = list(state.weights.values()), calibration.statistics_paths(evaluator.global_model)
    names = [f"sbn/{name}.running_{part}" for name in file.statistics_names() for part in ("mean", "var")]
    if len(names) != len(paths):
        raise SystemExit(f"{file.name}: has other statistics than the norms of the model")
    statistics = _statistics(replay, weights) if paths else []
    for value, name in zip(statistics, names, strict=True):
        replay.note("sbn", value, name)
    found = evaluator.measure_global(weights, statistics)
    if file.text:
        model = replay.process.network(state, statistics=dict(zip(paths, statistics)))
        hidden = file.input("eval/mask") == 1
        logits = model(np.where(hidden, file.meta["num_tokens"], file.input("eval/tokens")), training=False)
        replay.note("global", np.transpose(logits, (0, 2, 1)), "eval/global/logits")
        gaps.note("global", found["global_perplexity"], file.result("eval/global/perplexity"), relative=True)
    else:
        logits = tf.function(evaluator.global_logits)(weights, statistics)
        replay.note("global", logits, "eval/global/logits")
        _compare_local(replay, logits)
    replay.note("global", found["global_loss"], "eval/global/loss")


def _statistics(replay, weights):
    file, process = replay.file, replay.process
    images, labels = tf.constant(file.input("sbn/img")), tf.constant(file.input("sbn/label"))
    models = process.evaluator.global_model, process.family.predictor(process.recipe.levels.global_level)
    size = file.meta["sbn_batch"]
    calibrate = calibration.build_calibrate(*models, process.input, images, labels, size, Replicas(2))
    full, short = calibration.statistics_batches([np.arange(len(images))], size)
    return calibrate(weights, full, short, 0)


def _compare_local(replay, logits):
    tests, first = replay.process.evaluator.tests, 0
    logits = tf.gather(logits, tests.examples)
    if registry.find("losses", replay.process.recipe.client.loss.name).MASKS_LABELS:
        logits = masked(logits, tests.present)
    for client, ids in enumerate(replay.process.partition.test):
        if len(ids):
            replay.note("local", logits[first : first + len(ids)], f"eval/local{client}/logits")
            first += len(ids)


def replay_file(path, precision, engine):
    """All stages of one file: `Gaps`."""
    file, gaps = Vectors(path, precision), Gaps()
    whole = Replay(file, gaps, engine, label_cut=False)
    compare_clients(whole)
    covered = [whole.covered(plan) for plan in whole.plans]
    state = compare_rounds(whole, covered)
    compare_rounds(Replay(file, gaps, engine, label_cut=True), covered)
    compare_evaluation(whole, state)
    if gaps.keys() != whole.stages():
        raise SystemExit(f"{file.name}: shows {sorted(gaps)} instead of {sorted(whole.stages())}")
    return gaps


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
        file = Vectors(path, precision)
        if not file.has_results:
            continue
        try:
            gaps = replay_file(path, precision, engine)
        except SystemExit as problem:
            print(f"FAIL {path.name:24} {precision} {engine:6}  {problem}", flush=True)
            return False
        # In float32 one ReLU near zero can move a small ResNet with batch norm by 1e-3; only that file type may.
        may_flip = file.meta["model"] == "resnet18" and file.meta["norm"] == "bn"
        beyond = within(precision, gaps, passes and may_flip)
        passes, good = precision == "float64" and not beyond, good and not beyond
        told = "  ".join(f"{stage} {gap:.1e}" for stage, gap in gaps.items())
        told += f"  beyond tolerance: {', '.join(beyond)}" if beyond else ""
        print(f"{'FAIL' if beyond else 'ok  '} {path.name:24} {precision} {engine:6}  {told}", flush=True)
    return good


if __name__ == "__main__":
    sys.exit(main())
