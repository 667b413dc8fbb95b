#!/usr/bin/env python3
"""Compares clients on devices with simulated clients, and measures their time and memory.

    benchmarks/device.py --recipe mnist --levels a e [--steps 20] [--json]

For each level it writes the file of `export --format litert_train` for the state before the first round. A separate
process without TensorFlow and Keras runs the first steps of one client; losses and values are compared with those of
the simulator. "alike" is the number of first steps whose losses differ by at most 1e-4: a large learning rate may
amplify rounding from step to step. Milliseconds are medians without the first step, on one thread. Memory is the peak
of that process, including its batches.
"""

import argparse
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "support"), str(ROOT / "benchmarks")]


def parse():
    """The arguments."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recipe", default="digits")
    parser.add_argument("--levels", nargs="+", default=["a", "e"], help="levels of the recipe")
    parser.add_argument("--steps", type=int, default=20, help="steps of the client, at most all")
    parser.add_argument("--set", action="append", default=[], help="further overrides of the recipe")
    parser.add_argument("--data_dir", type=Path)
    parser.add_argument("--json", action="store_true", help="one JSON line for each level instead of a table")
    parser.add_argument("--device", type=Path, help="only run the steps of a folder, as the device does")
    return parser.parse_args()


def on_device(folder):
    """Takes the steps of a folder, writes what came of them, and prints milliseconds and memory."""
    # Importing a module that is None raises ImportError.
    sys.modules |= dict.fromkeys(("tensorflow", "keras"))
    from hetero_tf.devices import on_device as device

    client, losses, seconds = device.LiteRTTrainer(folder), [], []
    with np.load(folder / "start.npz") as start:
        client.push(dict(start))
    settings = json.loads((folder / "work.json").read_text())
    for step in range(settings["steps"]):
        with np.load(folder / f"batch{step}.npz") as batch:
            inputs = dict(batch)
        present = inputs.pop("present")
        began = time.perf_counter()
        losses.append(client.train([inputs], settings["learning_rate"], present, np.random.default_rng(0)).loss)
        seconds.append(time.perf_counter() - began)
    np.savez(folder / "after.npz", **client.pull())
    print(json.dumps({"losses": losses, "ms": 1000 * statistics.median(seconds[1:]), "peak_mib": peak_mib()}))


def peak_mib():
    """The peak memory of this process in MiB."""
    status = Path("/proc/self/status")
    # On Linux `getrusage` of a new program includes the peak of the program that started it.
    if status.exists():
        (line,) = [line for line in status.read_text().splitlines() if line.startswith("VmHWM")]
        return int(line.split()[1]) / 2**10
    # macOS reports bytes.
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def measured(process, state, level, steps, folder):
    """A row of the table."""
    from simulated import Simulated

    from hetero_tf.export import formats, task_of
    from hetero_tf.export.formats import ConversionSource, litert_train

    plan = process.plan(0, cohort=range(len(process.partition.train)))
    slot = int(np.flatnonzero(plan.levels == process.recipe.levels.names.index(level))[0])
    client = Simulated(process, state, plan, slot, steps)
    task = task_of(process, process.network(state, level, {}))
    with tempfile.TemporaryDirectory() as scratch:
        function, specs = task.endpoints(Path(scratch))[0][task.portable_signature]
    source = ConversionSource(folder, task, function, specs, level, "")
    with formats.quiet():
        about = litert_train.convert(source, folder / litert_train.FILE)
    export_info = {"level": level, "formats": {"litert_train": {"file": litert_train.FILE, **about}}}
    (folder / "export.json").write_text(json.dumps(export_info))
    (folder / "work.json").write_text(json.dumps({"steps": client.steps, "learning_rate": client.learning_rate}))
    start = client.cut()
    np.savez(folder / "start.npz", **start)
    for step, batch in enumerate(client.batches()):
        np.savez(folder / f"batch{step}.npz", present=client.present, **batch)
    command = [sys.executable, __file__, "--device", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    device_result = json.loads(done.stdout.splitlines()[-1])
    losses, values = client.train()
    with np.load(folder / "after.npz") as after:
        gaps = [np.abs(after[path] - value).max() / max(np.abs(value).max(), 0.01) for path, value in values.items()]
    difference = np.abs(np.array(device_result["losses"]) - losses)
    return {
        "recipe": process.recipe.name,
        "data": process.dataset.source,
        "level": level,
        "parameters": sum(value.size for value in values.values()),
        "loss": [float(losses[0]), float(losses[-1])],
        "loss_difference": float(difference.max()),
        "steps_alike": int(np.argmax(np.append(difference, np.inf) > 1e-4)),
        "weights_difference": float(max(gaps)),
        "file_bytes": (folder / litert_train.FILE).stat().st_size,
        "ms_per_step": device_result["ms"],
        "peak_rss_mib": device_result["peak_mib"],
    }


def main():
    """Prints a row for each level."""
    args = parse()
    if args.device is not None:
        return on_device(args.device)
    import checkout  # noqa: F401  finds hetero_tf and its libraries

    from hetero_tf import learning_process, recipe

    mix = "-".join(f"{level}1" for level in args.levels)
    ours = [f"levels.mix={mix}", "levels.assignment=fixed", "engine=sequential", "client.label_cut=false"]
    process = learning_process(recipe.load(args.recipe, [*ours, *args.set]), data_dir=args.data_dir)
    state = process.initialize()
    if not args.json:
        print(f"data: {process.dataset.source}\n")
        print("| recipe | level | parameters | loss | difference | alike | values | bytes | ms a step | MiB |")
        print("| --- " * 10 + "|")
    for level in args.levels:
        with tempfile.TemporaryDirectory() as folder:
            row = measured(process, state, level, args.steps, Path(folder))
        if args.json:
            print(json.dumps(row), flush=True)
            continue
        first, last = row["loss"]
        print(
            f"| {row['recipe']} | {level} | {row['parameters']:,} | {first:.4f} to {last:.4f} | "
            f"{row['loss_difference']:.1e} | {row['steps_alike']} | "
            f"{row['weights_difference']:.1e} | {row['file_bytes']:,} | "
            f"{row['ms_per_step']:.0f} | {row['peak_rss_mib']:.0f} |",
            flush=True,
        )
    return None


if __name__ == "__main__":
    main()
