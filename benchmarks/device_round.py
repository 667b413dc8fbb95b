#!/usr/bin/env python3
"""Exports a compiled round, and times it on another machine with JAX and a GPU but without TensorFlow.

    benchmarks/device_round.py export --recipe mnist --levels a-e --steps 20 DIR    # here
    benchmarks/device_round.py run DIR... [--json]                                  # there; here it checks the export

`export` writes the round as StableHLO with its arguments. Large weights, and large images, are replaced by random
numbers that `run` draws again, so that a folder has a few megabytes. `--check` also writes the result on this CPU,
with which `run` compares. `run` times the round on the first JAX device, and counts the kernels of a local step in the
program that XLA compiled. It uses a private API of JAX (written for 0.10.2 and 0.11.2).
"""

import argparse
import json
import re
import statistics
import sys
import time
from pathlib import Path

import numpy as np

sys.path[:0] = [str(Path(__file__).resolve().parents[1]), str(Path(__file__).resolve().parent)]

# Arrays with more values are drawn.
LARGE = 100_000
# Values of each result that are compared.
SAMPLE = 1000
# Instructions of a compiled program that start no kernel.
FREE = {"bitcast", "constant", "get-tuple-element", "iota", "parameter", "tuple"}


def parse():
    """The arguments."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    export = commands.add_parser("export")
    export.add_argument("--recipe", default="digits")
    export.add_argument("--levels", default="a")
    export.add_argument("--steps", type=int, default=20, help="maximum number of steps of each client")
    export.add_argument("--set", action="append", default=[], help="further overrides of the recipe")
    export.add_argument("--at_once", type=int, help="maximum number of clients that are trained at once")
    export.add_argument("--exact", action="store_true", help="no TensorFloat-32 in products")
    export.add_argument("--check", action="store_true", help="also write the result on this CPU")
    export.add_argument("--data_dir", type=Path)
    run = commands.add_parser("run")
    run.add_argument("--repeats", type=int, default=5)
    run.add_argument("--json", action="store_true")
    export.add_argument("folder", type=Path)
    run.add_argument("folders", type=Path, nargs="+")
    return parser.parse_args()


def export(args):
    """Writes the round of a recipe."""
    import tensorflow as tf
    from portable_round import portable_round
    from round import balanced_cohort, shortened, training_flops

    from hetero_tf import data, learning_process, recipe
    from hetero_tf.rounds import engine

    tf.config.experimental.enable_tensor_float_32_execution(not args.exact)
    engine.MAX_GPU_CLIENTS = args.at_once or engine.MAX_GPU_CLIENTS
    loaded = recipe.load(args.recipe, [f"levels.mix={args.levels}", "levels.assignment=fixed", *args.set])
    drawn = {}
    dataset = with_drawn_images(data.load(loaded.data.loader, loaded.data.fallback, args.data_dir), drawn)
    process = learning_process(loaded, dataset=dataset, device="gpu")
    plan = shortened(process.plan(0, balanced_cohort(process)), args.steps)
    state = with_drawn_weights(process.initialize(), drawn)
    module, arguments = portable_round(process, state, [plan])
    args.folder.mkdir(parents=True, exist_ok=True)
    (args.folder / "expected.npz").unlink(missing_ok=True)
    (args.folder / "round.stablehlo").write_bytes(module)
    draws, stored = {}, {}
    for index, value in enumerate(map(np.asarray, arguments)):
        draw = next((draw for draw, known in drawn.items() if known is value or np.array_equal(known, value)), None)
        if draw is None:
            stored[str(index)] = value
        else:
            draws[str(index)] = draw
    np.savez_compressed(args.folder / "arguments.npz", **stored)
    about = {
        "recipe": loaded.name,
        "levels": args.levels,
        "steps": int(plan.steps.sum()),
        "flops": float(training_flops(process, plan)),
        "stacks": process.engine_report()["clients_at_once"],
        "precision": loaded.precision,
        "exact": args.exact,
        "tensorflow": tf.__version__,
    }
    (args.folder / "about.json").write_text(json.dumps({**about, "draws": draws}))
    if args.check:
        native = learning_process(loaded, dataset=dataset, device="cpu")
        expected = native.run(state, [plan])[0].weights
        pairs = zip(map(np.asarray, state.weights.values()), map(np.asarray, expected.values()))
        samples = {str(index): (sample(before), sample(after)) for index, (before, after) in enumerate(pairs)}
        np.savez(args.folder / "expected.npz", **samples)
    print(f"{args.folder}: {len(module):,} bytes of StableHLO; {about}")


def with_drawn_images(dataset, drawn):
    """The data set with random pixels if it has many; `drawn` receives them."""
    import dataclasses

    x = dataset.train.x
    if x.size <= LARGE or x.ndim < 3:
        return dataset
    values = draw("pixels", 0, x.shape, 1.0)
    drawn[("pixels", 0, x.shape, 1.0)] = values
    return dataclasses.replace(dataset, train=dataclasses.replace(dataset.train, x=values))


def with_drawn_weights(state, drawn):
    """The state with random values of the same spread in its large weights; `drawn` receives them."""
    import dataclasses

    weights = dict(state.weights)
    for index, (path, value) in enumerate(state.weights.items()):
        if np.size(value) > LARGE:
            key = ("normal", index, tuple(value.shape), float(np.std(value)))
            weights[path] = drawn[key] = draw(*key)
    return dataclasses.replace(state, weights=weights)


def draw(kind, seed, shape, scale):
    """Random pixels, or normal float32 values with this standard deviation."""
    random = np.random.default_rng(seed)
    if kind == "pixels":
        return random.integers(0, 256, shape, np.uint8)
    return random.standard_normal(shape, np.float32) * np.float32(scale)


def sample(values):
    """At most `SAMPLE` values at equal distances."""
    flat = np.ravel(values)
    return flat[:: max(1, flat.size // SAMPLE)].astype(np.float64)


def run(folder, repeats):
    """Runs an exported round; returns its time, its kernels, and the distance of its changes from those on the CPU."""
    import jax

    device = jax.devices()[0]
    about = json.loads((folder / "about.json").read_text())
    draws = about.pop("draws")
    began = time.perf_counter()
    program = compiled((folder / "round.stablehlo").read_bytes(), device)
    seconds_to_compile = time.perf_counter() - began
    with np.load(folder / "arguments.npz") as stored:
        values = {**dict(stored), **{index: draw(*map(as_tuple, key)) for index, key in draws.items()}}
    arguments = [jax.device_put(values[str(index)], device) for index in range(len(values))]
    seconds = []
    for _ in range(1 + repeats):
        began = time.perf_counter()
        outputs = [value.block_until_ready() for value in program.execute(arguments)]
        seconds.append(time.perf_counter() - began)
    took, peak = statistics.median(seconds[1:]), peak_flops(jax, device)
    report = {
        "folder": folder.name,
        **about,
        "device": device.device_kind,
        "compile_s": round(seconds_to_compile, 2),
        "round_s": took,
        "ms_per_step": 1000 * took / about["steps"],
        "kernels_per_step": kernels_per_step(program.hlo_modules()[0].to_string()),
        "peak_gflops": peak / 1e9,
        "share_of_peak": about["flops"] / took / peak,
    }
    if (folder / "expected.npz").exists():
        report["relative_difference"] = difference(folder / "expected.npz", outputs)
    return report


def as_tuple(value):
    """JSON's lists as tuples."""
    return tuple(value) if isinstance(value, list) else value


