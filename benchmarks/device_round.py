#!/usr/bin/env python3
"""Exports a compiled round, and times it on another machine with JAX and a GPU but without TensorFlow.

    benchmarks/device_round.py export --recipe mnist --levels a-e --steps 20 DIR    # here
    benchmarks/device_round.py run DIR... [--json]                                  # there; here it checks the export
    benchmarks/device_round.py export-all DIR                                       # here: all cells of the table
    benchmarks/device_round.py table DIR --minutes 8                                # there

`export` writes the round as StableHLO with its arguments. Large weights, and large images, are replaced by random
numbers that `run` draws again, so that a folder has a few megabytes. `--check` also writes the result on this CPU,
with which `run` compares. `run` times the round on the first JAX device, and counts the kernels of a local step in the
program that XLA compiled. It uses a private API of JAX (written for 0.10.2 and 0.11.2).

`export-all` writes one folder for each recipe and level. `table` times each of them, and `torch_loop.py` if PyTorch is
installed, in one process after the other: levels a and e first. It writes each result to `results.jsonl` at once. When
the minutes are used up, it prints a Markdown table and what is missing; the same command continues on the same device,
and `--minutes 0` only prints the table.
"""

import argparse
import hashlib
import importlib.util
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

sys.path[:0] = [str(Path(__file__).resolve().parents[1]), str(Path(__file__).resolve().parent)]

# Weights and images with more values are drawn.
LARGE = 10_000
# Arrays with more bytes are stored once by `export-all`.
SHARED = 50_000
# Values of each result that are compared.
SAMPLE = 1000
# Instructions of a compiled program that start no kernel.
FREE = {"bitcast", "constant", "get-tuple-element", "iota", "parameter", "tuple"}
# Recipes of the table and their steps of each client; short rounds of mnist would mostly be cut and merge.
STEPS = {"mnist": 60, "cifar10": 20, "wikitext2": 20}
LEVELS = "aedcb"
OURS, STACK, LOOP = "hetero_tf", "stack", "loop"
# Products by Triton abort JAX 0.11.2 for some forms of a round.
XLA_FLAGS = "--xla_gpu_enable_triton_gemm=false"


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
    run = commands.add_parser("run")
    run.add_argument("--repeats", type=int, default=5)
    run.add_argument("--json", action="store_true")
    export.add_argument("--arrays", type=Path, help="folder of large arrays that several exports share")
    export.add_argument("folder", type=Path)
    run.add_argument("folders", type=Path, nargs="+")
    export_all = commands.add_parser("export-all")
    export_all.add_argument("folder", type=Path)
    export_all.add_argument("--recipes", nargs="+", default=list(STEPS))
    export_all.add_argument("--levels", nargs="+", default=list(LEVELS))
    for each in (export, export_all):
        each.add_argument("--exact", action="store_true", help="no TensorFloat-32 in products")
        each.add_argument("--check", action="store_true", help="also write the result on this CPU")
        each.add_argument("--data_dir", type=Path)
    table = commands.add_parser("table")
    table.add_argument("--minutes", type=float, default=8, help="time of the whole command")
    table.add_argument("--repeats", type=int, default=5)
    table.add_argument("--results", type=Path, help="default: results.jsonl in the folder")
    table.add_argument("folder", type=Path)
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
    draws, stored, shared = {}, {}, {}
    for index, value in enumerate(map(np.asarray, arguments)):
        draw = next((draw for draw, known in drawn.items() if known is value or np.array_equal(known, value)), None)
        if draw is not None:
            draws[str(index)] = draw
        elif args.arrays and value.nbytes > SHARED:
            shared[str(index)] = write_once(args.arrays, value)
        else:
            stored[str(index)] = value
    np.savez_compressed(args.folder / "arguments.npz", **stored)
    about = {
        "recipe": loaded.name,
        "levels": args.levels,
        "clients": len(plan.steps),
        "steps": int(plan.steps.sum()),
        "flops": float(training_flops(process, plan)),
        "stacks": process.engine_report()["clients_at_once"],
        "precision": loaded.precision,
        "exact": args.exact,
        "tensorflow": tf.__version__,
    }
    if args.check:
        native = learning_process(loaded, dataset=dataset, device="cpu")
        expected = native.run(state, [plan])[0].weights
        pairs = zip(map(np.asarray, state.weights.values()), map(np.asarray, expected.values()))
        samples = {str(index): (sample(before), sample(after)) for index, (before, after) in enumerate(pairs)}
        np.savez(args.folder / "expected.npz", **samples)
    (args.folder / "about.json").write_text(json.dumps({**about, "draws": draws, "shared": shared}))
    print(f"{args.folder}: {len(module):,} bytes of StableHLO; {about}")


