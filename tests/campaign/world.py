"""Where trials take place: folders of their own, what unbroken runs leave, and what must hold after every start."""

import functools
import json
import shutil
from collections.abc import Iterable
from pathlib import Path

import programs

from campaign import faults
from campaign.cases import CASES

# Modules that a program which looks into its working folder would import.
CANARIES = ("yaml", "absl", "numpy", "random", "json", "typing", "tensorflow", "keras", "hetero_tf", "sitecustomize")
# Exit codes of the program: done, bad input, disk, memory, locked, non-finite.
CODES = (0, 2, 3, 4, 5, 6)
# So long may a start of the program take, on a busy machine.
SECONDS = 120


class Failed(Exception):
    """What a trial found: the program did what it must never do."""


def is_sentence(said):
    """Whether a refusal is one printable line, or one and then the line of a recipe with a mark below it."""
    lines = said.split("\n")
    marked = len(lines) == 3 and lines[2].strip() == "^"
    return bool(said.strip()) and (len(lines) == 1 or marked) and all(line.isprintable() for line in lines)


def newest(contents):
    """The contents of a run folder without its older checkpoints, which nobody reads while the newest one is whole.

    One more than usual stays where a kill came between the last seal and the removal of what it made needless.
    """
    older = sorted(name for name in contents if name.startswith("checkpoints"))[:-1]
    return {name: value for name, value in contents.items() if name not in older}


class World:
    """One campaign's folders and its helper process.

    Args:
        folder: A folder that belongs to the campaign.
        cases: Names in `CASES` to draw from.

    Attributes:
        here: The working folder of every start; it holds a module under each name of `CANARIES`.
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
        """The path of a run folder that is not there yet."""
        self.count += 1
        return self.folder / "runs" / str(self.count)

    def start(self, case, folder, *more, recipe=None, **options):
        """Starts the training of a case in a folder; more: further arguments; recipe: another copy of its file."""
        options = {"cwd": self.here, **options}
        settings = [f"--set={override}" for override in CASES[case][1]]
        recipe = self.recipes[case] if recipe is None else recipe
        return self.programs.start("--recipe", recipe, *settings, "--run_dir", folder, *more, **options)

    def train(self, case, folder, *more, **options):
        """The same to its end, which must be a proper one."""
        return self.proper(self.start(case, folder, *more, **options))

    def command(self, *arguments, **options):
        """Runs any command to its end, which must be a proper one."""
        return self.proper(self.programs.start(*arguments, cwd=self.here, **options))

    def proper(self, run, codes: Iterable[int] = CODES):
        """The run, once it has ended as it may: an exit code of the program, and one sentence if it is not 0."""
        code = run.wait()
        said = run.err.strip()
        if code not in codes:
            raise Failed(f"exit code {code}: {said[-400:]}")
        if "Traceback" in run.err + run.out or "defect" in run.err:
            raise Failed(f"a defect: {said[-400:]}")
        if code and not (said.startswith("hetero_tf: ") and is_sentence(said)):
            raise Failed(f"exit code {code} without one sentence: {said[-400:]!r}")
        return run

    def soon(self, run, given):
        """The run, once it has ended properly; a failure tells what was given, also where it takes too long."""
        try:
            run.until(lambda: not run.alive(), SECONDS)
            return self.proper(run)
        except (AssertionError, Failed) as problem:
            if run.code is None:
                run.kill().wait()
            raise Failed(f"{problem}\n{given}") from problem

    @functools.cache  # noqa: B019
    def unbroken(self, case):
        """(contents, operations on files, folder) of a run of the case that nothing disturbed."""
        folder, log = self.fresh(), self.folder / f"operations {case}"
        run = self.train(case, folder, faults={"root": str(folder), "at": 0, "how": "", "log": str(log)})
        if run.code:
            raise Failed(f"{case} does not run: {run.err}")
        return programs.contents(folder), faults.operations(log), folder

    def faulty(self, case, folder, at, how):
        """A start one of whose operations on files fails or kills it; see `faults.Faults`."""
        log = self.folder / "log"
        log.unlink(missing_ok=True)
        return self.start(case, folder, faults={"root": str(folder), "at": at, "how": how, "log": str(log)})

    def expect_same_end(self, case, folder, *more):
        """The same command again ends with the bits of an unbroken run, and says nothing of damage."""
        run = self.train(case, folder, *more)
        if run.code:
            raise Failed(f"does not go on: {run.err}")
        if newest(programs.contents(folder)) != newest(self.unbroken(case)[0]):
            raise Failed("other results than without an interruption")
        if "skipped" in run.out:
            raise Failed(f"a round was torn: {run.out}")
        # A draft of a killed export goes with the next export.
        exports = folder / "export"
        left = [path.name for path in folder.rglob(".*") if exports not in path.parents]
        if left:
            raise Failed(f"left behind: {left}")

    def drop(self, folder):
        """Removes a run folder of a trial."""
        shutil.rmtree(folder, ignore_errors=True)

    def check(self):
        """Nothing was executed, and nothing was written outside of the run folders."""
        if self.canary.exists():
            raise Failed("a module of the working folder was executed")
        if self._listing() != self._outside:
            raise Failed(f"written outside of the run folder: {sorted(set(self._listing()) - set(self._outside))}")

    def _listing(self):
        return sorted(str(path) for path in self.here.rglob("*"))

    def close(self):
        """Ends the helper process."""
        self.programs.close()


def rows(folder):
    """The rows of metrics.jsonl."""
    try:
        return [json.loads(line) for line in (folder / "metrics.jsonl").read_bytes().splitlines()]
    except FileNotFoundError:
        return []
