"""Estimates the time of a sweep from short runs: two rounds of one local epoch, of which the second counts.

Runs with the same cost share a measurement. If only the mix of levels differs, each level is measured separately, and
the time of a run is the mean over its levels, weighted by their shares.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from hetero_tf.base.console import Console, ProgressDisplay, format_duration
from hetero_tf.base.errors import InputError
from hetero_tf.base.exits import temporary_folder
from hetero_tf.recipe import Recipe, load
from hetero_tf.runs import metrics_file
from hetero_tf.sweeps.expansion import SweepRun
from hetero_tf.sweeps.launcher import Launcher, Program
from hetero_tf.sweeps.pool import run_flags

PROBE_OVERRIDES = ("rounds=2", "evaluate.every=1", "checkpoint.every=1")
# Keys that do not affect the time of a round, as line prefixes of the resolved recipe.
UNTIMED_KEYS = ("name:", "seed:", "optimizer:", "schedule:", "rounds:", "checkpoint:")


@dataclass(frozen=True)
class TimingProbe:
    """A short run, with a key that is equal for runs of the same cost."""

    run: SweepRun
    key: str


@dataclass(frozen=True)
class ProbeTimes:
    """Seconds of a short run: before its first round, for a round of one local epoch, and for an evaluation."""

    start: float
    round: float
    evaluation: float


def estimate(runs: Sequence[SweepRun], program: Program, jobs: int, console: Console) -> dict:
    """Measure short runs, and print an estimate of the time of a sweep.

    Args:
        runs: All runs, including finished ones.
        program: Command of a run.
        jobs: Parallel runs.
        console: Output.

    Returns:
        {"runs": [{"name", "recipe", "overrides", "seconds"}], "seconds" (of all, `jobs` in parallel), "measured"},
        ready for JSON.

    Raises:
        InputError: A short run failed; the message contains its error.
    """
    shares = {run.name: _probes(run) for run in runs}
    probes = {probe.key: probe for pairs in shares.values() for probe, _ in pairs}
    times_by_key = {}
    with ProgressDisplay(console) as display, Launcher(program) as launcher:
        for number, probe in enumerate(probes.values(), 1):
            display.begin(f"measuring {number}/{len(probes)}: {probe.run.name}")
            times_by_key[probe.key] = times = _measure(probe, launcher, program.threads)
            console.say(
                f"measured {number}/{len(probes)}: {probe.run.name}: {times.round:.3g} s per round of one local epoch, "
                f"{times.evaluation:.3g} s per evaluation, {times.start:.3g} s before the first round"
            )
    seconds = {
        run.name: run_seconds(run.recipe, [(times_by_key[p.key], share) for p, share in shares[run.name]])
        for run in runs
    }
    total = sum(seconds.values()) / jobs
    console.say(
        f"{len(runs)} runs take about {format_duration(total)}, {jobs} in parallel ({total / 3600:.2f} h). Estimated "
        f"from {len(probes)} short runs of two rounds with one local epoch, of which the second counts"
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
        "seconds": round(total, 1),
        "measured": {probes[key].run.name: vars(times) for key, times in times_by_key.items()},
    }


def run_seconds(recipe: Recipe, weighted_times: Sequence[tuple[ProbeTimes, float]]) -> float:
    """Return the seconds of a complete run.

    Args:
        recipe: Recipe of the run.
        weighted_times: Measured times with their share of the clients; the global model's level comes first.
    """
    epochs = recipe.client.epochs
    evaluations = -(-recipe.rounds // recipe.evaluate.every)
    round_seconds = sum(times.round * share for times, share in weighted_times) * (
        1 if isinstance(epochs, dict) else epochs
    )
    return weighted_times[0][0].start + recipe.rounds * round_seconds + evaluations * weighted_times[0][0].evaluation


def _probes(run: SweepRun) -> list[tuple[TimingProbe, float]]:
    """Return the short runs that estimate a run, with their shares of its clients."""
    shares = run.recipe.levels.divided(1.0)
    try:
        return [(_probe(run, (f"levels.mix={level}",)), share) for level, share in shares.items()]
    except InputError:
        # Budgets, depths or members may refer to the complete mix.
        return [(_probe(run, ()), 1.0)]


def _probe(run, level_override):
    epochs = () if isinstance(run.recipe.client.epochs, dict) else ("client.epochs=1",)
    overrides = (*run.overrides, *PROBE_OVERRIDES, *epochs, *level_override)
    recipe = load(run.path, overrides)
    key = "\n".join(line for line in recipe.source.splitlines() if not line.startswith(UNTIMED_KEYS))
    name = f"{run.recipe.name} {level_override[0].partition('=')[2]}" if level_override else run.name
    return TimingProbe(SweepRun(name, run.path, overrides, recipe), key)


def _measure(probe, launcher, threads):
    """Train a short run in a temporary folder."""
    with temporary_folder() as folder:
        run_dir = folder / "run"
        flags = [*run_flags(probe.run, run_dir), f"--threads={threads}"]
        code, problem, seconds = launcher.run(flags, lambda round, rounds: None)
        if code:
            raise InputError(f"{probe.run.name}: {problem}")
        rows = metrics_file.rows(run_dir / "timings.jsonl")
        if not rows:
            raise InputError(f"{probe.run.name}: wrote no timings.jsonl, so its time is unknown")
        spent = sum(row["seconds"] + row["measuring_seconds"] for row in rows)
        return ProbeTimes(seconds - spent, rows[-1]["round_seconds"], rows[-1]["measuring_seconds"])
