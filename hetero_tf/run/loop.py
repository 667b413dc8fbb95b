"""The training loop: plans a call of the compiled round while the previous one runs, then evaluates and saves."""

import dataclasses
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from hetero_tf.base import files, processes, typed_json
from hetero_tf.base.console import Console, ProgressDisplay, format_duration, format_metrics
from hetero_tf.base.errors import NotFinite, TooFewDevices
from hetero_tf.base.metrics import displayed_metrics, format_short, is_improvement
from hetero_tf.data.targets import POSITIONS
from hetero_tf.models.costs.level_costs import TOTALS, accumulate_totals
from hetero_tf.run.learning_process import LearningProcess, State, advance, is_measured, plan_call
from hetero_tf.run.resume import arrays_of, repair_metrics
from hetero_tf.runs import checkpoints, facts, metrics_file
from hetero_tf.runs.early_stopping import Patience
from hetero_tf.runs.run_folder import RunFolder

# Seconds that a signal handler waits for a checkpoint that is being written; a busy disk takes more than ten.
MAX_SAVE_SECONDS = 60.0


@dataclass(frozen=True)
class Progress:
    """Progress of a run.

    Attributes:
        state: The state after the last finished round.
        last, best: The metrics of the last and the best evaluation, with "round".
        totals: Totals of all rounds by name, see `traffic.TOTALS`.
        rows: Content of `metrics.jsonl`.
        patience: Evaluations since the last improvement; None without early stopping.
    """

    state: State
    last: dict
    best: dict
    totals: dict
    rows: bytes
    patience: Patience | None


