"""Trains a run: plans each call of the compiled round while the one before runs, then measures and seals."""

import dataclasses
import functools
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from hetero_tf.base import exits
from hetero_tf.base.console import Console, Live, duration, figures
from hetero_tf.base.errors import NotFinite, TooFewDevices
from hetero_tf.base.metrics import improves, shown
from hetero_tf.models.costs.traffic import accumulated
from hetero_tf.process.learning_process import LearningProcess, State
from hetero_tf.run.calls import advance, is_measured, plan_call
from hetero_tf.run.checkpoint import arrays_of
from hetero_tf.run.resume import repair_metrics
from hetero_tf.runs import facts, timings
from hetero_tf.store import checkpoints, metrics_file, plain_json
from hetero_tf.store.run_folder import RunFolder

# Seconds that a signal waits for a round that is being sealed.
MAX_SEALING = 10.0


@dataclass(frozen=True)
class Progress:
    """Where a run stands.

    Attributes:
        state: The state after the last finished round.
        last, best: The metrics of the last and the best evaluation, with "round".
        best_seal: The seal of the best state, see `sealed.Sealed`; None before it.
        spent: Bytes of weights that all rounds have cost, in both directions.
        rows: What `metrics.jsonl` holds.
    """

    state: State
    last: dict
    best: dict
    best_seal: str | None
    spent: int
    rows: bytes


def train_rounds(
    run: RunFolder, process: LearningProcess, progress: Progress, conditions: dict, console: Console, live: Live
) -> Progress:
    """Calls the compiled round until all rounds are done; every call ends where something is measured or sealed.

    Args:
        run: The folder of the run, which this process has locked.
        process: The steps.
        progress: Where to begin.
        conditions: The environment, as sealed states name it.
        console: Its laps end with those of the first call.
        live: Shows what is done between two lines of the console.

    Returns:
        The progress after the last round.

    Raises:
        NotFinite, TooFewDevices: A round failed, also with a second cohort; the state before it is sealed.
    """
    recipe, clock, first = process.recipe, console.clock, progress.state.round
    process, sealing_lock = process.watched(live.seen), threading.Lock()

    def seal_last_round():
        if not sealing_lock.acquire(timeout=MAX_SEALING):
            return
        try:
            if progress.state.round > first and not _is_due(recipe, progress.state.round):
                _seal(run, process, progress, {}, conditions, always=True)
        finally:
            sealing_lock.release()

    with ThreadPoolExecutor(1) as planner, exits.before_exit(seal_last_round):
        ahead = _planned(planner, clock, process, first)
        _trace(process, progress, console, live)
        spent, calls, measuring, ended = [], [], None, clock()
        while progress.state.round < recipe.rounds:
            (planned, planning), started = ahead(), clock()
            ahead = _planned(planner, clock, process, progress.state.round + len(planned))
            _begin_call(live, process, progress.state.round, planned)
            try:
                state, rows, trained = advance(process, progress.state, planned)
            except (NotFinite, TooFewDevices):
                seal_last_round()
                raise
            merging, training, seconds = live.since_last_step, live.seconds_of_steps, max(clock() - started, 1e-6)
            if len(rows) < len(planned):
                # The call ended before a round that failed: the next one begins with it.
                ahead = _planned(planner, clock, process, state.round)
            if progress.state.round == first:
                _say_first(console, len(rows))
            rows = accumulated(rows, progress.spent)
            # What the last evaluation took, this one will take too.
            (measured, statistics), took = _timed(clock, _measure, process, state, live, measuring)
            measuring = took if measured else measuring
            with sealing_lock:
                began = clock()
                progress = _write_and_seal(
                    run, process, progress, state, rows, measured, statistics, conditions, console.say
                )
                sealing = clock() - began
            parts = dict(zip(timings.PARTS, (planning, seconds - (merging or 0), merging, took, sealing)))
            spent.append(parts)
            examples = sum(int(process.examples(plan).sum()) for plan in trained)
            metrics_file.append(run.timings, timings.of_call(state.round, trained, examples, seconds, parts))
            now = clock()
            calls.append((len(rows), now - ended))
            ended, left = now, timings.seconds_left(calls, training, recipe.rounds - state.round)
            console.progress(_line(process, rows[-1] | measured, examples / seconds, left), keep=bool(measured))
    if spent:
        console.say(f"time: {timings.shares(spent)}")
    return progress


