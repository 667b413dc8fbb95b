#!/usr/bin/env python3
"""Compares the time of whole client rounds on this device with the prediction of its `measure-device` class.

    benchmarks/measured_device.py EXPORT [EXPORT ...] [--examples 600] [--rounds 5] [--threads 1]

Each EXPORT is a version folder with a file of `--format litert_train`. A client round pushes the weights, takes one
epoch of steps on random images in batches of one size, and pulls the weights. The prediction is that of the clock of a
fleet whose class is measured with the file of the row. Numbers are medians of the repetitions.
"""

import argparse
import time
from pathlib import Path

import checkout  # noqa: F401  finds hetero_tf and its libraries
import numpy as np

from hetero_tf.devices.measured_fleet import device_of, measure_steps
from hetero_tf.devices.on_device import LiteRTTrainer
from hetero_tf.planning.fleets.devices import client_times, devices_of
from hetero_tf.recipe.schema import Device, Fleet


def parse():
    """The arguments."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("exports", nargs="+", type=Path, metavar="EXPORT")
    parser.add_argument("--examples", type=int, default=600)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    return parser.parse_args()


def client_round(client, name, size, examples):
    """The seconds of a client round with batches of one size of images, and its number of steps."""
    rng = np.random.default_rng(0)
    shape = client.random_batch(name, rng)["image"].shape[1:]
    x, y = rng.integers(0, 256, (examples, *shape), np.uint8), rng.integers(0, 10, examples).astype(np.int32)
    client.settings["batch_size"] = size
    weights = client.pull()
    start = time.perf_counter()
    client.push(weights)
    report = client.train(client.batches(x, y, 1, rng), 0.001, client.present(y), rng)
    client.pull()
    return time.perf_counter() - start, report.steps


def predict(device, steps, flops):
    """Seconds of a client of a fleet whose devices are of a measured class."""
    fleet = Fleet(devices={"measured": Device(**device)})
    devices = devices_of(fleet, 0, np.zeros(1, int), clients=1)
    return float(client_times(devices, [steps], [flops], [0], [0]).total[0])


def main():
    """Prints a row for each file and batch size."""
    args = parse()
    clients = [LiteRTTrainer(folder, args.threads) for folder in args.exports]
    cases = [(client, name, size) for client in clients for name, (size, _) in client.settings["batches"].items()]
    results = {(client.level, size): [] for client, _, size in cases}
    for _ in range(args.rounds):
        # Each repetition measures again, since other load on the machine changes.
        devices = {
            client.level: device_of(measure_steps(client), client.settings["train_flops"], 100) for client in clients
        }
        for client, name, size in cases:
            seconds, steps = client_round(client, name, size, args.examples)
            predicted = predict(devices[client.level], steps, steps * size * client.settings["train_flops"])
            results[client.level, size].append([seconds, predicted / seconds])
    print("| level | batch | measured s | predicted / measured |")
    print("| --- " * 4 + "|")
    for (level, size), repetitions in results.items():
        seconds, ratio = np.median(repetitions, axis=0)
        print(f"| {level} | {size} | {seconds:.3f} | {ratio:.2f} |")


if __name__ == "__main__":
    main()
