#!/usr/bin/env python3
"""Exports a compiled round, and times it on another machine with JAX and a GPU but without TensorFlow.

    benchmarks/device_round.py export --recipe mnist --levels a-e --steps 20 DIR    # here
    benchmarks/device_round.py run DIR [--json]                                     # there; here it checks the export

`export` writes the round as StableHLO with its arguments and its result on this CPU. `run` compares and times it on
the first JAX device. It uses a private API of JAX (written for 0.10.2).
"""

import argparse
import json
import statistics
import sys
import time
from pathlib import Path

import numpy as np

sys.path[:0] = [str(Path(__file__).resolve().parents[1]), str(Path(__file__).resolve().parent)]


def parse():
    """The arguments."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    export = commands.add_parser("export")
    export.add_argument("--recipe", default="digits")
    export.add_argument("--levels", default="a")
    export.add_argument("--steps", type=int, default=20, help="maximum number of steps of each client")
    export.add_argument("--set", action="append", default=[], help="further overrides of the recipe")
    export.add_argument("--data_dir", type=Path)
    run = commands.add_parser("run")
    run.add_argument("--repeats", type=int, default=5)
    run.add_argument("--json", action="store_true")
    for command in (export, run):
        command.add_argument("folder", type=Path)
    return parser.parse_args()


def export(args):
    """Writes the round of a recipe."""
    import tensorflow as tf
    from round import balanced_cohort, shortened, training_flops

    from hetero_tf import data, learning_process, recipe
    from hetero_tf.process.portable_round import portable_round

    loaded = recipe.load(args.recipe, [f"levels.mix={args.levels}", "levels.assignment=fixed", *args.set])
    dataset = data.load(loaded.data.loader, loaded.data.fallback, args.data_dir)
    process = learning_process(loaded, dataset=dataset, device="gpu")
    plan = shortened(process.plan(0, balanced_cohort(process)), args.steps)
    module, arguments = portable_round(process, process.initialize(), [plan])
    native = learning_process(loaded, dataset=dataset, device="cpu")
    expected = native.run(native.initialize(), [plan])[0].weights
    args.folder.mkdir(parents=True, exist_ok=True)
    (args.folder / "round.stablehlo").write_bytes(module)
    np.savez(args.folder / "arguments.npz", *[np.asarray(value) for value in arguments])
    np.savez(args.folder / "expected.npz", *[np.asarray(value) for value in expected.values()])
    about = {
        "recipe": loaded.name,
        "levels": args.levels,
        "steps": int(plan.steps.sum()),
        "flops": float(training_flops(process, plan)),
        "stacks": process.engine_report()["clients_at_once"],
        "tensorflow": tf.__version__,
    }
    (args.folder / "about.json").write_text(json.dumps(about))
    print(f"{args.folder}: {len(module):,} bytes of StableHLO; {about}")


def run(args):
    """Runs an exported round and prints its time and its distance from the result on the CPU."""
    import jax
    from jax._src.lib import xla_client

    device = jax.devices()[0]
    about = json.loads((args.folder / "about.json").read_text())
    began = time.perf_counter()
    program = device.client.compile_and_load(
        (args.folder / "round.stablehlo").read_bytes(), xla_client.DeviceList((device,)), xla_client.CompileOptions()
    )
    compiled = time.perf_counter() - began
    arguments = [jax.device_put(value, device) for value in _arrays(args.folder / "arguments.npz")]
    seconds = []
    for _ in range(1 + args.repeats):
        began = time.perf_counter()
        outputs = [value.block_until_ready() for value in program.execute(arguments)]
        seconds.append(time.perf_counter() - began)
    expected = _arrays(args.folder / "expected.npz")
    gap = max(float(np.max(np.abs(np.asarray(mine) - theirs))) for mine, theirs in zip(outputs, expected))
    took, peak = statistics.median(seconds[1:]), _peak(jax, device)
    report = {
        **about,
        "device": device.device_kind,
        "compile_s": compiled,
        "round_s": took,
        "ms_per_step": 1000 * took / about["steps"],
        "peak_gflops": peak / 1e9,
        "share_of_peak": about["flops"] / took / peak,
        "largest_difference": gap,
    }
    print(json.dumps(report) if args.json else "\n".join(f"{name:20} {value}" for name, value in report.items()))


def _arrays(path):
    with np.load(path) as stored:
        return [stored[f"arr_{index}"] for index in range(len(stored.files))]


def _peak(jax, device, size=8192, repeats=5):
    """Float32 operations per second of one matrix product."""
    if device.platform == "cpu":
        size = 2048
    value = jax.device_put(np.ones((size, size), np.float32), device)
    product = jax.jit(lambda value: value @ value)
    product(value).block_until_ready()
    seconds = []
    for _ in range(repeats):
        began = time.perf_counter()
        product(value).block_until_ready()
        seconds.append(time.perf_counter() - began)
    return 2 * size**3 / min(seconds)


if __name__ == "__main__":
    args = parse()
    {"export": export, "run": run}[args.command](args)
