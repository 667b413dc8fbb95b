"""The folder of a sweep: its definition, its log, and a folder for each run.

A folder belongs to one sweep, which may grow by runs, values, seeds or rounds. A sweep that lacks an earlier run, or
changes its recipe, is refused.
"""

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from hetero_tf.base import files
from hetero_tf.base.errors import InputError
from hetero_tf.recipe import changed_keys
from hetero_tf.recipe.recipe_files import LARGEST_FILE
from hetero_tf.runs.run_folder import SWEEP
from hetero_tf.sweeps import definition
from hetero_tf.sweeps.definition import SweepRun, expand

LOCK = "sweep.lock"


@dataclass(frozen=True)
class SweepFolder:
    """The paths of a sweep. Creating an object does not access the disk."""

    path: Path

    @property
    def definition_file(self) -> Path:
        """The definition of the sweep, which `sweep` reads again."""
        return self.path / SWEEP

    @property
    def log(self) -> Path:
        """The log of the console output."""
        return self.path / "log.txt"

    def of(self, run: SweepRun) -> Path:
        """Return the folder of a run."""
        return self.path / run.name

    @contextlib.contextmanager
    def lock(self, notify: Callable[[str], None]) -> Iterator[None]:
        """Create the folder if needed, and lock its definition during the block; wait for another sweep's block."""
        with files.disk_errors(self.path, "look at"):
            # In this order: another sweep may create the folder in between.
            exists, is_folder = os.path.lexists(self.path), self.path.is_dir()
            names = os.listdir(self.path) if is_folder else []
        if exists and not is_folder:
            raise InputError(f"{self.path}: is not a folder; choose another one by --run_dir")
        if names and self.definition_file.name not in names and LOCK not in names:
            raise InputError(
                f"{self.path}: contains other files ({', '.join(sorted(names)[:3])}) and no sweep; choose an empty or "
                "new folder by --run_dir"
            )
        with files.disk_errors(self.path, "create"):
            self.path.mkdir(parents=True, exist_ok=True)
        with files.hold_lock(self.path / LOCK, notify):
            yield

    def check(self, runs: Sequence[SweepRun]) -> None:
        """Refuse a sweep that neither equals nor extends the sweep of the folder."""
        if not os.path.lexists(self.definition_file):
            return
        label = str(self.definition_file)
        text = files.decode(files.read_bytes(label, LARGEST_FILE), label)
        runs_by_name = {run.name: run for run in runs}
        for run in expand(definition.reads(text, label), label):
            if run.name not in runs_by_name:
                reason = f"its run {run.name} is missing in the new one"
            elif runs_by_name[run.name].recipe.source != run.recipe.source and (
                changed := changed_keys(run.recipe.source, runs_by_name[run.name].recipe.source)
            ):
                reason = f"its run {run.name} has another recipe: {'; '.join(changed)}"
            else:
                continue
            raise InputError(
                f"{self.path}: contains another sweep ({reason}); a sweep may only grow by runs, seeds and rounds. "
                "Choose another folder by --run_dir"
            )

    def write_definition(self, parts: Sequence[definition.SweepPart], notify: Callable[[str], None]) -> None:
        """Write the definition if it has changed."""
        content = definition.to_yaml(parts).encode()
        if os.path.lexists(self.definition_file):
            if files.read_bytes(self.definition_file, LARGEST_FILE) == content:
                return
            notify(f"note: {self.definition_file} was extended")
        files.write_atomic(self.definition_file, content)
