"""What a run folder must agree with before a run goes on in it.

Every sealed state carries the recipe, the environment and the size and sha256 of the metrics so far. It is checksummed,
so it decides; `recipe.yaml` and `environment.json` beside it are copies for a person.
"""

import contextlib
import hashlib
import os

from hetero_tf import recipe as recipes
from hetero_tf.base import files
from hetero_tf.base.errors import BadInput
from hetero_tf.partitions.partition import Partition
from hetero_tf.store import environment, metrics, sealed

SEALED = ("recipe", "environment", "metrics", "last", "best", "spent")


@contextlib.contextmanager
def held(run):
    """Holds the run folder; a new one in which no run came about is taken away again, parents included."""
    made = [path for path in (run.path, *run.path.parents) if not os.path.lexists(path)]
    with run.lock():
        try:
            yield
        except BaseException:
            if made and not run.started:
                with contextlib.suppress(OSError):
                    for name in os.listdir(run.path):
                        os.unlink(run.path / name)
                    for path in made:
                        os.rmdir(path)
            raise


def known(run):
    """What the newest sealed state of a run folder says: its `info`, and None before the first one."""
    found = sealed.load_newest(run.checkpoints)
    if found is None:
        return None
    missing = [name for name in SEALED if name not in found.info]
    if missing:
        raise BadInput(
            f"{run.checkpoints}: round {found.round} was sealed without {', '.join(missing)}, so by another "
            "version of hetero_tf; continue with that version, or choose another folder by --run_dir"
        )
    return {**found.info, "round": found.round}


def seal(run, recipe, facts):
    """What the next sealed state shall say about its run, as a dict for its `info`."""
    data = files.read_bytes(run.metrics, metrics.LIMIT)
    rows = {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    return {"recipe": recipe.source, "environment": facts, "metrics": rows}


def difference(old, new):
    """The keys in which two resolved recipes differ, but for those that a run may change.

    The number of rounds: a run may be extended. The engine: the environment says what it has come to.
    """
    return [line for line in recipes.difference(old, new) if not line.startswith(("rounds:", "engine:"))]


def check_recipe(run, recipe, before):
    """A resumed run must have the recipe that it began with.

    Args:
        run: `RunFolder`.
        recipe: The recipe to go on with.
        before: As `known` gives it.

    Raises:
        BadInput: It has another one; the sentence lists the keys with both values.
    """
    if before is None and not run.started:
        return
    changed = difference(run.read_recipe() if before is None else before["recipe"], recipe.source)
    if changed:
        raise BadInput(
            f"{run.path}: holds a run of another recipe ({'; '.join(changed)}); choose another folder by "
            "--run_dir, or give the recipe that the run began with"
        )


def check_stored_recipe(run, before):
    """Refuses a `recipe.yaml` that is no longer the recipe of the sealed states, for commands that read it."""
    changed = difference(before["recipe"], run.read_recipe())
    if changed:
        raise BadInput(
            f"{run.recipe}: was changed after the training ({'; '.join(changed)}); put it back, or run "
            "the training command again, which writes it anew"
        )


def stored_partition(run, dataset, before, split):
    """The partition of a run folder.

    Args:
        run: `RunFolder`.
        dataset: The data as they are now.
        before: As `known` gives it; with None the run begins, and so does its partition.
        split: `() -> Partition`, as the recipe says.

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


def check_environment(run, before, facts, allow, say):
    """Refuses, or with `allow` announces, conditions under which the numbers would differ from the run so far."""
    changed = [] if before is None else environment.differences(before["environment"], facts)
    if changed and not allow:
        raise BadInput(
            f"{run.path}: was begun under other conditions ({'; '.join(changed)}), so its numbers would "
            "not be those of an uninterrupted run; continue all the same with --allow_other_machine"
        )
    for line in changed:
        say(f"note: {line}")


def cut_metrics(run, before, say):
    """Cuts the metrics back to what the sealed state saw.

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
    kept = data[: before["metrics"]["bytes"]]
    if hashlib.sha256(kept).hexdigest() != before["metrics"]["sha256"]:
        raise files.Damaged(
            f"{run.metrics}: a row up to round {before['round']} was changed, is damaged or missing; "
            "put the file back from a copy, or delete it to go on without these rows"
        )
    if len(kept) < len(data):
        files.write_atomic(run.metrics, kept)


def write_copies(run, recipe, facts, say):
    """Brings `recipe.yaml` and `environment.json` up to what now holds."""
    environment.save(run.environment, facts)
    try:
        stored = run.read_recipe() if run.started else None
        edited = stored is not None and bool(difference(stored, recipe.source))
    except BadInput:
        stored, edited = None, True
    if edited:
        say(f"note: {run.recipe} was changed or damaged; it is written again")
    if stored != recipe.source:
        # It comes last of the first files: a folder without it, and without sealed rounds, counts as not begun.
        files.write_atomic(run.recipe, recipe.source.encode())


def best_there(run, best, say):
    """The best evaluation so far, or nothing if its state is damaged or gone: a later one shall take its place."""
    if not best:
        return best
    try:
        found = sealed.load_newest(run.best)
        problem = None if found is not None and found.round >= best["round"] else f"{run.best}: lacks it"
    except BadInput as damage:
        problem = str(damage)
    if problem is None:
        return best
    say(
        f"note: the best state so far, of round {best['round']}, is lost ({problem}); the best of the rounds to come "
        "takes its place"
    )
    return {}
