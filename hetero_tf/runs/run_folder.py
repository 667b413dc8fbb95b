"""The folder of one run: its layout, its lock, and its start.

A run counts as started once its folder holds `recipe.yaml`, which is written last and atomically. A folder without
it, left by a kill during the first second, is started again.
"""

import contextlib
import fcntl
import os
import platform
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from hetero_tf.base import files
from hetero_tf.base.errors import InputError, Locked
from hetero_tf.runs import checkpoints

LOCK = "run.lock"
# Bytes of the lock file: a process id, and the name of its machine.
HOLDER_LIMIT = 256
RECIPE = "recipe.yaml"
# The definition of a sweep, stored in the folder of its runs.
SWEEP = "sweep.yaml"
RECIPE_LIMIT = 2**24


class _PathProperty(property):
    """A path in a run folder, and the meaning of the file."""

    def __init__(self, name: str, meaning: str):
        super().__init__(lambda folder: folder.path / name, doc=meaning)
        self.name, self.meaning = name, meaning


@dataclass(frozen=True)
class RunFolder:
    """The paths of a run. The constructor neither reads nor writes the disk."""

    path: Path

    recipe = _PathProperty(RECIPE, "the recipe with all defaults")
    metrics = _PathProperty("metrics.jsonl", "a JSON object for each round; `hetero_tf explain NAME` explains a metric")
    checkpoints = _PathProperty("checkpoints", "the newest rounds, from which the run resumes, and the best one")
    partition = _PathProperty(
        "partition.npz", "the examples of each client; another recipe can read it (partition: {name: file})"
    )
    data = _PathProperty("data.json", "shape, classes, words and columns of the data, for `predict` and `export`")
    environment = _PathProperty("environment.json", "versions and processor, on which bit-equal results depend")
    costs = _PathProperty("costs.json", "the costs of a client of each level")
    classes = _PathProperty("classes.json", "the confusion of the classes, which `evaluate --classes` stores")
    noise = _PathProperty("noise.json", "the secret key of the noise of `privacy`; never publish it")
    trace = _PathProperty("fleet_trace.csv", "the devices of `fleet.trace`, if the recipe names one")
    fleet = _PathProperty("fleet.yaml", "the times of the devices of `flower server`, as a fleet")
    timings = _PathProperty("timings.jsonl", "the time of each part of the work")
    timeline = _PathProperty("timeline.jsonl", "the time of each client of the first rounds on the fleet")
    mlflow = _PathProperty("mlflow.json", "the id of the MLflow run of `--log mlflow`, and its last logged round")
    wandb = _PathProperty("wandb.json", "the id of the W&B run of `--log wandb`, and its last logged round")
    log = _PathProperty("log.txt", "the output of the program")
    readme = _PathProperty("README.txt", "this text")
    export = _PathProperty("export", "the models that `export` wrote")

    def __post_init__(self):
        object.__setattr__(self, "path", Path(self.path))

    @property
    def started(self) -> bool:
        """True if `recipe.yaml` exists: the run is resumed instead of started."""
        return os.path.isfile(self.recipe)

    @property
    def sweep(self) -> str:
        """Name of the sweep whose folder contains the run; "" outside of sweeps."""
        folder = self.path.absolute().parent
        return folder.name if (folder / SWEEP).is_file() else ""

    def read_recipe(self) -> str:
        """Return the text of the recipe; the run may be finished or running.

        Raises:
            InputError: The folder holds no run, or the file is damaged.
        """
        self.check_started()
        return files.decode(files.read_bytes(self.recipe, RECIPE_LIMIT), self.recipe)

    def contents(self) -> dict[str, str]:
        """Return `{file name: meaning}` of all files that a run may have."""
        return {each.name: each.meaning for each in vars(RunFolder).values() if isinstance(each, _PathProperty)}

    def check_started(self) -> None:
        """Raise `InputError` if the folder holds no run."""
        if not self.started:
            raise InputError(f"{self.path}: is not a run folder: it has no {RECIPE}; name a folder that `train` wrote")

    @property
    def holder(self) -> str | None:
        """Id of the process that holds the lock, such as "12" or "12 on node7", or None. Nothing is written."""
        with (
            contextlib.suppress(OSError),
            open(os.open(self.path / LOCK, os.O_RDONLY | files.SAFE_OPEN_FLAGS), "rb") as file,
        ):
            process = _parse_process(file.read(HOLDER_LIMIT))
            # Test the lock only if a live process may hold it: the test could make a starting process fail.
            if process is not None:
                try:
                    fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
                except BlockingIOError:
                    return process
        return None

    @contextlib.contextmanager
    def lock(self) -> Iterator["RunFolder"]:
        """Create the folder if needed and lock it for this process. The lock ends with the process.

        Raises:
            InputError: The path is a file or a folder with other contents, or a file of the run has another type.
                Nothing was written.
            DiskProblem: The folder cannot be created or written. Nothing was written.
            Locked: Another process holds the lock; the message names its process id.
        """
        files.create_folder(self.path, "run", lambda names: LOCK in names or {RECIPE, "checkpoints"} <= set(names))
        # The run folder itself may be a link to a folder.
        for name in (LOCK, *_FILES, "log.txt"):
            files.check_write_target(self.path / name)
        files.check_write_target(self.checkpoints, folder=True)
        path = self.path / LOCK

        def refuse(_):
            # The holder writes its id after it acquires the lock; on a busy machine this can take seconds.
            for _ in range(1000):
                if self.holder:
                    break
                time.sleep(0.01)
            raise Locked(
                f"{self.path}: process {self.holder or 'unknown'} works on this run folder; wait for it, "
                "stop it, or choose another folder"
            )

        with files.hold_lock(path, refuse) as descriptor:
            with files.disk_errors(path, "lock"):
                os.ftruncate(descriptor, 0)
                os.pwrite(descriptor, f"{os.getpid()} {platform.node()}\n".encode()[:HOLDER_LIMIT], 0)
            files.remove_leftovers(self.path, _LEFT)
            checkpoints.sweep(self.checkpoints)
            yield self


# Files that a run replaces atomically; it appends to its log.
_FILES = tuple(name for name in RunFolder(Path()).contents() if name not in ("checkpoints", "export", "log.txt"))
# Temporary files that killed processes leave.
_LEFT = re.compile(rf"\.tmp-(?:{'|'.join(map(re.escape, _FILES))})(?:\.[0-9]+)?")


def _parse_process(content):
    """Return the process of a lock file: "12", or "12 on node7" on another machine; None if it is dead or invalid."""
    text, _, host = content.decode(errors="replace").strip().partition(" ")
    if not text.isdecimal():
        return None
    if host and host != platform.node():
        return f"{text} on {host}"
    return text if files.is_process_alive(int(text)) else None
