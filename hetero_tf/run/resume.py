"""What a run folder must agree with before a run goes on in it.

Every sealed state carries the recipe, the environment and the size and sha256 of the metrics so far. It is checksummed,
so it decides; `recipe.yaml` and `environment.json` beside it are copies for a person.
"""

import contextlib
import os
from collections.abc import Callable, Iterator

from hetero_tf.base import files
from hetero_tf.base.errors import InputError
from hetero_tf.data.dataset import Dataset
from hetero_tf.partitions.partition import Partition
from hetero_tf.process.learning_process import LearningProcess
from hetero_tf.recipe import Recipe, changed_keys, loads
from hetero_tf.runs import facts
from hetero_tf.store import checkpoints, environment, metrics_file
from hetero_tf.store.run_folder import RunFolder

# How lines begin that tell of what differs with the number of processes or devices that share a round.
BY_REPLICAS = ("settings.replicas ", "settings.clients_at_once ", "settings.by_taps ", "threads.inter_op ")


@contextlib.contextmanager
def locked(run: RunFolder) -> Iterator[None]:
    """Locks the run folder; a new one in which no run began is removed again, parents included."""
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


def check_recipe(run: RunFolder, recipe: Recipe, before: dict | None) -> None:
    """Refuses to continue a run with another recipe than it began with.

    Args:
        run: The folder of the run.
        recipe: The recipe to continue with.
        before: As `facts.newest` returns it.

    Raises:
        InputError: It has another one; the sentence lists the keys with both values.
    """
    if before is None and not run.started:
        return
    changed = changed_keys(run.read_recipe() if before is None else before["recipe"], recipe.source)
    if changed:
        raise InputError(
            f"{run.path}: holds a run of another recipe ({'; '.join(changed)}); choose another folder by "
            "--run_dir, or give the recipe that the run began with"
        )


def check_best(run: RunFolder, process: LearningProcess, before: dict | None) -> None:
    """Refuses to go on choosing the best state by another metric than the run began with.

    Args:
        run: The folder of the run.
        process: That of the recipe to continue with, on the data and the partition of the run.
        before: As `facts.newest` returns it.
    """
    if before is None:
        return
    selection_metric = loads(before["recipe"]).evaluate.best or process.default_selection_metric
    if selection_metric != process.selection_metric:
        raise InputError(
            f"{run.path}: its best round is chosen by {selection_metric}; set evaluate.best to it, or choose "
            f"another folder by --run_dir. Received: {process.selection_metric}"
        )


def check_stored_recipe(run: RunFolder, before: dict) -> None:
    """Refuses a `recipe.yaml` that is no longer the recipe of the sealed states, for commands that read it."""
    changed = changed_keys(before["recipe"], run.read_recipe())
    if changed:
        raise InputError(
            f"{run.recipe}: was changed after the training ({'; '.join(changed)}); put it back, or run "
            "the training command again, which writes it anew"
        )


def stored_partition(
    run: RunFolder, dataset: Dataset, before: dict | None, split: Callable[[], Partition]
) -> Partition:
    """Returns the partition of a run.

    Args:
        run: The folder of the run.
        dataset: The data as they are now.
        before: As `facts.newest` returns it; None: the run begins, and the recipe splits the data.
        split: Splits the data as the recipe says.

    Raises:
        InputError: The data or the partition are not those of the run, or the file is damaged.
    """
    if before is None:
        return split()
    settings = before["environment"]["settings"]
    if settings.get("data") != dataset.sha256:
        raise InputError(
            f"{run.path}: was trained on other data than these ({dataset.source}); give the same data, "
            "for example by --data_dir, or choose another folder by --run_dir"
        )
    partition = Partition.load(run.partition) if os.path.lexists(run.partition) else split()
    if settings.get("partition") != partition.sha256:
        raise InputError(
            f"{run.partition}: is not the partition that the run began with; put it back, or delete it if "
            "the recipe alone determines it"
        )
    return partition


