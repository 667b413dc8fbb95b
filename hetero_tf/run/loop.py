"""Trains a run: plans each call of the compiled round while the one before runs, then measures and seals."""

import dataclasses
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from hetero_tf.accounting.traffic import accumulated
from hetero_tf.base import registry
from hetero_tf.base.console import Console, duration, figures
from hetero_tf.base.errors import NotFinite
from hetero_tf.base.metrics import is_better, shown
from hetero_tf.planning.plan import Plan
from hetero_tf.process import LearningProcess, State
from hetero_tf.run import facts, timings
from hetero_tf.run.checkpoint import arrays_of
from hetero_tf.run.resume import mend_metrics
from hetero_tf.store import metrics, plain_json, sealed
from hetero_tf.store.run_folder import RunFolder


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
    run: RunFolder, process: LearningProcess, progress: Progress, conditions: dict, console: Console
) -> Progress:
    """Calls the compiled round until all rounds are done; every call ends where something is measured or sealed.

    Args:
        run: The folder of the run, which this process has locked.
        process: The steps.
        progress: Where to begin.
        conditions: The environment, as sealed states name it.
        console: Its laps end with those of the first call.

    Returns:
        The progress after the last round.

    Raises:
        NotFinite: Too many clients of a round diverged, also with a second cohort; the state before it is sealed.
    """
    recipe, clock, first = process.recipe, console.clock, progress.state.round
    with ThreadPoolExecutor(1) as planner:
        ahead = planner.submit(plan_call, process, first)
        _trace(process, progress, console)
        began = clock()
        while progress.state.round < recipe.rounds:
            started, planned = clock(), ahead.result()
            ahead = planner.submit(plan_call, process, progress.state.round + len(planned))
            try:
                state, rows, trained = advance(process, progress.state, planned)
            except NotFinite:
                if progress.state.round > first:
                    _seal(run, process, progress, {}, conditions, always=True)
                raise
            seconds = max(clock() - started, 1e-6)
            if len(rows) < len(planned):
                # The call ended before a round that failed: the next one begins with it.
                ahead = planner.submit(plan_call, process, state.round)
            if progress.state.round == first:
                _say_first(console, len(rows))
            rows = accumulated(rows, progress.spent)
            progress = _measure_and_seal(run, process, progress, state, rows, conditions, console.say)
            examples = sum(int(process.examples(plan).sum()) for plan in trained)
            metrics.append(run.timings, timings.of_call(state.round, trained, examples, seconds))
            left = (clock() - began) / (state.round - first) * (recipe.rounds - state.round)
            console.progress(_line(process, rows[-1], examples / seconds, left))
    return progress


def _trace(process, progress, console):
    """Traces the compiled round if there is a round to run."""
    if progress.state.round < process.recipe.rounds:
        console.lap("build")
        process.compile()
        console.lap("trace")


def _say_first(console, rounds):
    """Says how long it took from the command to the end of the first call, and with what."""
    console.lap("round")
    shares = ", ".join(f"{name} {seconds:.1f}" for name, seconds in console.laps.items())
    what, total = "round" if rounds == 1 else f"{rounds} rounds", sum(console.laps.values())
    console.say(f"first {what} after {total:.1f} s: {shares}")


def _measure_and_seal(run, process, progress, state, rows, conditions, say):
    """Measures the state if it is time to, writes the rows of metrics, seals; returns the new `Progress`."""
    recipe, statistics = process.recipe, {}
    if state.round == recipe.rounds or state.round % recipe.evaluate.every == 0:
        measured, statistics = process.evaluate(state)
        rows[-1] |= measured
        progress = dataclasses.replace(progress, last={"round": state.round, **plain_json.finite(measured)})
    # It stands before the first row: rows without it mean that it was lost.
    sealed.make(run.checkpoints)
    mend_metrics(run, progress.rows, say)
    written = b"".join([metrics.append(run.metrics, row) for row in rows])
    progress = dataclasses.replace(progress, state=state, spent=rows[-1]["bytes"], rows=progress.rows + written)
    return _seal(run, process, progress, statistics, conditions)


