#!/usr/bin/env python3
"""Measures the quickest figures of RESULTS.md and README.md again, and prints the claimed and the measured values.

    benchmarks/check_results.py [--only NAME ...] [--data_dir DIR] [--json]

All of them take some minutes on two cores. The claimed value is read from the page. "band" is the largest difference
that is no defect: 0 for counts, the difference between processors for results of training, and the range of the seeds
for short trainings. The exit status is 1 if a value is outside of its band, or if a command failed, which prints its
reason below the figure.
"""

import argparse
import dataclasses
import functools
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable

import checkout

HETERO_TF = ("-m", "hetero_tf")
RESULTS, README = "benchmarks/RESULTS.md", "README.md"
QUIET = ("--json", "--quiet")
# Without the real data a command fails; it does not measure the data that stand in for them.
REAL_DATA = "--set=data.fallback=null"
FIRST_ROUND = ("benchmarks/first_round.py", "mnist", "cifar10", REAL_DATA, "--json")
DEVICE = ("benchmarks/device.py", "--recipe=mnist", "--levels", "a", "e", REAL_DATA, "--json")
POOLED = ("benchmarks/pooled.py", "digits", "--set=rounds=20", "--json")
UNPACK = ("-m", "tarfile", "--extract", "benchmarks/heterofl_narrow.tar.gz", "{folder}/narrow")
NARROW_MNIST = tuple(f"{{folder}}/narrow/mnist-levels.mix=e-seed={seed}" for seed in range(3))
TURNS = ("--epochs=1", "--repeats=12", "--policies")
POLICIES = ("benchmarks/round.py", "--recipe=mnist", "--levels=e", *TURNS, REAL_DATA, "--json")
# The line of an error: of the program, or of a Python exception.
ERROR = re.compile(r"(hetero_tf|[\w.]*[A-Z]\w*): ")


@dataclasses.dataclass(frozen=True)
class Figure:
    """A printed value and the commands that measure it.

    Attributes:
        page: The file that has the value, relative to the checkout.
        claim: A regular expression whose only group is the claimed value. It matches once on the page.
        commands: Arguments of Python, run in this order; `{folder}` is an empty folder that all figures share.
        read: The measured value from the JSON that the last command prints.
        band: The largest difference between both values that is accepted.
    """

    page: str
    claim: str
    commands: tuple[tuple[str, ...], ...]
    read: Callable[[object], float]
    band: float


FIGURES = {
    "digits": Figure(
        README,
        r"best: acc ([\d.]+) %",
        ((*HETERO_TF, "--recipe=recipes/digits.yaml", "--run_dir={folder}/digits", *QUIET),),
        lambda run: run["best"]["global_accuracy"],
        1.5,
    ),
    "digits_fedavg": Figure(
        RESULTS,
        r"\| digits \(the shipped recipe\) \| 20 \| accuracy \| ([\d.]+) \|",
        (POOLED,),
        lambda table: table["metrics"]["accuracy"]["fedavg"],
        0.7,
    ),
    "digits_keras": Figure(
        RESULTS,
        r"\| digits \(the shipped recipe\) \| 20 \| accuracy \| [\d.]+ \| ([\d.]+) \|",
        (POOLED,),
        lambda table: table["metrics"]["accuracy"]["keras"],
        0.7,
    ),
    "mnist_parameters": Figure(
        RESULTS,
        r"\| e \| 150, 140, 180 \| .* \| ([\d,]+) \| 0\.40 M \|",
        ((*HETERO_TF, "describe", "--recipe=mnist", REAL_DATA, *QUIET),),
        lambda costs: costs["levels"]["e"]["parameters"],
        0,
    ),
    "mnist_best": Figure(
        RESULTS,
        r"\| e \| 150, 140, 180 \| ([\d.]+) \(98\.60 to 98\.75\) \|",
        (UNPACK, (*HETERO_TF, "compare", *NARROW_MNIST, *QUIET)),
        lambda rows: rows[0]["global_accuracy best"]["mean"],
        0.005,
    ),
    "mnist_nodes": Figure(
        RESULTS,
        r"\| mnist \| [\d.]+ \| [\d.]+ \| [\d.]+ \| [\d.]+ \| ([\d,]+) \|",
        (FIRST_ROUND,),
        lambda table: table["recipes"]["mnist"]["nodes"],
        200,
    ),
    "cifar10_first_round_of_mnist": Figure(
        RESULTS,
        r"first round of cifar10 takes ([\d.]+) times",
        (FIRST_ROUND,),
        lambda table: table["recipes"]["cifar10"]["all_s"] / table["recipes"]["mnist"]["all_s"],
        0.5,
    ),
    "mnist_peak_gib": Figure(
        RESULTS,
        r"\| mnist \| [\d.]+ \| [\d.]+ \| [\d.]+ \| [\d.]+ \| [\d,]+ \| ([\d.]+) GiB \|",
        (FIRST_ROUND,),
        lambda table: table["recipes"]["mnist"]["peak_mib"] / 1024,
        0.2,
    ),
    "buffered_10_of_wait": Figure(
        RESULTS,
        r"\| buffered, size 10 \| 10 \| 5 \| [\d.]+ \| ([\d.]+) \|",
        (POLICIES,),
        lambda table: table["of_wait"]["buffered, size 10"],
        0.3,
    ),
    "buffered_3_of_wait": Figure(
        RESULTS,
        r"\| buffered, size 3 \| 3 \| 2 \| [\d.]+ \| ([\d.]+) \|",
        (POLICIES,),
        lambda table: table["of_wait"]["buffered, size 3"],
        0.7,
    ),
    "immediate_of_wait": Figure(
        RESULTS,
        r"\| immediate \| 1 \| 1 \| [\d.]+ \| ([\d.]+) \|",
        (POLICIES,),
        lambda table: table["of_wait"]["immediate"],
        0.7,
    ),
    "device_loss": Figure(
        RESULTS, r"\| mnist e \| 6,594 \| [\d.]+ to ([\d.]+) \|", (DEVICE,), lambda level: level["loss"][-1], 0.002
    ),
    "device_file_bytes": Figure(
        RESULTS,
        r"\| mnist e \| 6,594 \| [^|]+ \| [^|]+ \| [^|]+ \| ([\d,]+) \|",
        (DEVICE,),
        lambda level: level["file_bytes"],
        20_000,
    ),
}


