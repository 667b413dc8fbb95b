"""How the runs of a sweep ended, for a person and as JSON."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hetero_tf.base.console import duration
from hetero_tf.runs import overview
from hetero_tf.sweeps.expansion import Run

FINISHED, SKIPPED, FAILED, ELSEWHERE = "finished", "skipped", "failed", "running elsewhere"


@dataclass(frozen=True)
class Outcome:
    """How a run of a sweep ended.

    Attributes:
        run: The run.
        folder: Its folder.
        state: FINISHED, SKIPPED (it was finished before), FAILED or ELSEWHERE.
        began: The round after which it went on; 0: it began.
        seconds: Wall time in this sweep.
        problem: The sentence of a failed one.
    """

    run: Run
    folder: Path
    state: str
    began: int = 0
    seconds: float = 0.0
    problem: str = ""

    def to_json(self) -> dict:
        """Returns it with the metrics of its folder, ready for JSON."""
        found = overview.overview(self.folder)
        return {
            "name": self.run.name,
            "run_dir": str(self.folder),
            "state": self.state,
            "went_on_after": self.began,
            "round": found.round,
            "metric": found.metric,
            "best": found.best,
            "last": found.last,
            "seconds": round(self.seconds, 1),
            "problem": self.problem,
        }


def line_of(outcome: Outcome) -> str:
    """The line that stays of a run."""
    head = f"{outcome.run.name}  {outcome.state}"
    if outcome.problem:
        return f"{head}: {outcome.problem}"
    found = overview.overview(outcome.folder)
    parts = [head, f"round {found.round}"]
    if found.best is not None and found.last is not None:
        parts.append(f"{found.metric} best {found.best:.4g} last {found.last:.4g}")
    if outcome.state == FINISHED:
        parts.append(duration(outcome.seconds))
        parts += [f"went on after round {outcome.began}"] if outcome.began else []
    return "  ".join(parts)


def summary(outcomes: Sequence[Outcome], folder: Path, seconds: float) -> dict:
    """What a sweep comes to, ready for JSON."""
    return {
        "run_dir": str(folder),
        "runs": [outcome.to_json() for outcome in outcomes],
        "finished": sum(outcome.state in (FINISHED, SKIPPED) for outcome in outcomes),
        "failed": sum(outcome.state in (FAILED, ELSEWHERE) for outcome in outcomes),
        "seconds": round(seconds, 1),
    }


def to_text(result: dict) -> str:
    """The sentence that ends a sweep."""
    went_on = [run["name"] for run in result["runs"] if run["went_on_after"] and run["state"] == FINISHED]
    skipped = sum(run["state"] == SKIPPED for run in result["runs"])
    parts = [f"{result['finished']} of {len(result['runs'])} runs are finished"]
    parts += [f"{skipped} of them before"] if skipped else []
    parts += [f"went on: {', '.join(went_on)}"] if went_on else []
    return "; ".join(parts)
