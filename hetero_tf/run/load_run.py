"""Loads a run folder: the learning process of its recipe on its data and partition, and one of its states."""

from collections.abc import Callable
from pathlib import Path

from hetero_tf.base import hardware
from hetero_tf.base.errors import InputError, NotBuilt
from hetero_tf.recipe import Recipe
from hetero_tf.run import best, resume
from hetero_tf.run.checkpoint import LoadedState, open_newest
from hetero_tf.run.experiment import Settings, build_described_process, build_process
from hetero_tf.run.learning_process import LearningProcess, State
from hetero_tf.runs import facts
from hetero_tf.runs.run_folder import RunFolder

STATES = ("best", "last")


def open_state(
    recipe: Recipe, settings: Settings, which: str, say: Callable[[str], None], described: bool = False
) -> tuple[LearningProcess, LoadedState]:
    """Return the process of a run folder and one of its states, without writing to it.

    Args:
        recipe: The recipe of the folder, with overrides that a run may change.
        settings: The folder, the data and the threads.
        which: "best" or "last".
        say: Receives a message for each damaged newer state.
        described: Use the folder's description of the data instead of the data, see
            `experiment.build_described_process`.

    Raises:
        NotBuilt: The data are missing, or are not those of the run.
        InputError: The folder has no checkpoint yet, or the state is damaged or of another run.
    """
    run = RunFolder(settings.run_dir)
    # Read it before the state: a running training saves the best state first.
    newest = facts.newest(run)
    folder = run.best if which == "best" else run.checkpoints
    try:
        process = (build_described_process if described else build_process)(recipe, settings, run)
    except InputError as problem:
        raise NotBuilt(str(problem)) from problem
    loaded = open_newest(folder, process)
    if loaded is None:
        also = " or choose --state last" if which == "best" and run.checkpoints.exists() else ""
        raise InputError(f"{folder}: holds no finished round yet; train first{also}")
    state_facts = facts.from_checkpoint(loaded.checkpoint, folder)
    resume.check_stored_recipe(run, newest or state_facts)
    if which == "best":
        best.require(run, state_facts, newest)
    for message in loaded.skipped:
        say(f"skipped: {message}")
    return process, loaded


def load_run(
    path: str | Path, state: str = "best", data_dir: str | Path | None = None, threads: int | None = None
) -> tuple[LearningProcess, State]:
    """Read a state of a run folder; see `hetero_tf.load_run`."""
    if state not in STATES:
        raise InputError(f"`state` must be one of {', '.join(STATES)}. Received: state={state!r}")
    run = RunFolder(Path(path))
    recipe = facts.load_recipe(run)
    folder = None if data_dir is None else Path(data_dir)
    settings = Settings(run.path, folder, threads or hardware.core_count(), False, "")
    process, loaded = open_state(recipe, settings, state, lambda message: None)
    return process, loaded.state
