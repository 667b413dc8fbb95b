"""Saves states as arrays, and checks a run folder before the run is resumed or loaded.

Every checkpoint stores the recipe, the environment, and the size and sha256 of the metrics so far, with a checksum. So
the checkpoint is authoritative; `recipe.yaml` and `environment.json` are copies for readers.
"""

import contextlib
import dataclasses
import functools
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np

from hetero_tf.base import files, typed_json
from hetero_tf.base.constraints import Range, Text
from hetero_tf.base.errors import InputError, NotFinite
from hetero_tf.data.dataset import Dataset
from hetero_tf.data.partitions.partition import Partition
from hetero_tf.models.state import flatten_state, unflatten_state
from hetero_tf.planning.fleets.device_table import LARGEST_TRACE, trace_digest
from hetero_tf.recipe import Recipe, changed_keys, loads
from hetero_tf.recipe.schema import Fleet
from hetero_tf.run.data import fit_data
from hetero_tf.run.learning_process import LearningProcess, State
from hetero_tf.runs import checkpoints, environment, facts, metrics_file
from hetero_tf.runs.facts import LEVEL_STATISTICS, STATISTICS
from hetero_tf.runs.run_folder import RunFolder

# Bytes of a trace that is copied into the run folder.
LARGEST_COPY = 2**24
# Differences that follow from the number of processes or devices that share a round.
REPLICA_PREFIXES = (
    *("settings.replicas ", "settings.clients_at_once ", "settings.by_taps ", "settings.by_winograd "),
    "threads.inter_op ",
)


@contextlib.contextmanager
def locked(run: RunFolder) -> Iterator[None]:
    """Lock the run folder. If the run fails before it starts, folders created here are removed again."""
    created = [path for path in (run.path, *run.path.parents) if not os.path.lexists(path)]
    with run.lock():
        try:
            yield
        except BaseException:
            if created and not run.started:
                with contextlib.suppress(OSError):
                    for name in os.listdir(run.path):
                        os.unlink(run.path / name)
                    for path in created:
                        os.rmdir(path)
            raise


def check_recipe(run: RunFolder, recipe: Recipe, newest_facts: dict | None) -> None:
    """Refuse to continue a run with another recipe.

    Raises:
        InputError: The recipes differ; the message lists the keys with both values.
    """
    if newest_facts is None and not run.started:
        return
    changed = changed_keys(run.read_recipe() if newest_facts is None else newest_facts["recipe"], recipe.source)
    if changed:
        raise InputError(
            f"{run.path}: holds a run of another recipe ({'; '.join(changed)}); choose another folder by "
            "--run_dir, or use the recipe of that run"
        )


def check_best(run: RunFolder, process: LearningProcess, newest_facts: dict | None) -> None:
    """Refuse to continue a run with another selection metric for its best state.

    Args:
        process: The process of the recipe to continue with, on the data and partition of the run.
    """
    if newest_facts is None:
        return
    selection_metric = loads(newest_facts["recipe"]).evaluate.best or process.default_selection_metric
    if selection_metric != process.selection_metric:
        raise InputError(
            f"{run.path}: its best round is chosen by {selection_metric}; set evaluate.best to it, or choose "
            f"another folder by --run_dir. Received: {process.selection_metric}"
        )


def check_stored_recipe(run: RunFolder, newest_facts: dict) -> None:
    """Refuse a `recipe.yaml` that differs from the recipe of the checkpoints."""
    changed = changed_keys(newest_facts["recipe"], run.read_recipe())
    if changed:
        raise InputError(
            f"{run.recipe}: was changed after the training ({'; '.join(changed)}); put it back, or run "
            "the training command again, which restores it"
        )


