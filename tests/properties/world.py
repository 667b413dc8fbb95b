"""Starts of the program in its own folders, beside modules of well-known names, and the checks of their end."""

import functools

import programs
from run_cases import CASES

# Modules that a program with its working folder on the import path would import.
PLANTED = ("yaml", "absl", "numpy", "random", "json", "typing", "tensorflow", "keras", "hetero_tf", "sitecustomize")
# Exit codes of the program: done, bad input, disk, memory, locked, non-finite.
CODES = (0, 2, 3, 4, 5, 6)


def assert_sentences(text):
    """Check that an error is one printable line, or several errors of a recipe, each with its line and a mark below."""
    lines = text.split("\n")
    marked = {number for index, line in enumerate(lines) if line.strip() == "^" for number in (index - 1, index)}
    messages = [line for index, line in enumerate(lines) if index not in marked]
    assert all(line.isprintable() for line in lines) and messages[0].strip(), repr(text)
    assert len(messages) == 1 or messages[0].endswith(" errors"), repr(text)


def newest(folder):
    """Contents of a run folder without its older checkpoints.

    A kill between the last save and the deletion of the oldest checkpoint leaves one more than usual.
    """
    contents = programs.contents(folder)
    last = max((name.partition("/")[0] for name in contents if name != "metrics"), default="metrics")
    return {name: value for name, value in contents.items() if name.startswith((last, "metrics"))}


class World:
    """Run folders, and starts of the program beside modules with well-known names.

    Attributes:
        folder: Folder of all run folders.
        here: Working folder of every start.
    """

    def __init__(self, folder):
        self.folder, self.here, self.count = folder, folder / "here", 0
        self.here.mkdir()
        for name in PLANTED:
            (self.here / f"{name}.py").write_text(f"open({str(folder / 'EXECUTED')!r}, 'w')\n")
        self.planted = sorted(self.here.rglob("*"))

    def new_folder(self):
        self.count += 1
        return self.folder / "runs" / str(self.count)

    @functools.cache  # noqa: B019
    def recipe(self, case):
        return programs.recipe_file(self.folder, CASES[case][0], f"{list(CASES).index(case)}.yaml")

    def start(self, case, folder, *more, fault=None, **options):
        """Start the training of a case; `fault`: number of a file operation and what happens to it."""
        if fault:
            log = self.folder / "operations"
            log.unlink(missing_ok=True)
            options["faults"] = {"root": str(folder), "at": fault[0], "how": fault[1], "log": str(log)}
        words = ["--recipe", options.pop("recipe", self.recipe(case)), *(f"--set={each}" for each in CASES[case][1])]
        return programs.shared().start(*words, "--run_dir", folder, *more, **{"cwd": self.here, **options})

    def finish(self, run, codes=CODES):
        """Wait for the end of a start: a known exit code, one message at most, no file outside of the run folder."""
        run.until(lambda: not run.alive())
        code, message = run.wait(), run.err.strip()
        assert code in codes, message
        assert "Traceback" not in run.err + run.out and "defect" not in run.err, message
        if code:
            assert message.startswith("hetero_tf: "), message
            assert_sentences(message)
        assert not (self.folder / "EXECUTED").exists(), "a module of the working folder was executed"
        assert sorted(self.here.rglob("*")) == self.planted
        return run

    def run(self, *words, codes=CODES):
        return self.finish(programs.shared().start(*words, cwd=self.here), codes)

    @functools.cache  # noqa: B019
    def undisturbed(self, case):
        """(folder, number of file operations) of a run without faults."""
        folder = self.new_folder()
        self.finish(self.start(case, folder, fault=(0, "")), (0,))
        return folder, (self.folder / "operations").stat().st_size

    def assert_same_end(self, case, folder, **options):
        """The same command ends with the bits of an undisturbed run, reports no damage and leaves no temporary file."""
        run = self.finish(self.start(case, folder, **options), (0,))
        assert newest(folder) == newest(self.undisturbed(case)[0])
        assert "skipped" not in run.out
        assert [path for path in folder.rglob(".*") if folder / "export" not in path.parents] == []
