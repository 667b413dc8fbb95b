#!/usr/bin/env python3
"""Trains digits by a fleet of devices with LiteRT alone, over Flower on this machine, and measures one device's file.

    benchmarks/litert_fleet.py DIR [--rounds 21] [--port 45671]

Three devices of levels a and c train files that were exported after the first round of a simulation. At the end the
trained weights are pushed into these files twice: without statistics of static batch normalization, so that a file
keeps those of its export, and with the statistics of the trained weights. The command needs `hetero_tf[flower,litert]`.
"""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
from checkout import ROOT

LEVELS, CLIENTS = ("a", "c"), 3
OVERRIDES = (
    f"partition={{name: iid, clients: {CLIENTS}}}",
    f"round.clients={CLIENTS}",
    f"levels.mix={'-'.join(LEVELS)}",
    "levels.assignment=fixed",
    "evaluate.statistics=clients",
    "evaluate.best=global_accuracy",
)


def parse():
    """The arguments."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=21)
    parser.add_argument("--port", type=int, default=45671)
    parser.add_argument("folder", type=Path, help="an empty or new folder for keys, files, logs and the run")
    return parser.parse_args()


def export_files(recipe, folder):
    """Exports each level after one simulated round; returns `{client: folder of its file}`."""
    import hetero_tf
    from hetero_tf import export
    from hetero_tf.devices.machine import share_of

    process = hetero_tf.learning_process(recipe)
    state, _ = process.next(process.initialize())
    files = {}
    for level in LEVELS:
        statistics = process.statistics(state, level)
        files[level], _ = export.export(process, state, statistics, folder, {}, level, others=("litert_train",))
    return {client: files[share_of(recipe, CLIENTS, client, None)[1]] for client in range(CLIENTS)}


def train(args, overrides, files):
    """Runs a server and a device for each file until the server ends."""
    words = ["--recipe=digits", *(f"--set={override}" for override in overrides)]
    address = f"--address=127.0.0.1:{args.port}"
    command = [sys.executable, "-m", "hetero_tf", "flower"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": "-1"}

    def start(name, *more):
        with (args.folder / f"{name}.txt").open("wb") as out:
            return subprocess.Popen([*command, *more, *words], stdout=out, stderr=out, cwd=args.folder, env=environment)

    if start("keys", "keys", address, "--out=fleet").wait():
        sys.exit((args.folder / "keys.txt").read_text())
    server = start("server", "server", address, "--certificates=fleet", "--run_dir=run")
    devices = [
        start(f"device{client}", "client", address, f"--client={client}", f"--key=fleet/devices/{client}.key",
              f"--litert={file}", "--threads=1")
        for client, file in files.items()
    ]  # fmt: skip
    try:
        if server.wait():
            sys.exit((args.folder / "server.txt").read_text())
    finally:
        for program in (server, *devices):
            program.terminate()
            program.wait()


def measure(folder, files):
    """Prints what the run reached, and what each level's file reaches with the trained weights."""
    import hetero_tf
    from hetero_tf.devices import on_device
    from hetero_tf.runs import facts
    from hetero_tf.runs.run_folder import RunFolder

    rows = [json.loads(line) for line in (folder / "run" / "metrics.jsonl").read_text().splitlines()]
    best = facts.newest(RunFolder(folder / "run"))["best"]
    print(f"round {rows[-1]['round']}: {rows[-1]['global_accuracy']:.1f} % on the test set by the server")
    print(f"best round {best['round']}: {best['global_accuracy']:.1f} %, saved in {folder / 'run' / 'checkpoints'}")
    process, state = hetero_tf.load_run(folder / "run", "last")
    test, (metrics, _) = process.dataset.test, process.evaluate(state, levels="all")
    pixels = test.x.astype(np.float32) / 255
    for level in LEVELS:
        statistics = {path: np.asarray(value) for path, value in process.statistics(state, level).items()}
        network = process.network(state, level, statistics)
        client = on_device.LiteRTTrainer(next(file for file in files.values() if file.parent.name == level))
        names = client.pull()
        weights = {v.path: np.asarray(v) for v in network.trainable_variables if v.path in names}
        reached = []
        for pushed in ((weights,), (weights, statistics)):
            client.push(*pushed)
            reached.append(100 * np.mean(client.infer(image=pixels)["logits"].argmax(1) == test.y))
        simulated = metrics[f"level_accuracy_{level}"]
        print(
            f"level {level}, file of round 1: {reached[0]:.1f} % without statistics, {reached[1]:.1f} % with them; "
            f"the simulator {simulated:.1f} %"
        )


def main():
    """Exports, trains and measures."""
    args = parse()
    from hetero_tf.base.errors import InputError, require_modules
    from hetero_tf.recipe import load

    try:
        require_modules("litert_fleet.py", ("flwr", "ai_edge_litert"), "flower,litert")
    except InputError as problem:
        sys.exit(str(problem))
    args.folder = args.folder.resolve()
    args.folder.mkdir(parents=True, exist_ok=True)
    overrides = (*OVERRIDES, f"rounds={args.rounds}", f"schedule.at=[{max(2 * args.rounds // 3, 1)}]")
    files = export_files(load("digits", overrides), args.folder / "files")
    train(args, overrides, files)
    measure(args.folder, files)


if __name__ == "__main__":
    main()