def fit_stored(
    run: RunFolder | None, dataset: Dataset, newest_facts: dict | None, split: Callable[[], Partition]
) -> tuple[Dataset, Partition]:
    """Return the data and the partition of a run, see `data.fit_data`.

    Args:
        newest_facts: Result of `facts.newest`. If None, the run is new, and the recipe splits the data.

    Raises:
        InputError: The data or the partition are not those of the run, or the file is damaged.
    """
    if run is None or newest_facts is None:
        return fit_data(dataset, split())
    is_stored = os.path.lexists(run.partition)
    dataset, partition = fit_data(dataset, Partition.load(run.partition) if is_stored else split())
    settings = newest_facts["environment"]["settings"]
    if settings.get("data") != dataset.sha256:
        raise InputError(
            f"{run.path}: was trained on other data than {dataset.source}; use the same data, "
            "for example by --data_dir, or choose another folder by --run_dir"
        )
    if settings.get("partition") != partition.sha256:
        raise InputError(
            f"{run.partition}: is not the partition of this run; put the original back, or delete the file if "
            "the recipe alone determines the partition"
        )
    return dataset, partition


@dataclass(frozen=True)
class StoredNoise:
    """The noise of a run, as its folder stores it: key and multiplier, see `privacy_account.PrivacyAccount`."""

    key: Annotated[str, Text(pattern="([0-9a-f]{2}){16,64}")]
    noise: Annotated[float, Range(low=0.0, high=1e15)]


def with_stored_noise(run: RunFolder, process: LearningProcess, newest_facts: dict | None) -> LearningProcess:
    """Return a private process with the noise of its run; a new run stores it, readable by its user alone.

    Raises:
        InputError: The file is missing or damaged, or the budget does not allow all rounds of the recipe.
    """
    if process.privacy is None:
        return process
    if os.path.lexists(run.noise):
        stored = typed_json.read(StoredNoise, run.noise)
        process = dataclasses.replace(process, noise=(bytes.fromhex(stored.key), stored.noise))
    elif newest_facts is not None:
        raise InputError(
            f"{run.noise}: is missing, so the noise of this run cannot be continued; put the file back, or choose "
            "another folder by --run_dir"
        )
    account = process.privacy
    assert account is not None
    account.check_rounds(process.recipe.rounds)
    if not os.path.lexists(run.noise):
        content = typed_json.dump({"key": account.key.hex(), "noise": account.noise}, "the noise")
        files.write_new(run.noise, content, mode=0o600)
        process = dataclasses.replace(process, noise=(account.key, account.noise))
    return process


def with_stored_trace(run: RunFolder, recipe: Recipe, newest_facts: dict | None) -> Recipe:
    """Return the recipe with the devices of its run; if the file `fleet.trace` is missing, with the folder's copy.

    Args:
        newest_facts: Result of `facts.newest`. If None, the run is new.

    Raises:
        InputError: The file is not the one with which the run started.
    """
    fleet = recipe.fleet
    expected = None if newest_facts is None else newest_facts["environment"]["settings"].get("trace")
    if fleet is None or fleet.trace is None or expected is None:
        return recipe
    path = fleet.trace if os.path.lexists(fleet.trace) else str(run.trace)
    if trace_digest(path) != expected:
        raise InputError(
            f"{path}: is not the trace with which {run.path} started; put the original back, or choose another folder "
            "by --run_dir"
        )
    return dataclasses.replace(recipe, fleet=dataclasses.replace(fleet, trace=path))


def store_trace(run: RunFolder, fleet: Fleet | None) -> None:
    """Copy the trace of a fleet into the run folder, unless it is there or large: then a resume needs the file."""
    if fleet is not None and fleet.trace is not None and not os.path.lexists(run.trace):
        content = files.read_bytes(fleet.trace, LARGEST_TRACE, follow=True)
        if len(content) <= LARGEST_COPY:
            files.write_atomic(run.trace, content)


def check_environment(
    run: RunFolder, newest_facts: dict | None, run_environment: dict, allow: bool, say: Callable[[str], None]
) -> None:
    """Refuse an environment in which results would differ from the run so far; with `allow`, only report it."""
    stored = run_environment if newest_facts is None else newest_facts["environment"]
    changed = environment.differences(*map(environment.decisive, (stored, run_environment)))
    if any(line.startswith("settings.model ") for line in changed):
        raise InputError(
            f"{run.path}: is a run of another model, whose layers or compile() differ; use the model of that run, or "
            "choose another folder by --run_dir"
        )
    if (replicas := _replicas(stored)) != (count := _replicas(run_environment)):
        changed = [line for line in changed if not line.startswith(REPLICA_PREFIXES)]
        subject = "1 process or device trains" if count == 1 else f"{count} processes or devices share"
        say(
            f"note: {subject} each round instead of {replicas}: results equal those of an uninterrupted run except for "
            "the order of summation, not bit for bit"
        )
    if changed and not allow:
        raise InputError(
            f"{run.path}: was started in another environment ({'; '.join(changed)}), so its results would "
            "differ from those of an uninterrupted run; use --allow_other_machine to continue anyway"
        )
    for line in changed:
        say(f"note: {line}")


