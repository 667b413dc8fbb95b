"""How long a sweep takes, by short runs that are measured: two rounds of one local epoch, the second of which counts.

Runs that differ in nothing that costs time share a measurement. Where only the mix of levels differs, each level is
measured alone, and a run takes what its levels take by their shares.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from hetero_tf.base.console import Console, Live, duration
from hetero_tf.base.errors import InputError
from hetero_tf.base.exits import temporary_folder
from hetero_tf.recipe import Recipe, load
from hetero_tf.store import metrics_file
from hetero_tf.sweeps.expansion import Run
from hetero_tf.sweeps.pool import Program, start, words_of

SHORT = ("rounds=2", "evaluate.every=1", "checkpoint.every=1")
# Keys that do not change how long a round takes, as the resolved recipe begins their lines.
FREE = ("name:", "seed:", "optimizer:", "schedule:", "rounds:", "checkpoint:")


@dataclass(frozen=True)
class Probe:
    """A short run: what is trained, and what tells it from others."""

    run: Run
    key: str


@dataclass(frozen=True)
class Measured:
    """What a short run took, in seconds: before its first round, a round of one local epoch, and an evaluation."""

    start: float
    round: float
    evaluation: float


def estimate(runs: Sequence[Run], program: Program, jobs: int, console: Console) -> dict:
    """Measures, and says how long the sweep takes.

    Args:
        runs: All of them, as if none were trained yet.
        program: How a run is started.
        jobs: Runs at a time.
        console: Where to say it.

    Returns:
        {"runs": [{"name", "recipe", "overrides", "seconds"}], "seconds" (of all, `jobs` at a time), "measured"},
        ready for JSON.

    Raises:
        InputError: A short run failed; the sentence is its own.
    """
    shares = {run.name: _probes(run) for run in runs}
    probes = {probe.key: probe for parts in shares.values() for probe, _ in parts}
    measured = {}
    with Live(console) as live:
        for number, probe in enumerate(probes.values(), 1):
            live.begin(f"measuring {number}/{len(probes)}: {probe.run.name}")
            measured[probe.key] = found = _measure(probe, program)
            console.say(
                f"measured {number}/{len(probes)}: {probe.run.name}: {found.round:.3g} s a round of one local epoch, "
                f"{found.evaluation:.3g} s an evaluation, {found.start:.3g} s before the first round"
            )
    seconds = {
        run.name: seconds_of(run.recipe, [(measured[p.key], share) for p, share in shares[run.name]]) for run in runs
    }
    whole = sum(seconds.values()) / jobs
    console.say(
        f"{len(runs)} runs take about {duration(whole)}, {jobs} at a time ({whole / 3600:.2f} h): {len(probes)} short "
        "runs were measured, two rounds of one local epoch each, of which the second counts"
    )
    return {
        "runs": [
            {
                "name": run.name,
                "recipe": run.path,
                "overrides": list(run.overrides),
                "seconds": round(seconds[run.name], 1),
            }
            for run in runs
        ],
        "seconds": round(whole, 1),
        "measured": {probes[key].run.name: vars(found) for key, found in measured.items()},
    }


def seconds_of(recipe: Recipe, parts: Sequence[tuple[Measured, float]]) -> float:
    """Seconds of a whole run.

    Args:
        recipe: Its recipe.
        parts: What was measured, with the share of the clients that it stands for; the global model's comes first.
    """
    epochs = recipe.client.epochs
    evaluations = -(-recipe.rounds // recipe.evaluate.every)
    a_round = sum(found.round * share for found, share in parts) * (1 if isinstance(epochs, dict) else epochs)
    return parts[0][0].start + recipe.rounds * a_round + evaluations * parts[0][0].evaluation


def _probes(run: Run) -> list[tuple[Probe, float]]:
    """The short runs that tell how long a run takes, with their shares of its clients."""
    shares = run.recipe.levels.divided(1.0)
    try:
        return [(_probe(run, (f"levels.mix={level}",)), share) for level, share in shares.items()]
    except InputError:
        # Budgets, depths or members may belong to the whole mix.
        return [(_probe(run, ()), 1.0)]


def _probe(run, more):
    epochs = () if isinstance(run.recipe.client.epochs, dict) else ("client.epochs=1",)
    overrides = (*run.overrides, *SHORT, *epochs, *more)
    recipe = load(run.path, overrides)
    key = "\n".join(line for line in recipe.source.splitlines() if not line.startswith(FREE))
    name = f"{run.recipe.name} {more[0].partition('=')[2]}" if more else run.name
    return Probe(Run(name, run.path, overrides, recipe), key)


def _measure(probe, program):
    """Trains a short run in a folder that goes away."""
    with temporary_folder() as folder:
        place = folder / "run"
        words = [*program.words, *words_of(probe.run, place), f"--threads={program.threads}"]
        code, problem, seconds = start(words, lambda round, rounds: None)
        if code:
            raise InputError(f"{probe.run.name}: {problem}")
        rows = metrics_file.rows(place / "timings.jsonl")
        if not rows:
            raise InputError(f"{probe.run.name}: left no timings.jsonl, so nothing was measured")
        spent = sum(row["seconds"] + row["measuring_seconds"] for row in rows)
        return Measured(seconds - spent, rows[-1]["round_seconds"], rows[-1]["measuring_seconds"])
