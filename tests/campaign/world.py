"""Environment of the trials: separate folders, undisturbed runs, and the checks after every start."""

import functools
import json
import shutil
from collections.abc import Iterable
from pathlib import Path

import programs

from campaign import faults
from campaign.cases import CASES

# Modules that a program with its working folder on the import path would import.
CANARIES = ("yaml", "absl", "numpy", "random", "json", "typing", "tensorflow", "keras", "hetero_tf", "sitecustomize")
# Exit codes of the program: done, bad input, disk, memory, locked, non-finite.
CODES = (0, 2, 3, 4, 5, 6)
# Limit in seconds for a start of the program, on a busy machine.
SECONDS = 120


class Failed(Exception):
    """A failed trial: the program broke a guarantee."""


def is_sentence(text):
    """True if an error is one printable line, optionally with the line of a recipe and a mark below it."""
    lines = text.split("\n")
    marked = len(lines) == 3 and lines[2].strip() == "^"
    return bool(text.strip()) and (len(lines) == 1 or marked) and all(line.isprintable() for line in lines)


def newest(contents):
    """Contents of a run folder without its older checkpoints, which are unused if the newest one is complete.

    A kill between the last save and the deletion of the oldest checkpoint leaves one more than usual.
    """
    older = sorted(name for name in contents if name.startswith("checkpoints"))[:-1]
    return {name: value for name, value in contents.items() if name not in older}


class World:
    """Folders and helper process of a campaign.

    Args:
        folder: Folder of the campaign.
        cases: Names in `CASES` to draw from.

    Attributes:
        here: Working folder of every start; it has a module with each name of `CANARIES`.
    """

    def __init__(self, folder, cases=tuple(CASES)):
        self.folder, self.here, self.count, self.cases = Path(folder), Path(folder) / "here", 0, cases
        self.here.mkdir()
        self.canary = self.folder / "EXECUTED"
        for name in CANARIES:
            (self.here / f"{name}.py").write_text(f"open({str(self.canary)!r}, 'w')\n")
        self.programs = programs.Programs(self.folder)
        self.recipes = {
            name: programs.recipe_file(self.folder, text, f"{n}.yaml")
            for n, (name, (text, _)) in enumerate(CASES.items())
        }
        self._outside = self._listing()

    def fresh(self):
        """Path of a new run folder, which does not exist yet."""
        self.count += 1
        return self.folder / "runs" / str(self.count)

    def start(self, case, folder, *more, recipe=None, **options):
        """Start the training of a case in a folder; more: further arguments; recipe: another copy of its file."""
        options = {"cwd": self.here, **options}
        settings = [f"--set={override}" for override in CASES[case][1]]
        recipe = self.recipes[case] if recipe is None else recipe
        return self.programs.start("--recipe", recipe, *settings, "--run_dir", folder, *more, **options)

    def train(self, case, folder, *more, **options):
        """Train a case to its end and check the exit."""
        return self.proper(self.start(case, folder, *more, **options))

    def command(self, *arguments, **options):
        """Run any command to its end and check the exit."""
        return self.proper(self.programs.start(*arguments, cwd=self.here, **options))

    def proper(self, run, codes: Iterable[int] = CODES):
        """Wait for a run, check its exit code and that an error is one message, and return the run."""
        code = run.wait()
        message = run.err.strip()
        if code not in codes:
            raise Failed(f"exit code {code}: {message[-400:]}")
        if "Traceback" in run.err + run.out or "defect" in run.err:
            raise Failed(f"a defect: {message[-400:]}")
        if code and not (message.startswith("hetero_tf: ") and is_sentence(message)):
            raise Failed(f"exit code {code} without one sentence: {message[-400:]!r}")
        return run

    def soon(self, run, details):
        """Wait for a run within a time limit and check its exit; a failure includes the details."""
        try:
            run.until(lambda: not run.alive(), SECONDS)
            return self.proper(run)
        except (AssertionError, Failed) as problem:
            if run.code is None:
                run.kill().wait()
            raise Failed(f"{problem}\n{details}") from problem

    @functools.cache  # noqa: B019
    def unbroken(self, case):
        """(contents, number of file operations, folder) of an undisturbed run of the case."""
        folder, log = self.fresh(), self.folder / f"operations {case}"
        run = self.train(case, folder, faults={"root": str(folder), "at": 0, "how": "", "log": str(log)})
        if run.code:
            raise Failed(f"{case} does not run: {run.err}")
        return programs.contents(folder), faults.operations(log), folder

    def faulty(self, case, folder, at, how):
        """Start a training with a file operation that fails or kills it; see `faults.Faults`."""
        log = self.folder / "log"
        log.unlink(missing_ok=True)
        return self.start(case, folder, faults={"root": str(folder), "at": at, "how": how, "log": str(log)})

    def expect_same_end(self, case, folder, *more):
        """Check that the same command ends with the bits of an undisturbed run and reports no damage."""
        run = self.train(case, folder, *more)
        if run.code:
            raise Failed(f"does not resume: {run.err}")
        if newest(programs.contents(folder)) != newest(self.unbroken(case)[0]):
            raise Failed("other results than without an interruption")
        if "skipped" in run.out:
            raise Failed(f"a round was damaged: {run.out}")
        # The next export deletes the draft of a killed export.
        exports = folder / "export"
        left = [path.name for path in folder.rglob(".*") if exports not in path.parents]
        if left:
            raise Failed(f"left behind: {left}")

    def drop(self, folder):
        """Delete a run folder of a trial."""
        shutil.rmtree(folder, ignore_errors=True)

    def check(self):
        """Check that no planted module ran and that no file was written outside the run folders."""
        if self.canary.exists():
            raise Failed("a module of the working folder was executed")
        if self._listing() != self._outside:
            raise Failed(f"written outside of the run folder: {sorted(set(self._listing()) - set(self._outside))}")

    def _listing(self):
        return sorted(str(path) for path in self.here.rglob("*"))

    def close(self):
        """End the helper process."""
        self.programs.close()


def rows(folder):
    """Rows of metrics.jsonl."""
    try:
        return [json.loads(line) for line in (folder / "metrics.jsonl").read_bytes().splitlines()]
    except FileNotFoundError:
        return []
