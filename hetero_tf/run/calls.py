"""One call of the compiled round: which rounds it plans, and how a failed round is repeated."""

from hetero_tf.base import registry
from hetero_tf.base.errors import NotFinite
from hetero_tf.planning.plan import Plan
from hetero_tf.process.learning_process import LearningProcess, State
from hetero_tf.recipe.schema import Recipe
from hetero_tf.rounds.failure import FAILURE, RoundFailure


def is_measured(recipe: Recipe, round: int) -> bool:
    """Whether the state after a round, counted from 1, is measured."""
    return round == recipe.rounds or round % recipe.evaluate.every == 0


def plan_call(process: LearningProcess, first: int) -> list[Plan]:
    """Plans the rounds of one call, the first of which is `first`; there are none behind the last round."""
    return [process.plan(round) for round in range(first, _next_stop(process.recipe, first))]


def _next_stop(recipe, done):
    """The next round after which something is measured or sealed."""
    stops = [done - done % every + every for every in (recipe.evaluate.every, recipe.checkpoint.every)]
    return min(*stops, recipe.rounds)


def advance(process: LearningProcess, state: State, planned: list[Plan]) -> tuple[State, list[dict], list[Plan]]:
    """Trains the planned rounds, or those before the first one that fails.

    A round fails if too many clients diverge, its merge overflows or too few devices answer. If that is the first round
    of all, it is repeated once with another cohort.

    Returns:
        The new state, one row of metrics for each round, and the plans of these rounds.

    Raises:
        NotFinite, TooFewDevices: The second cohort failed as well.
    """
    after, rows = process.run(state, planned)
    failed = [index for index, row in enumerate(rows) if _failure(process.recipe, row)]
    if failed and failed[0] > 0:
        return advance(process, state, planned[: failed[0]])
    if failed:
        planned = [process.plan(state.round, attempt=1)]
        after, rows = process.run(state, planned)
        if failure := _failure(process.recipe, rows[0]):
            remedy = failure.remedy or f"Lower {_suspect(process.recipe, rows[0]['learning_rate'])}"
            raise failure.error(
                f"round {state.round + 1}: {failure.reason}, also with a second cohort; the state before this round is "
                f"kept. {remedy}"
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


def _failure(recipe, row):
    """Return why a round failed, a `RoundFailure`; None where it is good."""
    diverged = row["non_finite"]
    if FAILURE not in row and diverged >= recipe.round.non_finite_share * sum(row["levels"].values()):
        return RoundFailure(f"{diverged} of {recipe.round.clients} clients returned NaN or infinite weights", NotFinite)
    return row.get(FAILURE)
