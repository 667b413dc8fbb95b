"""Validates the best checkpoint against the run's metrics."""

from collections.abc import Callable

from hetero_tf.base.errors import InputError
from hetero_tf.recipe import changed_keys
from hetero_tf.run.resume import read_rows
from hetero_tf.runs import environment, facts
from hetero_tf.runs.run_folder import RunFolder


def require(run: RunFolder, best_facts: dict, newest: dict | None) -> None:
    """Refuse a best state of another run, and an outdated one.

    Args:
        best_facts: Facts of the best state, see `facts.from_checkpoint`.
        newest: Facts of the newest checkpoint; None before the first one.

    Raises:
        InputError: The state does not belong to the run; the message gives the reason.
    """
    reason = newest and _difference(best_facts, newest)
    if not reason and (newest is None or best_facts["round"] > newest["round"]):
        reason = _missing_from_metrics(run, best_facts, newest)
    if reason:
        raise InputError(
            f"{run.best}: does not belong to this run: {reason}; put back the state that the run saved, "
            "or choose --state last"
        )


def load_best(
    run: RunFolder, newest: dict, run_environment: dict, say: Callable[[str], None]
) -> tuple[dict, str | None]:
    """Return the best evaluation so far and the digest of its state.

    If that state is damaged, missing or of another run, return ({}, None): the best of the later rounds replaces it.

    Args:
        run_environment: The environment in which the run continues.
        say: Receives a note if the state is lost.
    """
    best_metrics = newest["best"]
    if not best_metrics:
        return {}, None
    try:
        best_facts = facts.best(run)
        reason = "it is missing" if best_facts is None else _difference(best_facts, newest)
    except InputError as damage:
        best_facts, reason = None, str(damage)
    if best_facts is not None and reason is None:
        if best_facts["round"] == best_metrics["round"]:
            return best_metrics, best_facts["seal"]
        if not environment.differences(best_facts["environment"], run_environment):
            # The run was killed before the next checkpoint: it reaches the same state again.
            return best_metrics, newest["best_seal"]
        reason = f"its round {best_facts['round']} is trained again in another environment"
    say(
        f"note: the best state so far, of round {best_metrics['round']}, is lost ({run.best}: {reason}); "
        "the best of the later rounds replaces it"
    )
    return {}, None


def _difference(best_facts, newest):
    """Describe the difference between a best state and that of the newest checkpoint; None if they agree."""
    changed = changed_keys(newest["recipe"], best_facts["recipe"])
    if changed:
        return f"it comes from another recipe ({'; '.join(changed)})"
    was, now = (each["environment"]["settings"] for each in (best_facts, newest))
    for name, what in (("data", "other data"), ("partition", "another partition of the data")):
        if was.get(name) != now.get(name):
            return f"it comes from {what}"
    known = newest["best"].get("round")
    if best_facts["round"] > newest["round"]:
        return None
    if best_facts["round"] != known:
        return f"it is of round {best_facts['round']}, and the best round of the run is {known or 'unknown'}"
    if best_facts["best"] != newest["best"] or newest["best_seal"] != best_facts["seal"]:
        return f"it is not the state that the run saved after round {known}"
    return None


def _missing_from_metrics(run, best_facts, newest):
    """Return the reason if the metrics do not contain the round of a state newer than all checkpoints; else None.

    After a resume the metrics end at the checkpoint; in the same environment the run reaches that state again.
    """
    rows, expected = read_rows(run), best_facts["metrics"]
    if len(rows) >= expected["bytes"] and facts.digest(rows[: expected["bytes"]]) == expected:
        return None
    is_truncated = newest is not None and len(rows) < expected["bytes"]
    if is_truncated and not environment.differences(best_facts["environment"], newest["environment"]):
        return None
    return f"neither a checkpoint nor {run.metrics.name} contains its round {best_facts['round']}"
