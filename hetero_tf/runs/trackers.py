"""Live logging to the trackers of `--log`: a thread for each of them follows the metrics of a run.

A file in the run folder stores the id of the tracker's run and the last logged round; a resumed run continues there.
"""

import contextlib
import logging
import os
import re
import secrets
import textwrap
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from hetero_tf.base import files, processes, typed_json
from hetero_tf.base.constraints import Text
from hetero_tf.base.errors import InputError, did_you_mean, require_modules
from hetero_tf.base.typed_json import Natural
from hetero_tf.base.version import __version__
from hetero_tf.runs import metrics_file
from hetero_tf.runs.history import MIX, hyperparameters, is_number, keys_of_recipe, method_name
from hetero_tf.runs.run_folder import RunFolder

# MLflow experiment and W&B project, unless MLFLOW_EXPERIMENT_NAME or WANDB_PROJECT names another one.
PROJECT = "hetero_tf"
# What a user checks when a tracker fails, and characters of its error that the warning quotes.
SETTINGS = {"mlflow": "MLFLOW_TRACKING_URI and its server", "wandb": "WANDB_API_KEY, WANDB_MODE and the network"}
MAX_CAUSE = 300
# Seconds between two looks at the metrics; seconds for the rest after the end of the run, and after a signal.
PAUSE, MAX_FLUSH_SECONDS, MAX_SIGNAL_SECONDS = 5.0, 20.0, 5.0
# Characters of a parameter of MLflow, and of a tag of W&B.
MLFLOW_VALUE, WANDB_TAG = 6000, 64
# Libraries of trackers must not write into the output of a run: its standard output may be read as JSON.
QUIET = {"WANDB_SILENT": "true", "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true"}
LOGGERS = ("mlflow", "urllib3", "wandb")
# The rows of some rounds: (round, metrics).
Rows = Sequence[tuple[int, dict[str, float]]]


class RunDescription:
    """A run, as trackers list it: its name, sweep (or None), parameters and tags."""

    def __init__(self, run: RunFolder):
        keys = keys_of_recipe(run.read_recipe())
        self.name, self.sweep, self.parameters = run.path.name, run.sweep or None, hyperparameters(keys)
        data = str(keys.get("data.dataset", keys["data.name"]))
        self.tags = {"recipe": str(keys["name"]), "method": method_name(keys), "seed": str(keys["seed"])}
        self.tags |= {"levels": keys[MIX], "data": data, "hetero_tf": __version__}


class MlflowTracker:
    """A run of MLflow, at the server or folder of MLFLOW_TRACKING_URI; any method may raise any exception."""

    def __init__(self, description: RunDescription, run_id: str | None):
        from mlflow import MlflowClient

        self._client = MlflowClient()
        self.id = run_id or self._create(description)
        if run_id:
            self._client.update_run(run_id, status="RUNNING")
        self.address = f"{self._client.tracking_uri}, run {self.id}"

    def _create(self, description):
        from mlflow import set_experiment
        from mlflow.entities import Param

        # It also creates the experiment, which another run of the sweep may do at the same time.
        experiment = set_experiment(os.environ.get("MLFLOW_EXPERIMENT_NAME", PROJECT)).experiment_id
        tags = description.tags | ({"sweep": description.sweep} if description.sweep else {})
        run_id = self._client.create_run(experiment, tags=tags, run_name=description.name).info.run_id
        parameters = [
            Param(re.sub(r"[^\w.\- :/]", "_", key), str(value)[:MLFLOW_VALUE])
            for key, value in description.parameters.items()
        ]
        self._client.log_batch(run_id, params=parameters)
        return run_id

    def log(self, rows: Rows) -> None:
        """Log the metrics of some rounds; the client divides them into requests."""
        from mlflow.entities import Metric

        now = int(1000 * time.time())
        values = [Metric(name, value, now, round) for round, metrics in rows for name, value in metrics.items()]
        self._client.log_batch(self.id, metrics=values)

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

    def log(self, rows: Rows) -> None:
        """Log the metrics of some rounds."""
        for round, metrics in rows:
            self._run.log({"round": round, **metrics})

    def finish(self, succeeded: bool) -> None:
        """Send everything, and mark the run as finished or failed."""
        self._run.finish(0 if succeeded else 1)


