"""The training loop: plans a call of the compiled round while the previous one runs, then evaluates and saves."""

import dataclasses
import functools
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from hetero_tf.base import exits
from hetero_tf.base.console import Console, ProgressDisplay, format_duration, format_metrics
from hetero_tf.base.errors import NotFinite, TooFewDevices
from hetero_tf.base.metrics import displayed_metrics, is_improvement
from hetero_tf.models.costs.traffic import accumulate_bytes
from hetero_tf.process.learning_process import LearningProcess, State
from hetero_tf.run.calls import advance, is_measured, plan_call
from hetero_tf.run.checkpoint import arrays_of
from hetero_tf.run.resume import repair_metrics
from hetero_tf.runs import facts, timings
from hetero_tf.store import checkpoints, metrics_file, plain_json
from hetero_tf.store.run_folder import RunFolder

# Seconds that a signal handler waits for a checkpoint that is being written.
MAX_SAVE_SECONDS = 10.0


@dataclass(frozen=True)
class Progress:
    """Progress of a run.

    Attributes:
        state: The state after the last finished round.
        last, best: The metrics of the last and the best evaluation, with "round".
        best_digest: Digest of the best state, see `checkpoints.Checkpoint`; None before the first one.
        spent: Bytes of weights that all rounds have transferred, in both directions.
        rows: Content of `metrics.jsonl`.
    """

    state: State
    last: dict
    best: dict
    best_digest: str | None
    spent: int
    rows: bytes


def train_rounds(
    run: RunFolder,
    process: LearningProcess,
    progress: Progress,
    run_environment: dict,
    console: Console,
    display: ProgressDisplay,
) -> Progress:
    """Call the compiled round until all rounds are done. Each call ends at a round that is evaluated or saved.

    Args:
        run: The folder of the run, which this process has locked.
        process: The learning process.
        progress: Progress to start from.
        run_environment: The environment, as checkpoints store it.
        console: Its phases end with those of the first call.
        display: Shows the current work between two lines of the console.

    Returns:
        The progress after the last round.

    Raises:
        NotFinite, TooFewDevices: A round failed, also with a second cohort; the state before it is saved.
    """
    recipe, clock, first = process.recipe, console.clock, progress.state.round
    process, save_lock = process.with_progress(display.add_progress), threading.Lock()

    def save_last_round():
        if not save_lock.acquire(timeout=MAX_SAVE_SECONDS):
            return
        try:
            if progress.state.round > first and not _is_due(recipe, progress.state.round):
                _save_checkpoints(run, process, progress, {}, run_environment, always=True)
        finally:
            save_lock.release()

    with ThreadPoolExecutor(1) as planner, exits.before_exit(save_last_round):
        next_plans = _plan_ahead(planner, clock, process, first)
        _trace(process, progress, console, display)
        spent, calls, measuring, ended = [], [], None, clock()
        while progress.state.round < recipe.rounds:
            (planned, planning), started = next_plans(), clock()
            next_plans = _plan_ahead(planner, clock, process, progress.state.round + len(planned))
            _begin_call(display, process, progress.state.round, planned)
            try:
                state, rows, trained = advance(process, progress.state, planned)
            except (NotFinite, TooFewDevices):
                save_last_round()
                raise
            merging, training, seconds = display.since_last_step, display.seconds_of_steps, max(clock() - started, 1e-6)
            if len(rows) < len(planned):
                # The call ended before a failed round: the next call starts with that round.
                next_plans = _plan_ahead(planner, clock, process, state.round)
            if progress.state.round == first:
                _report_first_call(console, len(rows))
            rows = accumulate_bytes(rows, progress.spent)
            # Expect the duration of the previous evaluation.
            (measured, statistics), measure_seconds = _timed(clock, _measure, process, state, display, measuring)
            measuring = measure_seconds if measured else measuring
            with save_lock:
                began = clock()
                progress = _write_and_save(
                    run, process, progress, state, rows, measured, statistics, run_environment, console.say
                )
                save_seconds = clock() - began
            parts = dict(
                zip(timings.PARTS, (planning, seconds - (merging or 0), merging, measure_seconds, save_seconds))
            )
            spent.append(parts)
            examples = sum(int(process.examples(plan).sum()) for plan in trained)
            metrics_file.append(run.timings, timings.call_row(state.round, trained, examples, seconds, parts))
            now = clock()
            calls.append((len(rows), now - ended))
            ended, left = now, timings.seconds_left(calls, training, recipe.rounds - state.round)
            console.progress(
                _progress_line(process, rows[-1] | measured, examples / seconds, left), keep=bool(measured)
            )
    if spent:
        console.say(f"time: {timings.shares(spent)}")
    return progress


