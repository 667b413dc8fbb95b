"""One call of the compiled round: its planned rounds, and the repetition of a failed round."""

from hetero_tf.base import registry
from hetero_tf.base.errors import NotFinite
from hetero_tf.planning.selection import reads_state
from hetero_tf.recipe.schema import Recipe
from hetero_tf.run.failure import FAILURE, RoundFailure
from hetero_tf.run.learning_process import LearningProcess, Plan, State


def is_measured(recipe: Recipe, round: int) -> bool:
    """Return True if the state after a round, counted from 1, is evaluated."""
    return round == recipe.rounds or round % recipe.evaluate.every == 0


def next_evaluation(recipe: Recipe, done: int, rounds: int) -> int:
    """Return the next round after `done` that is evaluated, if `rounds` is the last one."""
    return min(done - done % recipe.evaluate.every + recipe.evaluate.every, rounds)


def plan_call(process: LearningProcess, first: int, state: State | None = None) -> list[Plan]:
    """Plan the rounds of one call, starting with `first`; empty after the last round.

    Args:
        first: Number of finished rounds.
        state: The state after them; None if the selection does not read it. A call has one round if it does.
    """
    stop = _next_stop(process.recipe, first)
    if reads_state(process.recipe):
        stop = min(first + 1, stop)
    return [process.plan(round, state=state) for round in range(first, stop)]


def _next_stop(recipe, done):
    """The next round after which the state is evaluated or saved."""
    stops = [done - done % every + every for every in (recipe.evaluate.every, recipe.checkpoint.every)]
    return min(*stops, recipe.rounds)


def advance(process: LearningProcess, state: State, planned: list[Plan]) -> tuple[State, list[dict], list[Plan]]:
    """Train the planned rounds, or those before the first one that fails.

    A round fails if too many clients diverge, its merge overflows or too few devices respond. If the first planned
    round fails, it is repeated once with another cohort, unless the policy is asynchronous.

    Returns:
        The new state, and a row of metrics and the plan of each trained round.

    Raises:
        NotFinite, TooFewDevices: The second cohort also failed.
    """
    after, rows = process.run(state, planned)
    failed = [index for index, row in enumerate(rows) if _failure(process.recipe, row)]
    if failed and failed[0] > 0:
        return advance(process, state, planned[: failed[0]])
    if failed:
        # The clients of an asynchronous policy started in the order of all arrivals before.
        again = not registry.constant("policies", process.recipe.round.policy.name, "ASYNCHRONOUS")
        if again:
            planned = [process.plan(state.round, attempt=1, state=state)]
            after, rows = process.run(state, planned)
        if failure := _failure(process.recipe, rows[0]):
            remedy = failure.remedy or f"Lower {_suspect(process.recipe, rows[0]['learning_rate'])}"
            raise failure.error(
                f"round {state.round + 1}: {failure.reason}{', also with a second cohort' * again}; the state before "
                f"this round is kept. {remedy}"
            )
    rows = [{"round": state.round + index + 1, **row} for index, row in enumerate(rows)]
    return after, rows, planned


def _suspect(recipe, rate):
    """The learning rate that is probably too high: the server's if it exceeds its default by the larger factor."""
    server = recipe.round.server
    options = registry.options("servers", server.name).get("learning_rate")
    if options is not None and server.options["learning_rate"] > max(1.0, rate) * options.default:
        return f"round.server.learning_rate. Received: learning_rate={server.options['learning_rate']:g}"
    return f"optimizer.learning_rate. Received: learning_rate={rate:g}"


def _failure(recipe, row):
    """Return the `RoundFailure` of a failed round, else None."""
    diverged = row["non_finite"]
    if FAILURE not in row and diverged >= recipe.round.non_finite_share * sum(row["levels"].values()):
        return RoundFailure(f"{diverged} of {recipe.round.clients} clients returned NaN or infinity", NotFinite)
    return row.get(FAILURE)
