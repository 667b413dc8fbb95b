"""The info of a checkpoint: the recipe, the environment and the metrics so far.

A checksum detects accidental changes. A forged checkpoint can have a valid checksum, so types are checked too.
"""

import dataclasses
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hetero_tf.base.errors import InputError, shorten_repr
from hetero_tf.base.files import Damaged
from hetero_tf.base.typed_json import Natural, NonNegative, from_json
from hetero_tf.base.version import __version__
from hetero_tf.recipe import Recipe, loads
from hetero_tf.runs import checkpoints, environment
from hetero_tf.runs.environment import Environment
from hetero_tf.runs.run_folder import RunFolder


@dataclass(frozen=True)
class FileDigest:
    """Size and sha256 of a file."""

    bytes: Natural
    sha256: str


@dataclass(frozen=True)
class Facts:
    """The info of a checkpoint.

    Attributes:
        metrics: Digest of `metrics.jsonl`.
        last, best: Metrics of the last and of the best evaluation, with their "round"; empty before it.
        totals: Sums over all rounds, such as "bytes".
    """

    recipe: str
    environment: Environment
    metrics: FileDigest
    last: dict[str, int | float | None]
    best: dict[str, int | float | None]
    totals: dict[str, NonNegative]

    def __post_init__(self):
        for name, evaluation in (("last", self.last), ("best", self.best)):
            round = evaluation.get("round", None if evaluation else 0)
            if not isinstance(round, int) or round < 0:
                raise ValueError(f"{name}.round must be a whole number from 0")
        if not float.is_integer(self.totals.get("bytes", 0.5)):
            raise ValueError("totals.bytes must be a whole number")


def load_recipe(run: RunFolder, overrides: Sequence[str] = ()) -> Recipe:
    """Return the recipe of a run folder.

    Raises:
        InputError: The folder holds no run, the file is damaged, or another version wrote it.
    """
    text = run.read_recipe()
    try:
        return loads(text, str(run.recipe), overrides)
    except InputError as error:
        stored = environment.load(run.environment)
        writer = __version__ if stored is None else stored.versions.get("hetero_tf")
        if writer in (None, __version__):
            raise
        raise InputError(
            f"{error}\nThe run was written by hetero_tf {shorten_repr(writer, 20)}; install that version to read it"
        ) from error


def digest(rows: bytes) -> dict:
    """Return the size and sha256 of rows of metrics."""
    return {"bytes": len(rows), "sha256": hashlib.sha256(rows).hexdigest()}


def newest(run: RunFolder, with_arrays: bool = True) -> dict | None:
    """Return the facts of the newest checkpoint with its "round"; None if there is none.

    Args:
        with_arrays: Read the arrays too: a checkpoint with damaged ones does not count.

    Raises:
        InputError: The checkpoints are damaged, or this program cannot have written their info.
    """
    checkpoint = checkpoints.load_newest(run.checkpoints, with_arrays=with_arrays)
    return None if checkpoint is None else from_checkpoint(checkpoint, run.checkpoints)


def from_checkpoint(checkpoint: checkpoints.SavedRound, folder: object) -> dict:
    """Return the facts of a checkpoint, with its "round", after all checks.

    Raises:
        InputError: A fact is missing or has a wrong type.
    """
    from_json(
        Facts,
        checkpoint.info,
        f"{folder}: round {checkpoint.round} was not saved by this version of hetero_tf",
        "; continue with the version that saved it, restore the folder from a copy, or choose another one by --run_dir",
    )
    return checkpoint.info


def load_best(run: RunFolder, *expected: Any) -> checkpoints.SavedRound | None:
    """Return the checkpoint of the best round that the newest one names; None if there is none.

    Args:
        expected: `expect` and `optional` of `checkpoints.read`.

    Raises:
        InputError, DiskProblem, MemoryProblem: See `newest` and `read_best`.
    """
    newest_round = checkpoints.load_newest(run.checkpoints, with_arrays=False)
    facts = None if newest_round is None else from_checkpoint(newest_round, run.checkpoints)
    if newest_round is None or not facts or not facts["best"]:
        return None
    try:
        return dataclasses.replace(read_best(run, facts, *expected), skipped=newest_round.skipped)
    except Damaged:
        # A running training may have replaced the best round in between.
        if checkpoints.load_newest(run.checkpoints, with_arrays=False) == newest_round:
            raise
        return load_best(run, *expected)


def read_best(run: RunFolder, facts: dict, *expected: Any) -> checkpoints.SavedRound:
    """Return the checkpoint of the best round that the facts of a newer one name.

    Raises:
        Damaged: The checkpoint is missing, damaged, or not the one that the run saved.
    """
    best = checkpoints.read(run.checkpoints, facts["best"]["round"], *expected)
    if from_checkpoint(best, run.checkpoints)["last"] != facts["best"]:
        raise Damaged(f"{checkpoints.path_of(run.checkpoints, best.round)}: is not the state that this run saved")
    return best


# Prefixes of the names of the arrays of a checkpoint.
WEIGHTS, STATISTICS, SERVER, CLIENTS, HISTORY = "weights/", "statistics/", "server/", "clients/", "history/"
# Sums of results that arrive in later rounds: pending/SUM/PATH.
PENDING = "pending/"
# Statistics of the other levels: level_statistics/LEVEL/PATH.
LEVEL_STATISTICS = "level_statistics/"
# Values of personal units: [clients, ...] for each path.
PERSONAL = CLIENTS + "personal/"


def global_weights(run: RunFolder) -> tuple[dict[str, np.ndarray], str]:
    """Read the weights of a run's global model from its best state, or else from its newest checkpoint.

    Personal units have no global values; their weights are the mean over the clients.

    Args:
        run: The folder of the run, which may still be training.

    Returns:
        `{variable path: array}`, and the name of the state, such as "runs/digits/checkpoints, round 12".

    Raises:
        InputError: The folder holds no run, no checkpoint yet, or only damaged checkpoints.
        DiskProblem, MemoryProblem: See `checkpoints.load_newest`.
    """
    run.check_started()
    checkpoint = load_best(run) or checkpoints.load_newest(run.checkpoints)
    if checkpoint is None:
        raise InputError(f"{run.path}: holds no finished round yet; train that run first")
    weights, personal = (
        {name.removeprefix(prefix): value for name, value in checkpoint.arrays.items() if name.startswith(prefix)}
        for prefix in (WEIGHTS, PERSONAL)
    )
    weights |= {path: value.mean(axis=0, dtype=value.dtype) for path, value in personal.items()}
    return weights, f"{run.checkpoints}, round {checkpoint.round}"