def plan_call(process: LearningProcess, first: int) -> list[Plan]:
    """Plans the rounds of one call, the first of which is `first`; there are none behind the last round."""
    return [process.plan(round) for round in range(first, _next_stop(process.recipe, first))]


def _next_stop(recipe, done):
    """The next round after which something is measured or sealed."""
    stops = [done - done % every + every for every in (recipe.evaluate.every, recipe.checkpoint.every)]
    return min(*stops, recipe.rounds)


def advance(process: LearningProcess, state: State, planned: list[Plan]) -> tuple[State, list[dict], list[Plan]]:
    """Trains the planned rounds, or those before the first one in which too many clients diverged.

    If that is the first round of all, it is repeated once with another cohort.

    Returns:
        The new state, one row of metrics for each round, and the plans of these rounds.
    """
    after, rows = process.run(state, planned)
    failed = [index for index, row in enumerate(rows) if _too_many_diverged(process, row)]
    if failed and failed[0] > 0:
        return advance(process, state, planned[: failed[0]])
    if failed:
        planned = [process.plan(state.round, attempt=1)]
        after, rows = process.run(state, planned)
        if _too_many_diverged(process, rows[0]):
            raise NotFinite(
                f"round {state.round + 1}: {rows[0]['non_finite']} of {process.recipe.round.clients} clients returned "
                "NaN or infinite weights, also with a second cohort; the state before this round is kept. Lower "
                f"{_suspect(process.recipe, rows[0]['learning_rate'])}"
            )
    rows = [{"round": state.round + index + 1, **row} for index, row in enumerate(rows)]
    return after, rows, planned


def _suspect(recipe, rate):
    """The learning rate that is most likely too high: the server's where it is further above what is usual."""
    server = recipe.round.server
    known = registry.options("servers", server.name).get("learning_rate")
    if known is not None and server.options["learning_rate"] > max(1.0, rate) * known.default:
        return f"round.server.learning_rate. Received: learning_rate={server.options['learning_rate']:g}"
    return f"optimizer.learning_rate. Received: learning_rate={rate:g}"


def _too_many_diverged(process, row):
    return row["non_finite"] >= process.recipe.round.non_finite_share * sum(row["levels"].values())


def _seal(run, process, progress, statistics, conditions, always=False):
    """Seals the state if that is due, and as the best one if this evaluation is the best so far."""
    state, last = progress.state, progress.last
    recipe, metric = process.recipe, process.chosen_by
    improved = last.get("round") == state.round and is_better(metric, last[metric], progress.best.get(metric))
    due = always or state.round == recipe.rounds or state.round % recipe.checkpoint.every == 0
    if not (improved or due):
        return progress
    about = {"last": last, "spent": progress.spent, **facts.to_seal(recipe, conditions, progress.rows)}
    values = arrays_of(state, statistics)
    if improved:
        path = sealed.save(run.best, state.round, values, {**about, "best": last}, keep=1)
        progress = dataclasses.replace(progress, best=last, best_seal=sealed.seal_of(path))
    if due:
        about |= {"best": progress.best, "best_seal": progress.best_seal}
        sealed.save(run.checkpoints, state.round, values, about, recipe.checkpoint.keep)
    return progress


def _line(process, row, speed, left):
    """The line that says how far the run is."""
    mix = " ".join(f"{name}{count}" for name, count in row["levels"].items())
    diverged = f"  {row['non_finite']} clients diverged" if row["non_finite"] else ""
    unit = "tokens" if process.dataset.kind == "text" else "examples"
    return (
        f"round {row['round']}/{process.recipe.rounds}  {duration(left)} left  {figures(shown(row))}"
        f"{diverged}  {speed:,.0f} {unit}/s  {mix}"
    )