class TrainingLoop:
    """Calls the compiled round until all rounds are done or early stopping ends the run.

    Each call ends at a round that is evaluated or saved.

    Args:
        run: The folder of the run, which this process has locked.
        run_environment: The environment, as checkpoints store it.
        console: Its phases end with those of the first call.
        display: Shows the current work between two lines of the console.
    """

    def __init__(
        self,
        run: RunFolder,
        process: LearningProcess,
        progress: Progress,
        run_environment: dict,
        console: Console,
        display: ProgressDisplay,
    ):
        self.progress = progress
        self._run, self._environment, self._console, self._display = run, run_environment, console, display
        self._process, self._recipe = process.with_progress(display.add_progress), process.recipe
        self._first, self._save_lock = progress.state.round, threading.Lock()
        # Of the calls so far: seconds by part, and (rounds, seconds). The last evaluation predicts the next one.
        self._parts: list[dict] = []
        self._calls: list[tuple[int, float]] = []
        self._evaluation_seconds: float | None = None

    def train(self) -> Progress:
        """Train to the last round, or until early stopping, and return the progress.

        Raises:
            NotFinite, TooFewDevices: A round failed, also with a second cohort; the state before it is saved.
        """
        runner, console = self._process.runner, self._console
        with ThreadPoolExecutor(1) as planner, processes.before_exit(self._save_and_stop):
            next_plans = self._plan(planner, self._first)
            if not self._is_finished(self.progress):
                console.mark_phase("build")
                self._display.begin(*runner.preparation)
                runner.prepare()
                console.mark_phase("trace")
            while not self._is_finished(self.progress):
                next_plans = self._run_call(planner, next_plans)
        if self._parts:
            console.progress("", details=f"time: {metrics_file.shares(self._parts)}")
        state, patience = self.progress.state, self.progress.patience
        if state.round < self._recipe.rounds and patience is not None:
            best = "it was never finite" if patience.best is None else f"best: {patience.best:.4g}"
            console.say(
                f"stopped early after round {state.round}: {patience.metric} has not improved for {patience.waited} "
                f"evaluation{'s' * (patience.waited > 1)} ({best}); use --set early_stopping.patience=N to train more"
            )
        return self.progress

    def _plan(self, planner, first):
        """Return a function that returns the plans of a call and the seconds of planning, which may run on a thread."""
        if self._process.runner.can_plan_ahead:
            return planner.submit(self._timed, plan_call, self._process, first).result
        return lambda: self._timed(plan_call, self._process, first, self.progress.state)

    def _timed(self, function, *arguments):
        began = self._console.clock()
        return function(*arguments), self._console.clock() - began

    def _run_call(self, planner, next_plans):
        """Run one call, evaluate and save; return the function that returns the plans of the next call."""
        began, done, display = self._console.clock(), self.progress.state.round, self._display
        planned, planning = next_plans()
        next_plans = self._plan(planner, done + len(planned))
        steps = sum(int(plan.steps.sum()) for plan in planned)
        clients = sum(int((plan.steps > 0).sum()) for plan in planned)
        numbers = str(done + 1) if len(planned) == 1 else f"{done + 1}-{done + len(planned)}"
        display.begin(f"round {numbers}/{self._recipe.rounds}", None, steps, clients)
        try:
            (state, rows, trained), seconds = self._timed(advance, self._process, self.progress.state, planned)
        except (NotFinite, TooFewDevices):
            with self._save_lock:
                self._save_last_round()
            raise
        merging, seconds = display.since_last_step, max(seconds, 1e-6)
        if len(rows) < len(planned):
            # The call ended before a failed round: the next call starts with that round.
            next_plans = self._plan(planner, state.round)
        if done == self._first:
            self._report_first_call(rows)
        (metrics, statistics), evaluation = self._timed(self._evaluate, state)
        if metrics and not self.progress.last:
            self._report_undefined(state.round, typed_json.finite(metrics))
        with self._save_lock:
            row, saving = self._timed(self._save_call, state, rows, trained, metrics, statistics)
        parts = dict(zip(metrics_file.PARTS, (planning, seconds - (merging or 0), merging, evaluation, saving)))
        self._parts.append(parts)
        examples = sum(int(self._process.runner.count_examples(plan).sum()) for plan in trained)
        metrics_file.append(self._run.timings, metrics_file.call_row(state.round, trained, examples, seconds, parts))
        self._calls.append((len(rows), self._console.clock() - began))
        left = metrics_file.seconds_left(self._calls, self._recipe.rounds - state.round)
        details = _detailed_line(self._process, row, examples / seconds, left)
        self._console.progress(_round_line(self._process, row, left), bool(metrics), details)
        return next_plans

    def _report_first_call(self, rows):
        """Print the time from the command to the end of the first call by phase, and a note if nothing was trained."""
        self._console.mark_phase("round")
        seconds_by_phase = self._console.phase_seconds
        labels = {"round": "first round" if len(rows) == 1 else f"first {len(rows)} rounds"}
        shares = ", ".join(
            f"{labels.get(name, name)} {format_duration(seconds)}" for name, seconds in seconds_by_phase.items()
        )
        self._console.say(f"ready in {format_duration(sum(seconds_by_phase.values()))}: {shares}")
        if all(row["loss"] is None for row in rows):
            self._console.say("note: no client has returned; see `describe` for the times of the devices")

    def _evaluate(self, state):
        """Metrics and statistics of the state if its round is evaluated; else empty."""
        if not is_measured(self._recipe, state.round):
            return {}, {}
        self._display.begin(f"measuring round {state.round}/{self._recipe.rounds}", self._evaluation_seconds)
        evaluation, self._evaluation_seconds = self._timed(self._process.evaluate, state)
        return evaluation

    def _report_undefined(self, round, metrics):
        """Print a note if the first evaluation lacks the metric that selects the best round or ends the run."""
        patience = self.progress.patience
        stopping = () if patience is None else (patience.metric,)
        for metric in dict.fromkeys((self._process.selection_metric, *stopping)):
            if metrics.get(metric) is None:
                self._console.say(
                    f"note: {metric} is undefined or infinite in round {round}, which counts as no improvement; if it "
                    "stays undefined, set evaluate.best or early_stopping.metric to another metric"
                )

    def _save_call(self, state, rows, trained, metrics, statistics):
        """Write the rows of metrics, the timeline and the checkpoints, update the progress, and return the last row."""
        run, progress, last = self._run, self.progress, self.progress.last
        if metrics:
            last = {"round": state.round, **typed_json.finite(metrics)}
        rows = accumulate_totals(rows, progress.totals)
        rows[-1] |= metrics
        # Create the folder before the first metrics row: metrics without it mean that checkpoints were deleted.
        files.make_folder(run.checkpoints)
        repair_metrics(run, progress.rows, self._console.say)
        written = b"".join([metrics_file.append(run.metrics, row) for row in rows])
        fleet, levels = self._recipe.fleet, self._recipe.levels.names
        for plan, row in zip(trained, rows):
            if fleet and plan.timing and row["round"] <= metrics_file.MOST_ROUNDS:
                began = row["device_seconds"] - row["round_seconds"]
                timed = metrics_file.timeline_row(fleet.devices, levels, row["round"], began, plan.timing)
                metrics_file.append(run.timeline, timed)
        progress = dataclasses.replace(
            progress,
            state=state,
            last=last,
            totals={name: rows[-1][name] for name in TOTALS if name in rows[-1]},
            rows=progress.rows + written,
            patience=progress.patience and progress.patience.count([typed_json.finite(rows[-1])]),
        )
        self.progress = self._save_checkpoints(progress, statistics, self._is_due(progress))
        return rows[-1]

    def _is_finished(self, progress):
        """True if all rounds are done, or early stopping ends the run."""
        return progress.state.round >= self._recipe.rounds or bool(progress.patience and progress.patience.is_over)

    def _is_due(self, progress):
        """True if the state after the last finished round is saved as a checkpoint."""
        return self._is_finished(progress) or progress.state.round % self._recipe.checkpoint.every == 0

    def _save_and_stop(self):
        """Save the last finished round before a signal ends the process, and let the loop write nothing after it."""
        # The lock is never released: the thread that trains waits for it until the process has ended.
        if not self._save_lock.acquire(timeout=MAX_SAVE_SECONDS):
            raise TimeoutError
        self._save_last_round()

    def _save_last_round(self):
        """Save the last finished round unless it is saved."""
        progress, round = self.progress, self.progress.state.round
        if round not in (self._first, progress.best.get("round")) and not self._is_due(progress):
            self._save_checkpoints(progress, {}, due=True)

    def _save_checkpoints(self, progress, statistics, due):
        """Save the state if a checkpoint is due, or if this evaluation is the best so far."""
        run, recipe, state, last = self._run, self._recipe, progress.state, progress.last
        improved = last.get("round") == state.round and is_improvement(
            self._process.selection_metric, last, progress.best
        )
        if not (improved or due):
            return progress
        best = last if improved else progress.best
        info = {
            "last": last,
            "best": best,
            "totals": progress.totals,
            "recipe": recipe.source,
            "environment": self._environment,
            "metrics": facts.digest(progress.rows),
        }
        values = arrays_of(state, statistics, recipe.levels.global_level)
        checkpoints.save(run.checkpoints, state.round, values, info, recipe.checkpoint.keep, best.get("round"))
        return dataclasses.replace(progress, best=best)