def write_once(folder, value):
    """Stores an array under a hash of its content; returns its file's name."""
    name = hashlib.sha256(repr((value.shape, value.dtype)).encode() + value.tobytes()).hexdigest()[:16] + ".npz"
    if not (folder / name).exists():
        folder.mkdir(parents=True, exist_ok=True)
        np.savez_compressed(folder / name, value=value)
    return name


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
    began = time.perf_counter()
    program = compiled((folder / "round.stablehlo").read_bytes(), device)
    seconds_to_compile = time.perf_counter() - began
    values = read_arguments(folder, about.pop("draws"), about.pop("shared"))
    arguments = [jax.device_put(value, device) for value in values]
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
        "jax": jax.__version__,
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


def read_arguments(folder, draws, shared):
    """The arguments of an exported round, in order; `draws` and `shared` as in its about.json."""
    with np.load(folder / "arguments.npz") as stored:
        values = {**dict(stored), **{index: draw(*map(as_tuple, key)) for index, key in draws.items()}}
    for index, name in shared.items():
        with np.load(folder.parent / "arrays" / name) as stored:
            values[index] = stored["value"]
    return [values[str(index)] for index in range(len(values))]


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


def export_all(args):
    """Exports each recipe at each level that the folder lacks, in a process of its own; returns the exit status."""
    options = [f"--{name}" for name in ("exact", "check") if getattr(args, name)]
    options += ["--data_dir", str(args.data_dir)] if args.data_dir else []
    for recipe in args.recipes:
        for level in args.levels:
            folder = args.folder / f"{recipe.replace('/', '_')}-{level}"
            if (folder / "about.json").exists():
                print(f"{folder}: was exported before")
                continue
            words = ["--recipe", recipe, "--levels", level, "--steps", str(STEPS.get(recipe, 20)), *options]
            words += ["--arrays", str(args.folder / "arrays"), str(folder)]
            status = subprocess.run([sys.executable, __file__, "export", *words]).returncode
            if status:
                return status
    return 0


def cells_of(folder, peers):
    """(folder, program) of each cell of the table, in the order in which they are run."""
    abouts = {path.parent: json.loads(path.read_text()) for path in sorted(folder.glob("*/about.json"))}
    cells = []
    for path, about in abouts.items():
        programs = (OURS, STACK, LOOP) if peers and about["recipe"] in STEPS else (OURS,)
        cells += [(path, about, program) for program in programs if program != LOOP or about["levels"] in "ae"]

    def rank(cell):
        path, about, program = cell
        return program == LOOP, LEVELS.find(about["levels"]) // 2, path.name, program != OURS

    return sorted(cells, key=rank)