def _timed(clock, function, *arguments):
    """The result of a function, and the seconds that it took."""
    began = clock()
    return function(*arguments), clock() - began


def _planned(planner, clock, process, first):
    """Return a function that gives the plans of a call and the seconds of planning, which may run ahead on a thread."""
    plan = functools.partial(_timed, clock, plan_call, process, first)
    return planner.submit(plan).result if process.plans_ahead else plan


def _trace(process, progress, console, live):
    """Prepares the rounds if there is one to run."""
    if progress.state.round < process.recipe.rounds:
        console.lap("build")
        live.begin(*process.preparation)
        process.compile()
        console.lap("trace")


def _begin_call(live, process, done, planned):
    """Says which rounds a call trains, and of how many steps and clients they are."""
    steps = sum(int(plan.steps.sum()) for plan in planned)
    clients = sum(int((plan.steps > 0).sum()) for plan in planned)
    last = done + len(planned)
    numbers = str(last) if len(planned) == 1 else f"{done + 1}-{last}"
    live.begin(f"round {numbers}/{process.recipe.rounds}", None, steps, clients)


def _say_first(console, rounds):
    """Says how long it took from the command to the end of the first call, and with what."""
    console.lap("round")
    shares = ", ".join(f"{name} {seconds:.1f}" for name, seconds in console.laps.items())
    what, total = "round" if rounds == 1 else f"{rounds} rounds", sum(console.laps.values())
    console.say(f"first {what} after {total:.1f} s: {shares}")


def _measure(process, state, live, expected):
    """Metrics and statistics of the state if it is time to measure; else nothing."""
    if not is_measured(process.recipe, state.round):
        return {}, {}
    live.begin(f"measuring round {state.round}/{process.recipe.rounds}", expected)
    return process.evaluate(state)


def _write_and_seal(run, process, progress, state, rows, measured, statistics, conditions, say):
    """Writes the rows of metrics and seals; returns the new `Progress`."""
    if measured:
        progress = dataclasses.replace(progress, last={"round": state.round, **plain_json.finite(measured)})
    rows = [*rows[:-1], rows[-1] | measured]
    # It stands before the first row: rows without it mean that it was lost.
    checkpoints.make(run.checkpoints)
    repair_metrics(run, progress.rows, say)
    written = b"".join([metrics_file.append(run.metrics, row) for row in rows])
    progress = dataclasses.replace(progress, state=state, spent=rows[-1]["bytes"], rows=progress.rows + written)
    return _seal(run, process, progress, statistics, conditions)


def _is_due(recipe, round):
    """Whether the state after a round is sealed as a checkpoint."""
    return round == recipe.rounds or round % recipe.checkpoint.every == 0


def _seal(run, process, progress, statistics, conditions, always=False):
    """Seals the state if that is due, and as the best one if this evaluation is the best so far."""
    state, last = progress.state, progress.last
    recipe, metric = process.recipe, process.selection_metric
    improved = last.get("round") == state.round and improves(metric, last, progress.best)
    due = always or _is_due(recipe, state.round)
    if not (improved or due):
        return progress
    about = {"last": last, "spent": progress.spent, **facts.to_seal(recipe, conditions, progress.rows)}
    values = arrays_of(state, statistics, recipe.levels.global_level)
    if improved:
        path = checkpoints.save(run.best, state.round, values, {**about, "best": last}, keep=1)
        progress = dataclasses.replace(progress, best=last, best_seal=checkpoints.seal_of(path))
    if due:
        about |= {"best": progress.best, "best_seal": progress.best_seal}
        checkpoints.save(run.checkpoints, state.round, values, about, recipe.checkpoint.keep)
    return progress


def _line(process, row, speed, left):
    """The line that says how far the run is."""
    mix = " ".join(f"{name}{count}" for name, count in row["levels"].items())
    diverged = f"  {row['non_finite']} clients diverged" if row["non_finite"] else ""
    unit = "tokens" if process.dataset.kind == "text" else "examples"
    chosen = {name: row[name] for name in (process.selection_metric,) if name in row}
    others = {name: value for name, value in shown(row).items() if name not in chosen}
    return "  ".join(
        [
            f"round {row['round']}/{process.recipe.rounds}",
            *([figures(chosen)] if chosen else []),
            f"{duration(left)} left",
            f"{figures(others)}{diverged}",
            f"{speed:,.0f} {unit}/s",
            mix,
        ]
    )