def first_patience(process: LearningProcess) -> Patience | None:
    """Return the early stopping of a process before its first round; None without it."""
    rule, every = process.recipe.early_stopping, process.recipe.evaluate.every
    if rule.patience is None:
        return None
    return Patience(rule.metric or process.selection_metric, rule.patience, rule.min_delta, every)


def _round_line(process, row, left):
    """The line of a round, of less than 80 columns: selection metric, training loss, device time and time left."""
    rounds, metric = process.recipe.rounds, process.selection_metric
    begin = [
        f"round {row['round']:{len(str(rounds))}}/{rounds}",
        *([format_short(metric, row[metric])] if metric in row else []),
        "loss " + ("-" if row["loss"] is None else f"{row['loss']:.3g}").ljust(6),
        *([f"epsilon {row['epsilon']:.3g}".ljust(12)] if "epsilon" in row else []),
    ]
    end = [
        *([f"{format_duration(left)} left"] if left is not None and row["round"] < rounds else []),
        *([f"{row['non_finite']} diverged"] if row["non_finite"] else []),
    ]
    line = "  ".join([*begin, *_device_time(row), *end]).rstrip()
    # The log has the device time in any case.
    return line if len(line) < 80 else "  ".join([*begin, *end]).rstrip()


def _device_time(row):
    """The device time since the start of the run, as a list of at most one text."""
    return [f"device {format_duration(row['device_seconds'])}"] if "device_seconds" in row else []


def _detailed_line(process, row, speed, left):
    """The line of a round with all displayed metrics, as the log and --verbose show it."""
    mix = " ".join(f"{name}{count}" for name, count in row["levels"].items())
    diverged = f"  {row['non_finite']} clients diverged" if row["non_finite"] else ""
    unit = "tokens" if process.dataset.targets == POSITIONS else "examples"
    selected = {name: row[name] for name in (process.selection_metric,) if name in row}
    others = {name: value for name, value in displayed_metrics(row).items() if name not in selected}
    return "  ".join(
        [
            f"round {row['round']}/{process.recipe.rounds}",
            *([format_metrics(selected)] if selected else []),
            *_device_time(row),
            *([] if left is None else [f"{format_duration(left)} left"]),
            f"{format_metrics(others)}{diverged}",
            f"{speed:,.0f} {unit}/s",
            mix,
        ]
    )
