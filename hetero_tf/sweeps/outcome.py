"""Outcomes of the runs of a sweep, as text and as JSON."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hetero_tf.base.console import format_duration
from hetero_tf.runs import overview
from hetero_tf.sweeps.expansion import SweepRun

FINISHED, SKIPPED, FAILED, ELSEWHERE = "finished", "skipped", "failed", "running elsewhere"


@dataclass(frozen=True)
class RunOutcome:
    """Outcome of one run of a sweep.

    Attributes:
        run: The run.
        folder: Its folder.
        state: FINISHED, SKIPPED (finished earlier, or by another process), FAILED, or ELSEWHERE (another process trains
            it).
        resumed_after: The round after which the run was resumed; 0: not resumed.
        seconds: Wall time in this sweep.
        problem: Error message of a failed run.
    """

    run: SweepRun
    folder: Path
    state: str
    resumed_after: int = 0
    seconds: float = 0.0
    problem: str = ""

    def to_json(self) -> dict:
        """Return the outcome with the metrics of its folder, ready for JSON."""
        run = overview.overview(self.folder)
        return {
            "name": self.run.name,
            "run_dir": str(self.folder),
            "state": self.state,
            "went_on_after": self.resumed_after,
            **{name: getattr(run, name) for name in ("round", "metric", "best", "last")},
            "seconds": round(self.seconds, 1),
            "problem": self.problem,
        }


def format_outcome(outcome: RunOutcome) -> str:
    """Return the final line of a run."""
    head = f"{outcome.run.name}  {outcome.state}"
    if outcome.problem:
        return f"{head}: {outcome.problem}"
    run_overview = overview.overview(outcome.folder)
    parts = [head, f"round {run_overview.round}"]
    if run_overview.best is not None and run_overview.last is not None:
        parts.append(f"{run_overview.metric} best {run_overview.best:.4g} last {run_overview.last:.4g}")
    if outcome.state == FINISHED:
        parts.append(format_duration(outcome.seconds))
        parts += [f"resumed after round {outcome.resumed_after}"] if outcome.resumed_after else []
    return "  ".join(parts)


def summarize(outcomes: Sequence[RunOutcome], folder: Path, seconds: float) -> dict:
    """Return the result of a sweep, ready for JSON."""
    return {
        "run_dir": str(folder),
        "runs": [outcome.to_json() for outcome in outcomes],
        "finished": sum(outcome.state in (FINISHED, SKIPPED) for outcome in outcomes),
        "failed": sum(outcome.state == FAILED for outcome in outcomes),
        "seconds": round(seconds, 1),
    }


def to_text(result: dict) -> str:
    """Return the final sentence of a sweep."""
    resumed = [run["name"] for run in result["runs"] if run["went_on_after"] and run["state"] == FINISHED]
    skipped = sum(run["state"] == SKIPPED for run in result["runs"])
    parts = [f"{result['finished']} of {len(result['runs'])} runs are finished"]
    parts += [f"{skipped} of them earlier or elsewhere"] if skipped else []
    parts += [f"resumed: {', '.join(resumed)}"] if resumed else []
    return "; ".join(parts)