# The name of a tracker is also that of its module and of the extra of this package.
TRACKERS: dict[str, type[MlflowTracker] | type[WandbTracker]] = {"mlflow": MlflowTracker, "wandb": WandbTracker}


def check_trackers(names: Sequence[str]) -> None:
    """Raise `InputError` unless trackers have these names, and their packages are installed."""
    for name in names:
        if name not in TRACKERS:
            raise InputError(f"--log: no such tracker{did_you_mean(name, TRACKERS)} Received: --log={name}")
        require_modules(f"--log {name}", [name], name)


@contextlib.contextmanager
def log_live(names: Sequence[str], run: RunFolder, say: Callable[[str], None]) -> Iterator[None]:
    """Log the metrics of a run to trackers while the block runs.

    Trackers run in threads, so a slow server delays no round, and no error of a tracker ends the training.
    """
    os.environ.update(QUIET)
    for name in LOGGERS:
        logging.getLogger(name).setLevel(logging.CRITICAL)
    ended, succeeded = threading.Event(), threading.Event()
    threads = {
        name: threading.Thread(target=_follow, args=(name, run, say, ended, succeeded), daemon=True) for name in names
    }

    def end(seconds):
        ended.set()
        until = time.monotonic() + seconds
        for name, thread in threads.items():
            thread.join(max(until - time.monotonic(), 0))
            if thread.is_alive():
                _warn(name, "did not receive all rounds in time", say)

    with processes.before_exit(lambda: end(MAX_SIGNAL_SECONDS)):
        for thread in threads.values():
            thread.start()
        try:
            yield
            succeeded.set()
        finally:
            end(MAX_FLUSH_SECONDS)


def _follow(name, run, say, ended, succeeded):
    path, is_running = Path(getattr(run, name)), True
    try:
        progress = read_progress(path)
        tracker, logged = TRACKERS[name](RunDescription(run), progress.id), progress.round
        say(f"logging to {name}: {tracker.address}")
        write_progress(path, tracker.id, logged)
        while is_running:
            # Read the last rows after the end.
            is_running = not ended.wait(PAUSE)
            if rows := read_new(run.metrics, logged):
                tracker.log(rows)
                logged = rows[-1][0]
                write_progress(path, tracker.id, logged)
        tracker.finish(succeeded.is_set())
    # Libraries of trackers raise errors of many types.
    except Exception as error:
        cause = textwrap.shorten(str(error), MAX_CAUSE, placeholder=" ...") or type(error).__name__
        _warn(name, f"failed: {cause}; check {SETTINGS[name]}", say)


def _warn(name, problem, say):
    # At a normal exit, the library of the tracker might wait for its server without end.
    processes.SKIPS_CLEANUP.set()
    say(f"warning: --log {name} {problem}; the training continues, and the same command logs the missing rounds")


def read_new(path: Path, after: int) -> Rows:
    """Return the numbers of the complete rows whose round is larger than `after`."""
    return [
        (row["round"], {name: float(value) for name, value in row.items() if is_number(value) and name != "round"})
        for row in metrics_file.rows(path)
        if row["round"] > after
    ]


@dataclass(frozen=True)
class LogProgress:
    """Id of the tracker's run, or None for a new run, and the last logged round."""

    id: Annotated[str, Text(pattern="[0-9A-Za-z_-]{1,64}")] | None
    round: Natural


def read_progress(path: Path) -> LogProgress:
    """Return the progress that `write_progress` stored."""
    return typed_json.read(LogProgress, path, "; delete the file") if path.exists() else LogProgress(None, 0)


def write_progress(path: Path, run_id: str, logged: int) -> None:
    """Store the id of the tracker's run and the last logged round, atomically."""
    files.write_atomic(path, typed_json.dump({"id": run_id, "round": logged}, "the id of a logged run"))
