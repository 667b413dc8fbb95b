"""Program that logs the metrics of a run to MLflow or Weights & Biases while the run trains.

Its arguments are a tracker and the run folder. It follows `metrics.jsonl` until its standard input closes. A file in
the run folder stores the id of the tracker's run and the last logged round; a resumed run continues there.
"""

import json
import os
import re
import secrets
import signal
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

if __name__ == "__main__":
    # The file is started by its path, so that Python does not search the working folder for modules.
    sys.path[0] = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from hetero_tf.base import files
from hetero_tf.base.files import Damaged
from hetero_tf.base.metrics import migrate_names
from hetero_tf.base.version import __version__
from hetero_tf.runs import plain_json
from hetero_tf.runs.history import MIX, hyperparameters, is_number, method_of, mix_text, recipe_keys
from hetero_tf.runs.run_folder import SWEEP, RunFolder

# MLflow experiment and W&B project, unless MLFLOW_EXPERIMENT_NAME or WANDB_PROJECT names another one.
PROJECT = "hetero_tf"
# What a user checks when a tracker fails, and characters of its error that the warning quotes.
SETTINGS = {"mlflow": "MLFLOW_TRACKING_URI and its server", "wandb": "WANDB_API_KEY, WANDB_MODE and the network"}
MAX_CAUSE = 300
# Standard input of a run that succeeded.
FINISHED = "finished"
# Seconds between two looks at the metrics, and seconds for the rest after the end of the run.
PAUSE, MAX_FLUSH_SECONDS = 1.0, 20
# Limits of MLflow: parameters and metrics of a request, and characters of a value. W&B: characters of a tag.
MLFLOW_PARAMETERS, MLFLOW_METRICS, MLFLOW_VALUE, WANDB_TAG = 100, 1000, 6000, 64
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGXCPU)
_RUN_ID = re.compile("[0-9A-Za-z_-]{1,64}")


@dataclass(frozen=True)
class RunDescription:
    """A run, as trackers list it.

    Attributes:
        name: Name of the run folder.
        sweep: Name of the folder of its sweep, which groups its runs; None for a single run.
        parameters: Keys of the recipe.
        tags: Method, seed, levels, data and version.
    """

    name: str
    sweep: str | None
    parameters: dict[str, bool | float | str]
    tags: dict[str, str]


def describe_run(run: RunFolder) -> RunDescription:
    """Return the description of a run for trackers."""
    keys, mix = recipe_keys(run.read_recipe(), str(run.recipe))
    keys[MIX] = mix_text(mix)
    tags = {
        "recipe": str(keys["name"]),
        "method": method_of(keys),
        "seed": str(keys["seed"]),
        "levels": mix_text(mix),
        "data": str(keys.get("data.dataset", keys["data.name"])),
        "hetero_tf": __version__,
    }
    parent = run.path.parent
    sweep = parent.name if (parent / SWEEP).is_file() else None
    return RunDescription(run.path.name, sweep, hyperparameters(keys), tags)


class Tracker(Protocol):
    """A run of a tracker. Any method may raise any exception.

    Attributes:
        id: Id with which a later process continues the run.
        address: Where the user finds the run.
    """

    id: str
    address: str

    def log(self, rows: Sequence[tuple[int, dict[str, float]]]) -> None:
        """Log (round, metrics) of some rounds."""

    def finish(self, succeeded: bool) -> None:
        """Send everything, and mark the run as finished or failed."""


class MlflowTracker:
    """A run of MLflow, at the server or folder of MLFLOW_TRACKING_URI."""

    def __init__(self, description: RunDescription, run_id: str | None):
        from mlflow import MlflowClient

        self._client = MlflowClient()
        self.id = run_id or self._create(description)
        if run_id:
            self._client.update_run(run_id, status="RUNNING")
        self.address = f"{self._client.tracking_uri}, run {self.id}"

    def _create(self, description):
        from mlflow.entities import Param

        tags = description.tags | ({"sweep": description.sweep} if description.sweep else {})
        run_id = self._client.create_run(self._experiment(), tags=tags, run_name=description.name).info.run_id
        parameters = [
            Param(re.sub(r"[^\w.\- :/]", "_", key), str(value)[:MLFLOW_VALUE])
            for key, value in description.parameters.items()
        ]
        for start in range(0, len(parameters), MLFLOW_PARAMETERS):
            self._client.log_batch(run_id, params=parameters[start : start + MLFLOW_PARAMETERS])
        return run_id

    def _experiment(self):
        """Return the id of the experiment, which is created if needed."""
        from mlflow.exceptions import MlflowException

        name = os.environ.get("MLFLOW_EXPERIMENT_NAME", PROJECT)
        if experiment := self._client.get_experiment_by_name(name):
            return experiment.experiment_id
        try:
            return self._client.create_experiment(name)
        except MlflowException:
            # Another run of the sweep may have created it in between.
            if experiment := self._client.get_experiment_by_name(name):
                return experiment.experiment_id
            raise

    def log(self, rows: Sequence[tuple[int, dict[str, float]]]) -> None:
        """Log (round, metrics) of some rounds, in as few requests as MLflow allows."""
        from mlflow.entities import Metric

        now = int(1000 * time.time())
        values = [Metric(name, value, now, round) for round, metrics in rows for name, value in metrics.items()]
        for start in range(0, len(values), MLFLOW_METRICS):
            self._client.log_batch(self.id, metrics=values[start : start + MLFLOW_METRICS])

    def finish(self, succeeded: bool) -> None:
        """Mark the run as finished or failed."""
        self._client.set_terminated(self.id, "FINISHED" if succeeded else "FAILED")