def command_of(args, path, about, program, device):
    """The command that measures a cell and prints one JSON line."""
    here = Path(__file__)
    if program == OURS:
        return [sys.executable, here, "run", "--json", "--repeats", str(args.repeats), path]
    options = {"--model": about["recipe"], "--levels": about["levels"], "--way": program, "--repeats": args.repeats}
    options |= {"--clients": about["clients"], "--steps": about["steps"] // about["clients"]}
    options |= {"--device": "cpu" if device == "cpu" else "cuda"}
    words = [str(word) for option in options.items() for word in option]
    return [sys.executable, here.with_name("torch_loop.py"), "--json", "--tf32", *words]


def measure(command, seconds):
    """The values that a command prints; `{"error": its last line}` if it fails; None if it takes longer."""
    environment = {"XLA_FLAGS": XLA_FLAGS, **os.environ}
    program = subprocess.Popen(command, stdout=-1, stderr=-1, text=True, env=environment, start_new_session=True)
    try:
        output, messages = program.communicate(timeout=seconds)
    except BaseException as error:
        # PyTorch's processes would outlive the program that started them.
        os.killpg(program.pid, signal.SIGKILL)
        program.wait()
        if isinstance(error, subprocess.TimeoutExpired):
            return None
        raise
    if program.returncode or not output:
        return {"error": f"exit code {program.returncode}: {(messages.strip() or 'no message').splitlines()[-1]}"}
    return json.loads(output.splitlines()[-1])


def table(args):
    """Measures what is missing while there is time; prints the table; returns the exit status."""
    end = time.monotonic() + 60 * args.minutes
    probe = "import jax, json; print(json.dumps(jax.devices()[0].device_kind))"
    device = measure([sys.executable, "-c", probe], None)
    if not isinstance(device, str):
        print(f"`table` needs JAX in {sys.executable}. {device['error']}", file=sys.stderr)
        return 2
    results, peers = args.results or args.folder / "results.jsonl", importlib.util.find_spec("torch") is not None
    rows = list(map(json.loads, results.read_text().splitlines())) if results.exists() else []
    rows = {(row["cell"], row["program"]): row for row in rows if row["device"] == device and "error" not in row}
    missing = []
    for path, about, program in cells_of(args.folder, peers):
        began, key = time.monotonic(), (path.name, program)
        if key in rows:
            continue
        # A cell that would be killed at the end is not begun.
        needed = max((row["took_s"] for row in rows.values() if row["program"] == program), default=0)
        command = command_of(args, path, about, program, device)
        values = measure(command, end - began) if end - began > needed else None
        if values is None:
            missing.append(" ".join(key))
            continue
        took = time.monotonic() - began
        row = {"cell": path.name, "program": program, **values, "device": device, "took_s": took}
        with results.open("a") as file:
            print(json.dumps(row), file=file)
        outcome = row.get("error") or f"{row['ms_per_step']:.4g} ms a step of a client"
        print(f"{path.name} {program}: {outcome} ({took:.0f} s)", flush=True)
        if "error" in row:
            missing.append(f"{path.name} {program} (failed)")
        else:
            rows[key] = row
    print(markdown(rows))
    print(f"Not measured: {', '.join(missing)}" if missing else "All cells were measured.")
    if not peers:
        print("PyTorch is not installed, so no peer was measured.")
    return 0


def markdown(rows):
    """A Markdown table of `{(cell, program): values}`; the ratio is to the faster PyTorch program."""
    heads = "recipe, level | ms a step | PyTorch stack | PyTorch loop | ratio | kernels a step | device | versions"
    lines = [f"| {heads} |", f"|{' --- |' * (heads.count('|') + 1)}"]
    for cell in dict.fromkeys(sorted(cell for cell, _ in rows)):
        ours, *peers = (rows.get((cell, program), {}) for program in (OURS, STACK, LOOP))
        times = [one.get("ms_per_step") for one in (ours, *peers)]
        known = [took for took in times[1:] if took]
        ratio = f"{times[0] / min(known):.2f}" if times[0] and known else ""
        names = {"JAX": "jax", "TensorFlow": "tensorflow", "PyTorch": "torch"}
        values = {**peers[1], **peers[0], **ours}
        versions = ", ".join(f"{name} {values[key]}" for name, key in names.items() if key in values)
        numbers = (f"{took:.3g}" if took else "" for took in times)
        head = f"{cell.rpartition('-')[0]} {cell.rpartition('-')[2]}"
        row = (head, *numbers, ratio, ours.get("kernels_per_step", ""), values["device"], versions)
        lines.append(f"| {' | '.join(map(str, row))} |")
    return "\n".join(lines)


def main():
    """Runs a command; returns the exit status."""
    args = parse()
    # `measure` then also ends its program.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    if args.command != "run":
        return {"export": export, "export-all": export_all, "table": table}[args.command](args)
    for folder in args.folders:
        report = run(folder, args.repeats)
        lines = (f"{name:20} {value}" for name, value in report.items())
        print(json.dumps(report) if args.json else "\n".join(lines), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
