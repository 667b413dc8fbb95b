"""Trials with changed run folders: swapped, old, damaged or linked files give an error or the same results."""

import json
import os
import shutil

import numpy as np
import programs

from campaign.world import Failed, newest, rows

KINDS = ("flip", "truncate", "zero", "delete", "append", "empty", "swap", "link", "pipe", "folder")


def stopped(world, rng, case):
    """Return a copy of a run of the case, finished or with fewer rounds."""
    folder = world.fresh()
    if rng.random() < 0.5:
        shutil.copytree(world.unbroken(case)[2], folder)
    else:
        world.train(case, folder, "--set=rounds=3")
    return folder


def outcome(world, case, folder):
    """Train and return ("same" or "refused", printed output); other results are a failure."""
    run = world.train(case, folder)
    if run.code:
        return "refused", run.out
    actual, expected = (newest(contents) for contents in (programs.contents(folder), world.unbroken(case)[0]))
    # Lost rows and a lost best state stay lost, and the program reports them.
    notes = {"metrics": "metrics.jsonl is missing", "best": "note: the best state so far"}
    for part, note in notes.items():
        if note in run.out:
            actual, expected = (
                {name: value for name, value in each.items() if not name.startswith(part)}
                for each in (actual, expected)
            )
    if actual != expected:
        wrong = sorted(name for name in {*actual, *expected} if actual.get(name) != expected.get(name))
        raise Failed(f"other results without a message: {', '.join(wrong)}; {run.out[-600:]}")
    return "same", run.out


def damaged(world, rng):
    """Damage or delete a file, or replace it by another file, a link, a pipe or a folder."""
    case, kind = rng.choice(world.cases), rng.choice(KINDS)
    folder = stopped(world, rng, case)
    unread = ("log.txt", "timings.jsonl", "costs.json", "data.json", "README.txt", "run.lock")
    names = sorted(path for path in folder.rglob("*") if path.is_file() and path.name not in unread)
    path, other = rng.sample(names, 2)
    outside = world.folder / "outside"
    outside.write_bytes(b"mine")
    data = bytearray(path.read_bytes())
    position = rng.randrange(len(data) + 1)
    if kind == "flip" and data:
        data[position % len(data)] ^= 1 << rng.randrange(8)
    elif kind == "truncate":
        del data[position:]
    elif kind == "zero":
        data[position : position + 512] = bytes(len(data[position : position + 512]))
    elif kind == "append":
        data += rng.randbytes(rng.randint(1, 600))
    elif kind == "empty":
        data.clear()
    elif kind == "swap":
        data = other.read_bytes()
    path.unlink()
    if kind == "link":
        path.symlink_to(outside)
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind != "delete":
        path.write_bytes(data)
    result, _ = outcome(world, case, folder)
    if outside.read_bytes() != b"mine":
        raise Failed(f"{kind} {path.name}: wrote outside of the run folder")
    world.drop(folder)
    return f"{kind}: {result}"


def of_another_run(world, rng):
    """Copy best/, checkpoints/ or a file from a run with another seed or other data; it must never be accepted."""
    case = rng.choice(world.cases)
    change = rng.choice(("seed=4", "data.seed=1", "partition.clients=7", "optimizer.learning_rate=0.04"))
    other, folder = world.fresh(), stopped(world, rng, case)
    if world.train(case, other, f"--set={change}").code:
        return "not a run"
    part = rng.choice(("best", "checkpoints", "partition.npz", "metrics.jsonl", "environment.json", "recipe.yaml"))
    if (folder / part).is_dir():
        shutil.rmtree(folder / part)
        shutil.copytree(other / part, folder / part)
    else:
        shutil.copy(other / part, folder / part)
    expected = rows(world.unbroken(case)[2])
    command = rng.choice(("evaluate", "export", "train"))
    if command == "train":
        result, _ = outcome(world, case, folder)
    else:
        more = ("--out", world.fresh()) if command == "export" else ("--json",)
        run = world.command(command, "--run_dir", folder, *more)
        result = "refused" if run.code else "same"
        if command == "evaluate" and not run.code:
            measured = json.loads(run.out)
            row = next(row for row in expected if row["round"] == measured["round"])
            wrong = [
                name
                for name in row
                if name.startswith("global_")
                and name in measured
                and not np.isclose(row[name], measured[name], rtol=1e-4)
            ]
            if wrong:
                raise Failed(f"{part} of a run with {change} was accepted by evaluate: {wrong}")
        if command == "export" and not run.code and part == "best":
            raise Failed(f"best/ of a run with {change} was accepted by export")
    world.drop(folder)
    world.drop(other)
    return f"{part}, {command}: {result}"


def lost(world, rng):
    """Delete a part of the run folder: no run restarts without a message."""
    case = rng.choice(world.cases)
    folder = stopped(world, rng, case)
    part = rng.choice(("best", "checkpoints", "metrics.jsonl", "partition.npz", "environment.json", "recipe.yaml"))
    before = rows(folder)
    if (folder / part).is_dir():
        shutil.rmtree(folder / part)
    else:
        (folder / part).unlink()
    result, output = outcome(world, case, folder)
    if part == "checkpoints" and result != "refused":
        raise Failed("restarted without its checkpoints")
    if result == "refused" and rows(folder) != ([] if part == "metrics.jsonl" else before):
        raise Failed("rejected, but the metrics changed")
    if result == "same" and part in ("best", "metrics.jsonl") and "note:" not in output.replace("note: local_*", ""):
        raise Failed(f"{part} was lost without a message")
    world.drop(folder)
    return f"{part}: {result}"


TRIALS = (damaged, of_another_run, lost)