def _timed(clock, function, *arguments):
    """The result of a function, and its duration in seconds."""
    began = clock()
    return function(*arguments), clock() - began


def _plan_ahead(planner, clock, process, first):
    """Return a function that returns the plans of a call and the seconds of planning, which may run on a thread."""
    plan = functools.partial(_timed, clock, plan_call, process, first)
    return planner.submit(plan).result if process.can_plan_ahead else plan


def _trace(process, progress, console, display):
    """Compile the round if there are rounds to run."""
    if progress.state.round < process.recipe.rounds:
        console.mark_phase("build")
        display.begin(*process.preparation)
        process.compile()
        console.mark_phase("trace")


def _begin_call(display, process, done, planned):
    """Display the rounds of a call and their numbers of steps and clients."""
    steps = sum(int(plan.steps.sum()) for plan in planned)
    clients = sum(int((plan.steps > 0).sum()) for plan in planned)
    last = done + len(planned)
    numbers = str(last) if len(planned) == 1 else f"{done + 1}-{last}"
    display.begin(f"round {numbers}/{process.recipe.rounds}", None, steps, clients)


def _report_first_call(console, rounds):
    """Print the time from the command to the end of the first call, by phase."""
    console.mark_phase("round")
    labels = {"round": "first round" if rounds == 1 else f"first {rounds} rounds"}
    shares = ", ".join(f"{labels.get(name, name)} {seconds:.1f}" for name, seconds in console.phase_seconds.items())
    console.say(f"ready in {sum(console.phase_seconds.values()):.1f} s ({shares})")


def _measure(process, state, display, expected):
    """Metrics and statistics of the state if its round is evaluated; else empty."""
    if not is_measured(process.recipe, state.round):
        return {}, {}
    display.begin(f"measuring round {state.round}/{process.recipe.rounds}", expected)
    return process.evaluate(state)


def _write_and_save(run, process, progress, state, rows, measured, statistics, run_environment, say):
    """Write the rows of metrics and the checkpoints; return the new `Progress`."""
    if measured:
        progress = dataclasses.replace(progress, last={"round": state.round, **plain_json.finite(measured)})
    rows = [*rows[:-1], rows[-1] | measured]
    # Create the folder before the first metrics row: metrics without it mean that checkpoints were deleted.
    checkpoints.make(run.checkpoints)
    repair_metrics(run, progress.rows, say)
    written = b"".join([metrics_file.append(run.metrics, row) for row in rows])
    progress = dataclasses.replace(progress, state=state, spent=rows[-1]["bytes"], rows=progress.rows + written)
    return _save_checkpoints(run, process, progress, statistics, run_environment)


def _is_due(recipe, round):
    """True if the state after a round is saved as a checkpoint."""
    return round == recipe.rounds or round % recipe.checkpoint.every == 0


def _save_checkpoints(run, process, progress, statistics, run_environment, always=False):
    """Save the state if a checkpoint is due, and as the best state if this evaluation is the best so far."""
    state, last = progress.state, progress.last
    recipe, metric = process.recipe, process.selection_metric
    improved = last.get("round") == state.round and is_improvement(metric, last, progress.best)
    due = always or _is_due(recipe, state.round)
    if not (improved or due):
        return progress
    info = {"last": last, "spent": progress.spent, **facts.checkpoint_info(recipe, run_environment, progress.rows)}
    values = arrays_of(state, statistics, recipe.levels.global_level)
    if improved:
        path = checkpoints.save(run.best, state.round, values, {**info, "best": last}, keep=1)
        progress = dataclasses.replace(progress, best=last, best_digest=checkpoints.read_digest(path))
    if due:
        info |= {"best": progress.best, "best_seal": progress.best_digest}
        checkpoints.save(run.checkpoints, state.round, values, info, recipe.checkpoint.keep)
    return progress


def _progress_line(process, row, speed, left):
    """The progress line of a round."""
    mix = " ".join(f"{name}{count}" for name, count in row["levels"].items())
    diverged = f"  {row['non_finite']} clients diverged" if row["non_finite"] else ""
    unit = "tokens" if process.dataset.kind == "text" else "examples"
    selected = {name: row[name] for name in (process.selection_metric,) if name in row}
    others = {name: value for name, value in displayed_metrics(row).items() if name not in selected}
    return "  ".join(
        [
            f"round {row['round']}/{process.recipe.rounds}",
            *([format_metrics(selected)] if selected else []),
            f"{format_duration(left)} left",
            f"{format_metrics(others)}{diverged}",
            f"{speed:,.0f} {unit}/s",
            mix,
        ]
    )