def parse():
    """The arguments."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=FIGURES, default=list(FIGURES), help="names of figures")
    parser.add_argument("--data_dir", help="folder of the data; default HETERO_TF_DATA")
    parser.add_argument("--json", action="store_true", help="one JSON line for each figure instead of a table")
    return parser.parse_args()


def claimed(figure):
    """The value on the page."""
    (text,) = re.findall(figure.claim, (checkout.ROOT / figure.page).read_text("utf-8"))
    return float(text.replace(",", ""))


@functools.cache
def printed(commands):
    """The JSON that the last of some commands prints; figures of the same commands share it.

    Raises:
        RuntimeError: A command failed; the message is its error, or the last line that it printed.
    """
    for command in commands:
        done = subprocess.run([sys.executable, *command], cwd=checkout.ROOT, capture_output=True, text=True)
        if done.returncode:
            lines = (done.stdout + done.stderr).splitlines()
            errors = [line for line in lines if ERROR.match(line)]
            raise RuntimeError((errors or [line for line in lines if line.strip()] or ["no output"])[-1])
    return json.loads(done.stdout.strip().splitlines()[-1])


def measure(name, folder):
    """The row of a figure."""
    figure, began = FIGURES[name], time.perf_counter()
    row = {"figure": name, "page": figure.page, "claimed": claimed(figure), "measured": None, "band": figure.band}
    try:
        commands = tuple(tuple(part.replace("{folder}", folder) for part in command) for command in figure.commands)
        row["measured"] = float(figure.read(printed(commands)))
        row["within"] = abs(row["measured"] - row["claimed"]) <= figure.band
    except RuntimeError as error:
        row |= {"within": False, "error": str(error)}
    return row | {"seconds": time.perf_counter() - began}


def shown(row):
    """A line of the table, and below it why a command failed."""
    measured = "failed" if row["measured"] is None else f"{row['measured']:,.6g}"
    verdict = "yes" if row["within"] else "no"
    values = f"{row['claimed']:12,.6g} {measured:>12} {row['band']:8,g}"
    line = f"{row['figure']:24} {values}   {verdict:6} {row['seconds']:7.0f}"
    return line if row["measured"] is not None else f"{line}\n    {row['error']}"


def main():
    """Measures and prints; returns the exit status."""
    args = parse()
    if args.data_dir:
        os.environ["HETERO_TF_DATA"] = args.data_dir
    if not args.json:
        print(f"{'figure':24} {'claimed':>12} {'measured':>12} {'band':>8}   within seconds")
    within = True
    with tempfile.TemporaryDirectory() as folder:
        for name in args.only:
            row = measure(name, folder)
            within &= row["within"]
            print(json.dumps(row) if args.json else shown(row), flush=True)
    return 0 if within else 1


if __name__ == "__main__":
    sys.exit(main())
