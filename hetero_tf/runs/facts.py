"""The info of a checkpoint: the recipe, the environment and the metrics so far.

A checksum detects accidental changes. A forged checkpoint can have a valid checksum, so types are checked too.
"""

import hashlib
import math
from collections.abc import Callable
from typing import Any

from hetero_tf.base.errors import InputError, shorten_repr
from hetero_tf.recipe import Recipe
from hetero_tf.recipe.old_spellings import in_new_spelling
from hetero_tf.runs import checkpoints, environment
from hetero_tf.runs.run_folder import RunFolder

# Upper bound of numbers in the info: larger ones are never written.
LARGEST = 2**63


def read_recipe(run: RunFolder) -> str:
    """Return the text of `recipe.yaml` in the new spelling: earlier versions wrote old ones.

    Raises:
        InputError: The folder holds no run, or the file is damaged.
    """
    return in_new_spelling(run.read_recipe(), str(run.recipe))[0]


def checkpoint_info(recipe: Recipe, run_environment: dict, rows: bytes) -> dict:
    """Return the recipe, environment and metrics digest for the info of a checkpoint.

    Args:
        recipe: The recipe.
        run_environment: The environment.
        rows: Content of `metrics.jsonl`.
    """
    return {"recipe": recipe.source, "environment": run_environment, "metrics": digest(rows)}


def digest(rows: bytes) -> dict:
    """Return the size and sha256 of rows of metrics."""
    return {"bytes": len(rows), "sha256": hashlib.sha256(rows).hexdigest()}


def newest(run: RunFolder) -> dict | None:
    """Return the facts of the newest checkpoint with its "round" and "seal" (digest); None if there is none.

    Raises:
        InputError: The checkpoints are damaged, or this program cannot have written their info.
    """
    checkpoint = checkpoints.load_newest(run.checkpoints)
    return None if checkpoint is None else from_checkpoint(checkpoint, run.checkpoints)


def best(run: RunFolder) -> dict | None:
    """Return the facts of the checkpoint in `best/`, as `newest` does."""
    checkpoint = checkpoints.load_newest(run.best)
    return None if checkpoint is None else from_checkpoint(checkpoint, run.best)


def from_checkpoint(checkpoint: checkpoints.Checkpoint, folder: object) -> dict:
    """Return the facts of a checkpoint after all checks, with its "round" and "seal" (digest).

    The recipe is in the new spelling.

    Args:
        checkpoint: The checkpoint.
        folder: Its folder, for error messages.

    Raises:
        InputError: A fact is missing or has a wrong type.
    """
    info = checkpoint.info
    missing = [name for name in RULES if name not in info and name not in LATER]
    if missing:
        raise InputError(
            f"{folder}: round {checkpoint.round} was saved without {', '.join(missing)}, by another "
            "version of hetero_tf; continue with that version, or choose another folder by --run_dir"
        )
    for name, (holds, expected) in RULES.items():
        if name in info and not holds(info[name]):
            raise InputError(
                f"{folder}: round {checkpoint.round} was not saved by hetero_tf: its `{name}` must be {expected}; "
                f"restore the folder from a copy. Received: {name}={shorten_repr(info[name], 60)}"
            )
    text, _ = in_new_spelling(info["recipe"], str(folder))
    return {**dict.fromkeys(LATER), **info, "recipe": text, "round": checkpoint.round, "seal": checkpoint.digest}


def _is_natural(value):
    return type(value) is int and 0 <= value < LARGEST


def _is_metric_value(value):
    return value is None or type(value) is float or type(value) is int and abs(value) < LARGEST


def _is_evaluation(value):
    if value == {}:
        return True
    return isinstance(value, dict) and _is_natural(value.get("round")) and all(map(_is_metric_value, value.values()))


def _is_totals(value):
    return (
        isinstance(value, dict)
        and _is_natural(value.get("bytes"))
        and all(_is_natural(each) or type(each) is float and 0 <= each < math.inf for each in value.values())
    )


def _is_environment(value):
    return isinstance(value, dict) and all(isinstance(value.get(name), dict) for name in environment.SECTIONS)


def _is_file_digest(value):
    return isinstance(value, dict) and _is_natural(value.get("bytes")) and isinstance(value.get("sha256"), str)


def _is_digest(value):
    return value is None or isinstance(value, str)


RULES: dict[str, tuple[Callable[[Any], bool], str]] = {
    "recipe": (lambda value: isinstance(value, str), "the text of a recipe"),
    "environment": (_is_environment, "a dict with " + ", ".join(environment.SECTIONS)),
    "metrics": (_is_file_digest, "a dict with bytes and sha256"),
    "last": (_is_evaluation, "a dict of numbers with a round"),
    "best": (_is_evaluation, "a dict of numbers with a round"),
    "totals": (_is_totals, "a dict of finite numbers from 0, with bytes"),
    "best_seal": (_is_digest, "the digest of the best state"),
}
# Facts that earlier versions did not save.
LATER = ("best_seal",)