def compiled(module, device):
    """The program of a StableHLO module on a device."""
    from jax._src.lib import xla_client

    devices = xla_client.DeviceList((device,))
    return device.client.compile_and_load(module, devices, xla_client.CompileOptions())


def kernels_per_step(program):
    """Kernels of one pass through the largest loop body of a compiled program, which is a local step.

    Args:
        program: The text of the optimized HLO. Nested loops count once; a command buffer counts its kernels.
    """
    computations, name = {}, None
    for line in program.splitlines():
        if header := re.match(r"(?:ENTRY )?%?([\w.\-]+) .*\{$", line):
            name = header[1]
            computations[name] = []
        elif name and (instruction := re.match(r"\s+(?:ROOT )?%?[\w.\-]+ = .*?[\])}] ([a-z][\w\-]*)\((.*)", line)):
            computations[name].append(instruction.groups())
    bodies = set(re.findall(r"body=%?([\w.\-]+)", program))

    def count(computation):
        total = 0
        for opcode, rest in computations.get(computation, ()):
            called = re.findall(r"(?:to_apply|calls|branch_computations=\{|true_computation|body)=?%?([\w.\-]+)", rest)
            if opcode in ("call", "conditional", "while"):
                total += max(map(count, called), default=1)
            elif opcode not in FREE:
                total += 1
        return total

    def outside_loops(computation):
        """Without nested loops, to find the innermost one."""
        return sum(opcode not in FREE for opcode, _ in computations.get(computation, ()))

    return count(max(bodies, key=outside_loops)) if bodies else None


def difference(path, outputs):
    """Norm of the difference from the weights on the CPU, relative to the norm of their change in the round."""
    gap = norm = 0.0
    with np.load(path) as stored:
        for index, (before, after) in stored.items():
            gap += np.sum((sample(np.asarray(outputs[int(index)])) - after) ** 2)
            norm += np.sum((after - before) ** 2)
    return float(np.sqrt(gap / norm))


def peak_flops(jax, device, size=8192, repeats=5):
    """Float32 operations per second of one matrix product."""
    if device.platform == "cpu":
        size = 2048
    value = jax.device_put(np.random.default_rng(0).standard_normal((size, size), np.float32), device)
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
    if args.command == "export":
        export(args)
    else:
        for folder in args.folders:
            report = run(folder, args.repeats)
            lines = (f"{name:20} {value}" for name, value in report.items())
            print(json.dumps(report) if args.json else "\n".join(lines), flush=True)
