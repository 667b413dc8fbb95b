"""What a sealed state says about its run beside its arrays: the recipe, the environment, the metrics so far.

A checksum keeps these facts from accidents; as anybody can seal a folder, their types are checked too.
"""

import hashlib
from collections.abc import Callable
from typing import Any

from hetero_tf.base.errors import InputError, short
from hetero_tf.recipe import Recipe
from hetero_tf.store import checkpoints, environment
from hetero_tf.store.run_folder import RunFolder

# Above it, a number can neither be printed in short form nor be counted on.
LARGEST = 2**63


def to_seal(recipe: Recipe, conditions: dict, rows: bytes) -> dict:
    """Returns what the next sealed state says about its run.

    Args:
        recipe: The recipe.
        conditions: The environment.
        rows: What `metrics.jsonl` holds.
    """
    return {"recipe": recipe.source, "environment": conditions, "metrics": digest(rows)}


def digest(rows: bytes) -> dict:
    """Returns the size and sha256 of rows of metrics."""
    return {"bytes": len(rows), "sha256": hashlib.sha256(rows).hexdigest()}


def newest(run: RunFolder) -> dict | None:
    """Returns the facts of the newest checkpoint with its "round" and "seal"; None if there is none.

    Raises:
        InputError: The checkpoints are damaged, or what they say cannot have been sealed by this program.
    """
    found = checkpoints.load_newest(run.checkpoints)
    return None if found is None else of(found, run.checkpoints)


def best(run: RunFolder) -> dict | None:
    """Returns the facts of the state in `best/`, as `newest` does."""
    found = checkpoints.load_newest(run.best)
    return None if found is None else of(found, run.best)


def of(found: checkpoints.Sealed, folder: object) -> dict:
    """Returns the checked facts of a sealed state, with its "round" and "seal".

    Args:
        found: The sealed state.
        folder: Where it lies, for the sentence.

    Raises:
        InputError: One is missing or has another type.
    """
    missing = [name for name in RULES if name not in found.info and name not in LATER]
    if missing:
        raise InputError(
            f"{folder}: round {found.round} was sealed without {', '.join(missing)}, so by another "
            "version of hetero_tf; continue with that version, or choose another folder by --run_dir"
        )
    for name, (holds, wanted) in RULES.items():
        if name in found.info and not holds(found.info[name]):
            raise InputError(
                f"{folder}: round {found.round} was not sealed by hetero_tf: its `{name}` must be {wanted}; restore "
                f"the folder from a copy. Received: {name}={short(found.info[name], 60)}"
            )
    return {**dict.fromkeys(LATER), **found.info, "round": found.round, "seal": found.seal}


def _natural(value):
    return type(value) is int and 0 <= value < LARGEST


def _number(value):
    return value is None or type(value) is float or type(value) is int and abs(value) < LARGEST


def _evaluation(value):
    if value == {}:
        return True
    return isinstance(value, dict) and _natural(value.get("round")) and all(map(_number, value.values()))


def _conditions(value):
    return isinstance(value, dict) and all(isinstance(value.get(name), dict) for name in environment.SECTIONS)


def _digest(value):
    return isinstance(value, dict) and _natural(value.get("bytes")) and isinstance(value.get("sha256"), str)


def _seal(value):
    return value is None or isinstance(value, str)


RULES: dict[str, tuple[Callable[[Any], bool], str]] = {
    "recipe": (lambda value: isinstance(value, str), "the text of a recipe"),
    "environment": (_conditions, "a dict with " + ", ".join(environment.SECTIONS)),
    "metrics": (_digest, "a dict with bytes and sha256"),
    "last": (_evaluation, "a dict of numbers with a round"),
    "best": (_evaluation, "a dict of numbers with a round"),
    "spent": (_natural, f"a whole number from 0 to {LARGEST - 1}"),
    "best_seal": (_seal, "the seal of the best state"),
}
# Facts that earlier versions did not seal.
LATER = ("best_seal",)