def check_environment(
    run: RunFolder, before: dict | None, conditions: dict, allow: bool, say: Callable[[str], None]
) -> None:
    """Refuses conditions under which the numbers would differ from the run so far; with `allow` it only says them."""
    changed = [] if before is None else environment.differences(before["environment"], conditions)
    if before is not None and (replicas := _replicas(before["environment"])) != _replicas(conditions):
        changed = [line for line in changed if not line.startswith(BY_REPLICAS)]
        say(
            f"note: {_told(conditions)} each round in place of {replicas}: the numbers are those of "
            "an uninterrupted run up to the order of summation, not bit by bit"
        )
    if changed and not allow:
        raise InputError(
            f"{run.path}: was begun under other conditions ({'; '.join(changed)}), so its numbers would "
            "not be those of an uninterrupted run; continue all the same with --allow_other_machine"
        )
    for line in changed:
        say(f"note: {line}")


def _told(conditions):
    count = _replicas(conditions)
    return "1 process or device trains" if count == 1 else f"{count} processes or devices share"


def _replicas(conditions):
    """How many processes or devices share each round."""
    return conditions["settings"].get("replicas", 1)


def check_checkpoints(run: RunFolder, recipe: Recipe, before: dict | None, say: Callable[[str], None]) -> None:
    """Refuses to begin a run again whose checkpoints are lost: that would overwrite what is left of it.

    A run that was stopped before its first checkpoint begins again.

    Args:
        run: The folder of the run.
        recipe: The recipe to continue with.
        before: As `facts.newest` returns it.
        say: Gets a note if the run begins again.

    Raises:
        InputError: Metrics or a best state are there, but no checkpoint of their rounds.
    """
    done = 0 if before is not None else _last_round(run)
    if not done:
        return
    # The folder is made before the first row of metrics is written, and a round is sealed before the next one begins.
    if not run.checkpoints.exists() or done > recipe.checkpoint.every:
        raise InputError(
            f"{run.checkpoints}: holds no checkpoint, but {done} rounds of this run were done; put the folder back, or "
            "begin again: in another folder by --run_dir, or here after removing this one"
        )
    say(f"note: {run.path} was stopped before its first checkpoint; it begins again")


def _last_round(run):
    """The last round of which the metrics or the best state tell; 0 if there is none."""
    told = [row["round"] for row in metrics_file.rows(run.metrics)]
    return max([*told, *checkpoints.numbers(run.best)], default=0)


def read_rows(run: RunFolder) -> bytes:
    """Returns what `metrics.jsonl` holds, nothing if it is missing."""
    return files.read_bytes(run.metrics, metrics_file.LIMIT) if os.path.lexists(run.metrics) else b""


def truncate_metrics(run: RunFolder, before: dict | None, say: Callable[[str], None]) -> bytes:
    """Cuts the metrics back to the rows that the sealed state knows, and returns these.

    Raises:
        InputError: A row up to that state is not what it was.
    """
    if before is None:
        # What was measured after the last checkpoint did not happen, and here there is none.
        files.remove(run.metrics)
        files.remove(run.best)
        return b""
    if not os.path.lexists(run.metrics):
        if before["metrics"]["bytes"]:
            say(f"note: {run.metrics} is gone; the rows up to round {before['round']} are lost")
        return b""
    data = read_rows(run)
    known = data[: before["metrics"]["bytes"]]
    if facts.digest(known) != before["metrics"]:
        raise files.Damaged(
            f"{run.metrics}: a row up to round {before['round']} was changed, is damaged or missing; "
            "put the file back from a copy, or delete it to go on without these rows"
        )
    if len(known) < len(data):
        files.write_atomic(run.metrics, known)
    return known


def repair_metrics(run: RunFolder, rows: bytes, say: Callable[[str], None]) -> None:
    """Writes the metrics again if they were removed or changed since this program wrote their last row.

    Raises:
        InputError: A link, pipe, device or folder stands in their place.
    """
    if read_rows(run) != rows:
        files.write_atomic(run.metrics, rows)
        say(f"note: {run.metrics} was removed or changed while the run went on; its rows are written again")


def write_copies(run: RunFolder, recipe: Recipe, conditions: dict, say: Callable[[str], None]) -> None:
    """Writes `recipe.yaml` and `environment.json` as they are now."""
    environment.save(run.environment, conditions)
    try:
        stored = run.read_recipe() if run.started else None
        edited = stored is not None and bool(changed_keys(stored, recipe.source))
    except InputError:
        stored, edited = None, True
    if edited:
        say(f"note: {run.recipe} was changed or damaged; it is written again")
    if stored != recipe.source:
        # It comes last of the first files: a folder without it, and without sealed rounds, counts as not begun.
        files.write_atomic(run.recipe, recipe.source.encode())
