"""What a run folder must agree with before a run goes on in it.

Every sealed state carries the recipe, the environment and the size and sha256 of the metrics so far. It is checksummed,
so it decides; `recipe.yaml` and `environment.json` beside it are copies for a person.
"""

import contextlib
import hashlib
import os
from collections.abc import Callable, Iterator

from hetero_tf.base import files
from hetero_tf.base.errors import BadInput
from hetero_tf.data.dataset import Dataset
from hetero_tf.partitions.partition import Partition
from hetero_tf.recipe import Recipe, difference
from hetero_tf.store import environment, metrics, sealed
from hetero_tf.store.run_folder import RunFolder

SEALED = ("recipe", "environment", "metrics", "last", "best", "spent")


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


def sealed_facts(run: RunFolder) -> dict | None:
    """Returns what the newest sealed state of a run folder says about its run, with its "round"; None before it."""
    newest = sealed.load_newest(run.checkpoints)
    if newest is None:
        return None
    missing = [name for name in SEALED if name not in newest.info]
    if missing:
        raise BadInput(
            f"{run.checkpoints}: round {newest.round} was sealed without {', '.join(missing)}, so by another "
            "version of hetero_tf; continue with that version, or choose another folder by --run_dir"
        )
    return {**newest.info, "round": newest.round}


def facts_to_seal(run: RunFolder, recipe: Recipe, facts: dict) -> dict:
    """Returns what the next sealed state says about its run."""
    data = files.read_bytes(run.metrics, metrics.LIMIT)
    rows = {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    return {"recipe": recipe.source, "environment": facts, "metrics": rows}


def changed_keys(old: str, new: str) -> list[str]:
    """Lists the keys in which two resolved recipes differ, without those that a run may change.

    The number of rounds: a run may be extended. The engine: the environment says which one was chosen.
    """
    return [line for line in difference(old, new) if not line.startswith(("rounds:", "engine:"))]


def check_recipe(run: RunFolder, recipe: Recipe, before: dict | None) -> None:
    """Refuses to continue a run with another recipe than it began with.

    Args:
        run: The folder of the run.
        recipe: The recipe to continue with.
        before: As `sealed_facts` returns it.

    Raises:
        BadInput: It has another one; the sentence lists the keys with both values.
    """
    if before is None and not run.started:
        return
    changed = changed_keys(run.read_recipe() if before is None else before["recipe"], recipe.source)
    if changed:
        raise BadInput(
            f"{run.path}: holds a run of another recipe ({'; '.join(changed)}); choose another folder by "
            "--run_dir, or give the recipe that the run began with"
        )


def check_stored_recipe(run: RunFolder, before: dict) -> None:
    """Refuses a `recipe.yaml` that is no longer the recipe of the sealed states, for commands that read it."""
    changed = changed_keys(before["recipe"], run.read_recipe())
    if changed:
        raise BadInput(
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
        before: As `sealed_facts` returns it; None: the run begins, and the recipe splits the data.
        split: Splits the data as the recipe says.

    Raises:
        BadInput: The data or the partition are not those of the run, or the file is damaged.
    """
    if before is None:
        return split()
    settings = before["environment"]["settings"]
    if settings.get("data") != dataset.sha256:
        raise BadInput(
            f"{run.path}: was trained on other data than these ({dataset.source}); give the same data, "
            "for example by --data_dir, or choose another folder by --run_dir"
        )
    partition = Partition.load(run.partition) if os.path.lexists(run.partition) else split()
    if settings.get("partition") != partition.sha256:
        raise BadInput(
            f"{run.partition}: is not the partition that the run began with; put it back, or delete it if "
            "the recipe alone determines it"
        )
    return partition


def check_environment(
    run: RunFolder, before: dict | None, facts: dict, allow: bool, say: Callable[[str], None]
) -> None:
    """Refuses conditions under which the numbers would differ from the run so far; with `allow` it only says them."""
    changed = [] if before is None else environment.differences(before["environment"], facts)
    if changed and not allow:
        raise BadInput(
            f"{run.path}: was begun under other conditions ({'; '.join(changed)}), so its numbers would "
            "not be those of an uninterrupted run; continue all the same with --allow_other_machine"
        )
    for line in changed:
        say(f"note: {line}")


def cut_metrics(run: RunFolder, before: dict | None, say: Callable[[str], None]) -> None:
    """Cuts the metrics back to the rows that the sealed state knows.

    Raises:
        BadInput: A row up to that state is not what it was.
    """
    if before is None:
        files.remove(run.metrics)
        return
    if not os.path.lexists(run.metrics):
        say(f"note: {run.metrics} is gone; the rows up to round {before['round']} are lost")
        return
    data = files.read_bytes(run.metrics, metrics.LIMIT)
    known = data[: before["metrics"]["bytes"]]
    if hashlib.sha256(known).hexdigest() != before["metrics"]["sha256"]:
        raise files.Damaged(
            f"{run.metrics}: a row up to round {before['round']} was changed, is damaged or missing; "
            "put the file back from a copy, or delete it to go on without these rows"
        )
    if len(known) < len(data):
        files.write_atomic(run.metrics, known)


def write_copies(run: RunFolder, recipe: Recipe, facts: dict, say: Callable[[str], None]) -> None:
    """Writes `recipe.yaml` and `environment.json` as they are now."""
    environment.save(run.environment, facts)
    try:
        stored = run.read_recipe() if run.started else None
        edited = stored is not None and bool(changed_keys(stored, recipe.source))
    except BadInput:
        stored, edited = None, True
    if edited:
        say(f"note: {run.recipe} was changed or damaged; it is written again")
    if stored != recipe.source:
        # It comes last of the first files: a folder without it, and without sealed rounds, counts as not begun.
        files.write_atomic(run.recipe, recipe.source.encode())


def best_so_far(run: RunFolder, best: dict, say: Callable[[str], None]) -> dict:
    """Returns the best evaluation so far; nothing if its state is damaged or gone, so that a later one replaces it."""
    if not best:
        return best
    try:
        newest = sealed.load_newest(run.best)
        problem = None if newest is not None and newest.round >= best["round"] else f"{run.best}: lacks it"
    except BadInput as damage:
        problem = str(damage)
    if problem is None:
        return best
    say(
        f"note: the best state so far, of round {best['round']}, is lost ({problem}); the best of the rounds to come "
        "takes its place"
    )
    return {}