def _replicas(run_environment):
    return run_environment["settings"].get("replicas", 1)


def check_checkpoints(run: RunFolder, recipe: Recipe, newest_facts: dict | None, say: Callable[[str], None]) -> None:
    """Refuse to restart a run whose checkpoints are lost: that would overwrite its other files.

    A run that was stopped before its first checkpoint starts again.

    Raises:
        InputError: There are metrics, but no checkpoint of their rounds.
    """
    rows = () if newest_facts is not None else metrics_file.rows(run.metrics)
    done = max((row["round"] for row in rows), default=0)
    if not done:
        return
    # The folder is created before the first metrics row, and a checkpoint is saved before the next round starts.
    if not run.checkpoints.exists() or done > recipe.checkpoint.every:
        raise InputError(
            f"{run.checkpoints}: has no checkpoint, but {done} rounds of this run are done; put the folder back, or "
            "start again: in another folder by --run_dir, or here after removing this one"
        )
    say(f"note: {run.path} was stopped before its first checkpoint; it starts again")


def read_rows(run: RunFolder) -> bytes:
    """Return the content of `metrics.jsonl`; empty if it is missing."""
    return files.read_bytes(run.metrics, metrics_file.LIMIT) if os.path.lexists(run.metrics) else b""


def truncate_metrics(run: RunFolder, newest_facts: dict | None, say: Callable[[str], None]) -> bytes:
    """Truncate the metrics to the rows that the checkpoint covers, and return them.

    Raises:
        InputError: One of these rows was changed.
    """
    if newest_facts is None:
        # Without a checkpoint, no metrics are valid.
        files.remove(run.metrics)
        return b""
    if not os.path.lexists(run.metrics):
        if newest_facts["metrics"]["bytes"]:
            say(f"note: {run.metrics} is missing; the rows up to round {newest_facts['round']} are lost")
        return b""
    data = read_rows(run)
    known = data[: newest_facts["metrics"]["bytes"]]
    if facts.digest(known) != newest_facts["metrics"]:
        raise files.Damaged(
            f"{run.metrics}: a row up to round {newest_facts['round']} was changed, is damaged or missing; "
            "restore the file from a copy, or delete it to continue without these rows"
        )
    if len(known) < len(data):
        files.write_atomic(run.metrics, known)
    return known


def repair_metrics(run: RunFolder, rows: bytes, say: Callable[[str], None]) -> None:
    """Restore the metrics if the file was removed or changed since this process wrote its last row.

    Raises:
        InputError: The path is a link, pipe, device or folder.
    """
    if read_rows(run) != rows:
        files.write_atomic(run.metrics, rows)
        say(f"note: {run.metrics} was removed or changed during the run; its rows were restored")


def write_copies(run: RunFolder, recipe: Recipe, run_environment: dict, say: Callable[[str], None]) -> None:
    """Write the current `recipe.yaml` and `environment.json`."""
    environment.save(run.environment, run_environment)
    try:
        stored = run.read_recipe() if run.started else None
        edited = stored is not None and bool(changed_keys(stored, recipe.source))
    except InputError:
        stored, edited = None, True
    if edited:
        say(f"note: {run.recipe} was changed or damaged; it was restored")
    if stored != recipe.source:
        # Written last: a folder without it, and without checkpoints, counts as not started.
        files.write_atomic(run.recipe, recipe.source.encode())


