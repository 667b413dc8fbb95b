"""Trials with run folders that have files of another run: an error, or the same results."""

import json
import shutil

import numpy as np
import programs

from campaign.world import Failed, newest, rows


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


TRIALS = (of_another_run,)
