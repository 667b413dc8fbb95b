"""Runs a page of `docs/` as its reader would: writes the files that it shows, runs its commands, compares the output.

A fenced block of a page is one of these:

    ```python title="windows.py"    a file, written to the working folder
    ```sh                           commands that run in order; `\\` continues a line, ` &` starts a server
    ```text                         lines that the commands before print, apart from most numbers; `...` stands for any
    ```bash                         commands for other machines, which are only parsed
"""

import atexit
import functools
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import programs

FENCE = re.compile(r'^```(\w+)(?: title="([^"]+)")?[^\n]*\n(.*?)^```$', re.MULTILINE | re.DOTALL)
PATH = re.compile(r"(?:\S*python\S* -m |/\S*/bin/|(?<![\w/.-]))hetero_tf\b(?= )")
PROGRAM = re.compile(r"^bin/hetero_tf ")
# A training that depends on no file of the page: of a shipped recipe, in the folder that has its name.
FIRST_RUN = re.compile(r"^bin/hetero_tf --recipe (\w+)(?: --set rounds=\d+)?$")
# The traffic of a run does not depend on the machine.
NUMBER = re.compile(r"(traffic \S+)|\d+(?:[.,:]\d+)*")
# A slow machine counts minutes where a page shows seconds.
DURATION = re.compile(r"# (?:s|min|h)\b")


@functools.cache
def first_run(line: str) -> tuple[programs.Run, Path]:
    """Run a training of a shipped recipe once for all pages; return it and its working folder."""
    folder = tempfile.TemporaryDirectory()
    atexit.register(folder.cleanup)
    return run_program(line, Path(folder.name)), Path(folder.name)


def run_program(line: str, folder: Path) -> programs.Run:
    """Run a command of the program in a folder; it must succeed."""
    command, _, file = PROGRAM.sub("", line).partition(" > ")
    run = programs.shared().run(*shlex.split(command, comments=True), cwd=folder)
    assert run.code == 0, (line, run.out[-2000:], run.err[-2000:])
    if file:
        (folder / file).write_text(run.out)
    return run


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, the name of its file if it is one, and its text."""

    language: str
    title: str
    text: str


def blocks(page: Path) -> list[Block]:
    """Return the fenced blocks of a page in order."""
    return [Block(*groups) for groups in FENCE.findall(page.read_text("utf-8"))]


def commands(block: Block) -> list[str]:
    """Return the commands of a block, with continued lines joined."""
    lines = block.text.replace("\\\n", " ").splitlines()
    return [line for line in lines if line.strip() and not line.startswith("#")]


def program_flags(page: Path) -> set[str]:
    """Return the names of all flags that commands of the program have on a page."""
    lines = [line for block in blocks(page) if block.language in ("sh", "bash") for line in commands(block)]
    ours = " ".join(line for line in lines if "hetero_tf" in line)
    return set(re.findall(r"(?<![\w-])--([a-z_]+)(?![\w-])", ours))


def pattern(line: str) -> str:
    """Return a printed line without its numbers, units of time, spacing, and the path of the program."""
    return " ".join(
        DURATION.sub("# s", NUMBER.sub(lambda match: match[1] or "#", PATH.sub("bin/hetero_tf", line))).split()
    )


class Reader:
    """Follows a page in a working folder."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.servers: list[programs.Run] = []
        self.printed = ""

    def follow(self, page: Path) -> None:
        """Write the page's files, run its commands, and compare what they print; stop its servers."""
        try:
            for block in blocks(page):
                if block.title:
                    (self.folder / block.title).write_text(block.text, "utf-8")
                elif block.language == "sh":
                    self.printed = "".join(self.run(line) for line in commands(block))
                elif block.language == "text":
                    self.compare(block.text)
        finally:
            for server in self.servers:
                server.kill(signal.SIGTERM).wait()

    def run(self, line: str) -> str:
        """Run a command and return what it prints; it must succeed."""
        if line.endswith(" &"):
            words = shlex.split(PROGRAM.sub("", line.removesuffix(" &")), comments=True)
            server = programs.shared().start(*words, cwd=self.folder)
            self.servers.append(server)
            assert server.until(lambda: "Serving at" in server.out), (line, server.err)
            return server.out
        if PROGRAM.match(line):
            if FIRST_RUN.match(line) and not (self.folder / "runs").exists():
                run, folder = first_run(line)
                shutil.copytree(folder, self.folder, symlinks=True, dirs_exist_ok=True)
            else:
                run = run_program(line, self.folder)
            return run.out + run.err
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        done = subprocess.run(
            ["sh", "-c", line],
            cwd=self.folder,
            env=programs.environment(PATH=path),
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == 0, (line, done.stdout, done.stderr)
        return done.stdout

    def compare(self, expected: str) -> None:
        """Assert that the commands before printed these lines, apart from numbers."""
        printed = [pattern(line) for line in self.printed.splitlines()]
        for line in expected.splitlines():
            start, dots, _ = pattern(line).partition("...")
            if start.strip():
                same = [text for text in printed if text == start or (dots and text.startswith(start.strip()))]
                assert same, f"{line!r} is not in the output:\n{self.printed}"