def load_best(run: RunFolder, newest_facts: dict, say: Callable[[str], None]) -> dict:
    """Return the best evaluation so far; {} if its state is damaged, so that one of the later rounds replaces it."""
    best = newest_facts["best"]
    try:
        if best:
            facts.read_best(run, newest_facts)
        return best
    except files.Damaged as damage:
        say(
            f"note: the best state so far, of round {best['round']}, is lost ({damage}); the best of the later rounds "
            "replaces it"
        )
        return {}


@dataclass(frozen=True)
class LoadedState:
    """A state loaded from a checkpoint.

    Attributes:
        statistics: `{level: {path: value}}` of static batch normalisation, for the levels that the round evaluated.
        checkpoint: The checkpoint that it was read from, with its info.
    """

    state: State
    statistics: dict
    checkpoint: checkpoints.SavedRound


def arrays_of(state: State, statistics: dict, global_level: str) -> dict[str, np.ndarray]:
    """Return the arrays of a checkpoint by name: those of the state, and finite statistics of each level.

    Statistics that overflowed are omitted: commands that need them query them again.

    Args:
        statistics: `{level: {path: value}}`, see `LearningProcess.evaluate`.
        global_level: The level whose statistics are stored without its name.

    Raises:
        NotFinite: A value of the state is NaN or infinite.
    """
    arrays = {name: np.asarray(value) for name, value in flatten_state(state).items()}
    for name, array in arrays.items():
        if not np.isfinite(array).all():
            raise NotFinite(
                f"round {state.round} is not saved: {name!r} holds NaN or infinite values; the last checkpoint is kept"
            )
    for level, values in statistics.items():
        prefix = STATISTICS if level == global_level else f"{LEVEL_STATISTICS}{level}/"
        measured = {prefix + path: np.asarray(value) for path, value in values.items()}
        if all(np.isfinite(array).all() for array in measured.values()):
            arrays |= measured
    return arrays


def _level_and_path(name, global_level):
    """The level and the variable path of a stored statistic; (None, None) for other names."""
    if name.startswith(STATISTICS):
        return global_level, name.removeprefix(STATISTICS)
    level, _, path = name.removeprefix(LEVEL_STATISTICS).partition("/")
    return (level, path) if name.startswith(LEVEL_STATISTICS) else (None, None)


def _spec(value):
    return tuple(value.shape), getattr(value.dtype, "name", value.dtype)


def open_newest(folder: Path, process: LearningProcess) -> LoadedState | None:
    """Load the newest valid checkpoint; None if there is none.

    Raises:
        InputError: The state is of another recipe, or contains NaN or infinite weights.
    """
    return _open(functools.partial(checkpoints.load_newest, folder), folder, process)


def open_best(run: RunFolder, process: LearningProcess) -> LoadedState | None:
    """Load the checkpoint of the best round of a run; see `open_newest`."""
    return _open(functools.partial(facts.load_best, run), run.checkpoints, process)


def _open(load, folder, process):
    blank, levels = process.blank(), process.recipe.levels
    specs = {name: _spec(value) for name, value in flatten_state(blank).items()}

    @functools.cache
    def statistics_of(level):
        """Specs of a level's statistics by path. Its model is only built if the checkpoint has some of them."""
        if level not in {levels.global_level, *levels.names}:
            return {}
        return {variable.path: _spec(variable) for variable in process.evaluator.queried(level)}

    def statistic(name):
        level, path = _level_and_path(name, levels.global_level)
        return statistics_of(level).get(path)

    checkpoint = load(specs, statistic)
    if checkpoint is None:
        return None
    for name, value in checkpoint.arrays.items():
        # Statistics may be infinite: they are measured, not trained.
        if not name.startswith((STATISTICS, LEVEL_STATISTICS)) and not np.isfinite(value).all():
            raise InputError(
                f"{folder}: round {checkpoint.round} holds NaN or infinite values in {name!r}; restore the folder "
                "from a copy, or train again in another folder"
            )
    state = unflatten_state(checkpoint.round, checkpoint.arrays, blank)
    statistics: dict[str, dict] = {}
    for name in checkpoint.arrays.keys() - specs.keys():
        level, path = _level_and_path(name, levels.global_level)
        statistics.setdefault(level, {})[path] = checkpoint.arrays[name]
    return LoadedState(state, statistics, checkpoint)
