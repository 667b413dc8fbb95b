"""The folder of one run: where each thing lies, who may write, and when it counts as started.

A folder counts as started once it holds `recipe.yaml`, which is written last of the first files and in one step.
A folder without it, left by a kill during the first second, is simply started again.
"""

import contextlib
import fcntl
import os
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from hetero_tf.base import files, folders
from hetero_tf.base.errors import InputError, Locked
from hetero_tf.store import checkpoints as sealed

LOCK = "run.lock"
RECIPE = "recipe.yaml"
# The definition of a sweep, in the folder of its runs.
SWEEP = "sweep.yaml"
RECIPE_LIMIT = 2**24
# What killed programs leave beside the files of a run; the first version wrote `.partition.npz.PROCESS`.
_LEFT = re.compile(
    r"\.tmp-(?:recipe\.yaml|environment\.json|costs\.json|data\.json|metrics\.jsonl|partition\.npz|README\.txt)(?:\.[0-9]+)?"
    r"|\.partition\.npz\.[0-9]+"
)


def _inside(name, doc):
    return property(lambda folder: folder.path / name, doc=doc)


@dataclass(frozen=True)
class RunFolder:
    """The paths of a run. Making one neither reads nor writes the disk."""

    path: Path

    recipe = _inside(RECIPE, "The resolved recipe (YAML).")
    checkpoints = _inside("checkpoints", "Sealed folders of the latest rounds.")
    best = _inside("best", "Sealed folder of the best round so far.")
    metrics = _inside("metrics.jsonl", "One row a line.")
    timings = _inside("timings.jsonl", "How long training took, one call of the compiled round a line.")
    environment = _inside("environment.json", "What bit-equality depends on.")
    costs = _inside("costs.json", "What a client of each level costs.")
    partition = _inside("partition.npz", "The split of the data over clients.")
    data = _inside("data.json", "Shape, classes, words and columns of the data, without examples.")
    log = _inside("log.txt", "What the terminal said.")
    readme = _inside("README.txt", "What lies in the folder, for a person.")
    export = _inside("export", "SavedModels for serving, LEVEL/VERSION.")

    def __post_init__(self):
        object.__setattr__(self, "path", Path(self.path))

    @property
    def started(self) -> bool:
        """Whether `recipe.yaml` is there, so that a run is resumed instead of begun."""
        return os.path.isfile(self.recipe)

    def read_recipe(self) -> str:
        """Returns the recipe's text; the run may be finished or running.

        Raises:
            InputError: The folder holds no run, or the file is damaged.
        """
        self.check_started()
        return files.decode(files.read_bytes(self.recipe, RECIPE_LIMIT), self.recipe)

    def check_started(self) -> None:
        """Raises `InputError` if the folder holds no run."""
        if not self.started:
            raise InputError(f"{self.path}: is not a run folder, it has no {RECIPE}; name one that `train` wrote")

    def check_places(self) -> None:
        """Refuses links, pipes, devices and the like where the run writes its files and folders.

        The run folder itself may be a link: a person made it, and all that is written lies in the folder behind it.

        Raises:
            InputError: The sentence names the first one.
        """
        written = (
            self.recipe,
            self.metrics,
            self.timings,
            self.environment,
            self.costs,
            self.partition,
            self.data,
            self.log,
        )
        for path in (self.path / LOCK, self.readme, *written):
            files.check_place(path)
        for path in (self.checkpoints, self.best):
            files.check_place(path, folder=True)

    @property
    def holder(self) -> int | None:
        """Id of the process that works on the folder, None where nobody does; nothing is written."""
        with contextlib.suppress(OSError), open(os.open(self.path / LOCK, os.O_RDONLY | files.GUARDED), "rb") as file:
            text = file.read(20).strip()
            # A lock is only tried where somebody may hold it: trying it might turn away a program that just starts.
            if text.isdigit() and folders.alive(int(text)):
                try:
                    fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
                except BlockingIOError:
                    return int(text)
        return None

    @contextlib.contextmanager
    def lock(self) -> Iterator["RunFolder"]:
        """Makes the folder if needed and locks it for this process; the system frees it however the process ends.

        Raises:
            InputError: The path is a file or a folder with other contents, or a file of the run has another type.
                Nothing was written.
            DiskProblem: The folder cannot be made or written. Nothing was written.
            Locked: Another process holds it; the sentence names its process id.
        """
        self._refuse_foreign()
        self.check_places()
        with files.disk(self.path, "create"):
            self.path.mkdir(parents=True, exist_ok=True)
        descriptor = self._take()
        try:
            folders.sweep(self.path, _LEFT)
            for folder in (self.checkpoints, self.best):
                sealed.sweep(folder)
            yield self
        finally:
            os.close(descriptor)

    def _refuse_foreign(self):
        with files.disk(self.path, "look at"):
            # In this order, since another run may make the folder in between.
            there, folder = os.path.lexists(self.path), self.path.is_dir()
            names = os.listdir(self.path) if folder else []
            if there and not folder:
                what = "a file" if self.path.exists() else "a link that leads nowhere"
                raise InputError(f"{self.path}: is {what}, not a folder; choose another run folder")
        if names and LOCK not in names and not {RECIPE, "checkpoints"} <= set(names):
            raise InputError(
                f"{self.path}: holds other things ({', '.join(sorted(names)[:3])}) and no run; "
                "choose an empty or new run folder"
            )

    def _take(self):
        path = self.path / LOCK
        descriptor = files.open_in_place(path, os.O_RDWR, "lock")
        with files.disk(path, "lock"):
            try:
                files.lock(descriptor, path, wait=False)
                os.ftruncate(descriptor, 0)
                os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
            except BlockingIOError as error:
                holder = _holder(descriptor)
                os.close(descriptor)
                raise Locked(
                    f"{self.path}: process {holder} works on this run folder; wait for it, "
                    "stop it, or choose another folder"
                ) from error
            except BaseException:
                os.close(descriptor)
                raise
        return descriptor


def _holder(descriptor):
    """Process id in the lock file. The holder writes it just after it got the lock, so a dead one is read again.

    On a busy machine seconds may lie between the two.
    """
    for _ in range(1000):
        text = os.pread(descriptor, 20, 0).strip()
        if text.isdigit() and folders.alive(int(text)):
            return int(text)
        time.sleep(0.01)
    return text.decode(errors="replace") or "unknown"
