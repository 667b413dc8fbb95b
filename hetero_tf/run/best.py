"""Whether the state in `best/` is the best one of the run in whose folder it lies."""

from collections.abc import Callable

from hetero_tf.base.errors import InputError
from hetero_tf.recipe import changed_keys
from hetero_tf.run.resume import read_rows
from hetero_tf.runs import facts
from hetero_tf.store import environment
from hetero_tf.store.run_folder import RunFolder


def require(run: RunFolder, found: dict, newest: dict | None) -> None:
    """Refuses a best state of another run, or an older one.

    Args:
        run: The folder of the run.
        found: The facts of the state, see `facts.of`.
        newest: Those of the newest checkpoint; None before the first one.

    Raises:
        InputError: The sentence says why it does not belong to the run.
    """
    reason = newest and _difference(found, newest)
    if not reason and (newest is None or found["round"] > newest["round"]):
        reason = _untold(run, found, newest)
    if reason:
        raise InputError(
            f"{run.best}: does not belong to this run: {reason}; put back the one that the run sealed, "
            "or choose --state last"
        )


def so_far(run: RunFolder, newest: dict, conditions: dict, say: Callable[[str], None]) -> tuple[dict, str | None]:
    """Returns the best evaluation so far and the seal of its state; nothing if that state is damaged, gone or foreign.

    Then the best of the rounds to come takes its place.

    Args:
        run: The folder of the run.
        newest: The facts of the newest checkpoint.
        conditions: The environment in which the run goes on.
        say: Gets a note if the state is lost.
    """
    known = newest["best"]
    if not known:
        return {}, None
    try:
        found = facts.best(run)
        reason = "it is gone" if found is None else _difference(found, newest)
    except InputError as damage:
        found, reason = None, str(damage)
    if found is not None and reason is None:
        if found["round"] == known["round"]:
            return known, found["seal"]
        if not environment.differences(found["environment"], conditions):
            # A kill came before the next checkpoint: the run comes to the very same state again.
            return known, newest["best_seal"]
        reason = f"its round {found['round']} is trained again under other conditions"
    say(
        f"note: the best state so far, of round {known['round']}, is lost ({run.best}: {reason}); the best of the "
        "rounds to come takes its place"
    )
    return {}, None


def _difference(found, newest):
    """Says in what a state differs from the best one that the newest checkpoint knows of; None: in nothing."""
    changed = changed_keys(newest["recipe"], found["recipe"])
    if changed:
        return f"it comes from another recipe ({'; '.join(changed)})"
    was, now = (one["environment"]["settings"] for one in (found, newest))
    for name, what in (("data", "other data"), ("partition", "another partition of the data")):
        if was.get(name) != now.get(name):
            return f"it comes from {what}"
    known = newest["best"].get("round")
    if found["round"] > newest["round"]:
        return None
    if found["round"] != known:
        return f"it is of round {found['round']}, and the best round of the run is {known or 'not known'}"
    if found["best"] != newest["best"] or newest["best_seal"] not in (None, found["seal"]):
        return f"it is not what the run sealed after round {known}"
    return None


def _untold(run, found, newest):
    """Says that nothing tells of a state that no checkpoint knows yet; None if the rows of metrics do.

    After a resume they end at the checkpoint, but then the run comes to that state again, if its conditions are equal.
    """
    rows, told = read_rows(run), found["metrics"]
    if len(rows) >= told["bytes"] and facts.digest(rows[: told["bytes"]]) == told:
        return None
    cut = newest is not None and len(rows) < told["bytes"]
    if cut and not environment.differences(found["environment"], newest["environment"]):
        return None
    return f"neither a checkpoint nor {run.metrics.name} tells of its round {found['round']}"
