"""The folder of a sweep: its definition, its log, and a folder for each run.

A folder keeps one sweep. It may grow: more runs, values, seeds or rounds go on in it. A sweep that lacks a run of the
former one, or has another recipe for it, is another sweep and is refused.
"""

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from hetero_tf.base import files
from hetero_tf.base.errors import InputError, Locked
from hetero_tf.recipe import changed_keys
from hetero_tf.recipe.recipe_files import LARGEST_FILE
from hetero_tf.store.run_folder import SWEEP
from hetero_tf.sweeps import definition
from hetero_tf.sweeps.expansion import Run, expand


@dataclass(frozen=True)
class SweepFolder:
    """The paths of a sweep. Making one neither reads nor writes the disk."""

    path: Path

    @property
    def kept(self) -> Path:
        """The sweep, which `sweep` reads again."""
        return self.path / SWEEP

    @property
    def log(self) -> Path:
        """What the terminal said."""
        return self.path / "log.txt"

    def of(self, run: Run) -> Path:
        """The folder of a run."""
        return self.path / run.name

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Makes the folder if needed and locks it for this process, however that ends.

        Raises:
            InputError: It holds other things and no sweep.
            Locked: Another sweep works in it.
            DiskProblem: The system refused.
        """
        with files.disk(self.path, "look at"):
            names = os.listdir(self.path) if self.path.is_dir() else []
        if not self.path.is_dir() and os.path.lexists(self.path):
            raise InputError(f"{self.path}: is not a folder; choose another one by --run_dir")
        if names and self.kept.name not in names and "sweep.lock" not in names:
            raise InputError(
                f"{self.path}: holds other things ({', '.join(sorted(names)[:3])}) and no sweep; choose an empty or "
                "new folder by --run_dir"
            )
        with files.disk(self.path, "create"):
            self.path.mkdir(parents=True, exist_ok=True)
        descriptor = files.open_in_place(self.path / "sweep.lock", os.O_RDWR, "lock")
        try:
            files.lock(descriptor, self.path / "sweep.lock", wait=False)
            yield
        except BlockingIOError as error:
            raise Locked(
                f"{self.path}: another sweep works in this folder; wait for it or choose another one"
            ) from error
        finally:
            os.close(descriptor)

    def check(self, runs: Sequence[Run]) -> None:
        """Refuses a sweep that is not the folder's own, nor that with more in it.

        Raises:
            InputError: The sentence names the first run that differs.
        """
        if not os.path.lexists(self.kept):
            return
        text = files.decode(files.read_bytes(self.kept, LARGEST_FILE), self.kept)
        now = {run.name: run for run in runs}
        for run in expand(definition.reads(text, str(self.kept)), str(self.kept)):
            if run.name not in now:
                reason = f"its run {run.name} is not in this one"
            elif now[run.name].recipe.source != run.recipe.source and (
                changed := changed_keys(run.recipe.source, now[run.name].recipe.source)
            ):
                reason = f"its run {run.name} has another recipe: {'; '.join(changed)}"
            else:
                continue
            raise InputError(
                f"{self.path}: holds another sweep ({reason}); a sweep may grow by runs, seeds and rounds, else choose "
                "another folder by --run_dir"
            )

    def keep(self, parts: Sequence[definition.Part], say: Callable[[str], None]) -> None:
        """Writes the definition, if it is another one than before."""
        content = definition.text_of(parts).encode()
        if os.path.lexists(self.kept):
            if files.read_bytes(self.kept, LARGEST_FILE) == content:
                return
            say(f"note: {self.kept} has grown")
        files.write_atomic(self.kept, content)