class WandbTracker:
    """A run of Weights & Biases; WANDB_MODE, WANDB_ENTITY and its other variables apply."""

    def __init__(self, description: RunDescription, run_id: str | None):
        import wandb

        self.id = run_id or secrets.token_hex(4)
        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", PROJECT),
            name=description.name,
            group=description.sweep,
            id=self.id,
            resume="allow" if run_id else None,
            config=description.parameters,
            allow_val_change=True,
            tags=[f"{name}: {value}"[:WANDB_TAG] for name, value in description.tags.items()],
            settings=wandb.Settings(silent=True, console="off"),
        )
        # A resumed run may log rounds again, which W&B's own step would reject.
        self._run.define_metric("round")
        self._run.define_metric("*", step_metric="round")
        folder = Path(self._run.dir).parent
        self.address = f"{folder} (offline; `wandb sync` uploads it)" if self._run.offline else str(self._run.url)

    def log(self, rows: Sequence[tuple[int, dict[str, float]]]) -> None:
        """Log (round, metrics) of some rounds."""
        for round, metrics in rows:
            self._run.log({"round": round, **metrics})

    def finish(self, succeeded: bool) -> None:
        """Send everything, and mark the run as finished or failed."""
        self._run.finish(0 if succeeded else 1)


TRACKERS: dict[str, Callable[[RunDescription, str | None], Tracker]] = {"mlflow": MlflowTracker, "wandb": WandbTracker}


class MetricsReader:
    """Reads the rows that a run appends to its metrics."""

    def __init__(self, path: Path):
        self._path, self._offset = path, 0

    def read_new(self, after: int) -> list[tuple[int, dict[str, float]]]:
        """Return (round, metrics) of the complete rows since the last call whose round is larger than `after`."""
        if not self._path.exists():
            return []
        with open(self._path, "rb") as file:
            file.seek(self._offset)
            complete = file.read().rpartition(b"\n")[0]
        self._offset += len(complete) + bool(complete)
        rows = map(migrate_names, map(json.loads, complete.splitlines()))
        return [(row["round"], _numbers(row)) for row in rows if row["round"] > after]


def _numbers(row):
    return {name: float(value) for name, value in row.items() if is_number(value) and name != "round"}


def follow(name: str, run: RunFolder) -> None:
    """Log the rows of a run to a tracker until standard input closes."""
    path, reader, end, is_running = Path(getattr(run, name)), MetricsReader(run.metrics), _RunEnd(), True
    run_id, logged = read_progress(path)
    tracker = TRACKERS[name](describe_run(run), run_id)
    print(f"logging to {name}: {tracker.address}", flush=True)
    write_progress(path, tracker.id, logged)
    while is_running:
        # Read the last rows after the end.
        is_running = not end.event.wait(PAUSE)
        if rows := reader.read_new(logged):
            tracker.log(rows)
            logged = rows[-1][0]
            write_progress(path, tracker.id, logged)
    tracker.finish(end.succeeded)


class _RunEnd:
    """The end of the run, when standard input closes; it also limits the time of a tracker that hangs."""

    def __init__(self):
        self.event, self.succeeded = threading.Event(), False
        threading.Thread(target=self._wait, daemon=True).start()

    def _wait(self):
        self.succeeded = sys.stdin.read() == FINISHED
        # Without a handler, the signal ends the process even in a call that hangs.
        signal.alarm(MAX_FLUSH_SECONDS)
        self.event.set()


def read_progress(path: Path) -> tuple[str | None, int]:
    """Return the id of the tracker's run and the last logged round; (None, 0) for a new run."""
    if not path.exists():
        return None, 0
    content: Any = plain_json.parse(files.read_bytes(path, plain_json.LIMIT), path)
    try:
        run_id, logged = content["id"], int(content["round"])
        if _RUN_ID.fullmatch(run_id):
            return run_id, logged
    except (TypeError, KeyError, ValueError):
        pass
    raise Damaged(f"{path}: must have the id and the last round of a logged run; delete it")


def write_progress(path: Path, run_id: str, logged: int) -> None:
    """Store the id of the tracker's run and the last logged round, atomically."""
    files.write_atomic(path, plain_json.dump({"id": run_id, "round": logged}, "the id of a logged run"))


def warning(name: str, problem: str) -> str:
    """Return the warning about a problem of a tracker."""
    return f"warning: --log {name} {problem}; the training continues, and the same command logs the missing rounds"


def main(name: str, folder: str) -> int:
    """Follow a run, and return the exit code; an error is printed as a warning."""
    # Signals to all processes of a job end the run, whose end this process still logs.
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    try:
        follow(name, RunFolder(Path(folder)))
    # Libraries of trackers raise errors of many types.
    except Exception as error:
        cause = textwrap.shorten(str(error), MAX_CAUSE, placeholder=" ...") or type(error).__name__
        print(warning(name, f"failed: {cause}; check {SETTINGS[name]}"))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
