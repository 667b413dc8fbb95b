#!/usr/bin/env python3
"""Trains on images that stay on disk, with few and with many images, and prints the memory.

benchmarks/on_disk.py [--examples 128117 1281167] [--size 32] [--rounds 3] [--folder DIR] [--in_memory]

Clients have 20 images each, so a round of 100 active clients always reads 2,000 images. The images are noise that this
program writes and removes at its end. Each number of examples runs in a separate process.
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import checkout  # noqa: F401  finds hetero_tf and its libraries

from hetero_tf.base import hardware

RECIPE = """
name: on_disk
data: {name: npy, path: .}
partition: {name: iid, clients: %d}
input: {name: images, mean: [0.5], std: [0.3]}
levels: {mix: a-c, assignment: dynamic, widths: {a: 1, c: 0.25}}
round: {clients: 100}
client: {epochs: 1, batch_size: 10}
optimizer: {learning_rate: 0.05}
evaluate: {batch_size: 500, best: global_accuracy, statistics_batch: 500}
model:
  layers:
    - [PaddedConv2D: {filters: !w 16, stride: 2}, Scaler, Norm: {kind: sbn}, ReLU]
    - GlobalAveragePooling2D
    - Dense: {units: !classes, kernel_initializer: fan_in_uniform}
rounds: 3
"""
CLASSES, OF_CLIENT = 10, 20


def arguments():
    """The arguments."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--examples", type=int, nargs="+", default=[128117, 1281167])
    parser.add_argument("--size", type=int, default=32, help="height and width of the images, which have 3 channels")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", type=Path, help="folder for the images; default: a temporary folder")
    parser.add_argument("--in_memory", action="store_true", help="keep the images in memory, for comparison")
    parser.add_argument("--read", type=Path, help=argparse.SUPPRESS)
    return parser.parse_args()


def write(folder, examples, size):
    """Writes the folder of arrays, some images at a time."""
    import numpy as np

    rng = np.random.default_rng(0)
    for part, count in (("train", examples), ("test", max(examples // 20, 100))):
        np.save(folder / f"y_{part}.npy", (np.arange(count) % CLASSES).astype(np.int32))
        with open(folder / f"x_{part}.npy", "wb") as file:
            about = {"descr": "|u1", "fortran_order": False, "shape": (count, size, size, 3)}
            np.lib.format.write_array_header_1_0(file, about)
            for first in range(0, count, 5000):
                file.write(rng.bytes(min(5000, count - first) * size * size * 3))


def in_memory(dataset):
    """The same data set with its images in memory."""
    import dataclasses

    splits = {name: dataclasses.replace(split, x=split.x[:]) for name, split in splits_of(dataset)}
    return dataclasses.replace(dataset, **splits)


def splits_of(dataset):
    """The splits by name."""
    return ("train", dataset.train), ("test", dataset.test)


def measure(args):
    """Results of one process: seconds of a start, a round and an evaluation, and its peak resident memory."""
    hardware.import_quietly()
    from hetero_tf import learning_process
    from hetero_tf.data import npy

    began = time.perf_counter()
    dataset = npy.load(args.read, path=".")
    dataset = in_memory(dataset) if args.in_memory else dataset
    process = learning_process(RECIPE % (len(dataset.train.x) // OF_CLIENT), dataset=dataset)
    digest = dataset.sha256
    state = process.next(process.initialize())[0]
    built, rounds = time.perf_counter() - began, []
    for _ in range(args.rounds):
        began = time.perf_counter()
        state, row = process.next(state)
        rounds.append(time.perf_counter() - began)
    began = time.perf_counter()
    metrics, _ = process.evaluate(state)
    return {
        "examples": len(dataset.train.x),
        "gib": round(dataset.train.x.nbytes / 2**30, 2),
        "start_s": round(built, 1),
        "round_s": round(min(rounds), 3),
        "evaluate_s": round(time.perf_counter() - began, 1),
        "loss": row["loss"],
        "global_loss": metrics["global_loss"],
        "sha256": digest[:8],
        "traces": process.runner.compiled_round.experimental_get_tracing_count(),
        "peak_rss_mib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
    }


def main():
    """Writes, measures and prints a JSON line for each number of examples."""
    args = arguments()
    if args.read:
        print(json.dumps(measure(args)))
        return
    for examples in args.examples:
        with tempfile.TemporaryDirectory(dir=args.folder) as folder:
            write(Path(folder), examples, args.size)
            command = [sys.executable, __file__, "--read", folder, "--rounds", str(args.rounds)]
            subprocess.run([*command, *(["--in_memory"] if args.in_memory else [])], check=True)


if __name__ == "__main__":
    main()
