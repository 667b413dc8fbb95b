"""Trials that interrupt a run or let its file operations fail; the same command then ends with the same bits."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import programs

from campaign.world import Failed

ERRORS = ("ENOSPC", "EIO", "EROFS", "EACCES", "EDQUOT", "EMFILE")
SIGNALS = ("SIGKILL", "SIGTERM", "SIGINT", "SIGHUP")
# Id of a user without files.
STRANGER = 54321


def killed_at_an_operation(world, rng):
    """Kill one to three starts before or after a file operation."""
    case, folder = rng.choice(world.cases), world.fresh()
    _, operations, _ = world.unbroken(case)
    for _ in range(rng.randint(1, 3)):
        world.faulty(case, folder, rng.randint(1, operations), rng.choice(("before", "after"))).wait()
    world.expect_same_end(case, folder)
    world.drop(folder)
    return case


def operation_fails(world, rng):
    """A file operation fails; the run ends with a message or continues without it."""
    case, folder = rng.choice(world.cases), world.fresh()
    _, operations, _ = world.unbroken(case)
    world.proper(world.faulty(case, folder, rng.randint(1, operations), rng.choice(ERRORS)), (0, 2, 3))
    world.expect_same_end(case, folder)
    world.drop(folder)
    return case


def signalled(world, rng):
    """Signals at random times, some after a pause of the process."""
    case, folder = rng.choice(world.cases), world.fresh()
    world.unbroken(case)
    for _ in range(rng.randint(1, 3)):
        run = world.start(case, folder)
        run.until(lambda: folder.exists())
        time.sleep(rng.choice((0.2, 2, 6)) * rng.random())
        if rng.random() < 0.5:
            run.kill(signal.SIGSTOP)
            time.sleep(0.2)
            run.kill(signal.SIGCONT)
        if rng.random() < 0.8:
            run.kill(getattr(signal, rng.choice(SIGNALS)))
        code = run.wait()
        if code not in (0, -9, -15, -2, -1, 129, 130, 143):
            raise Failed(f"exit code {code}: {run.err}")
        if "Traceback" in run.err or run.err.count("stopped by") > 1:
            raise Failed(run.err)
    world.expect_same_end(case, folder)
    world.drop(folder)
    return case


def odd_names(world, rng):
    """Run folder names with blanks, line breaks, quotes, bytes outside UTF-8, or very long names."""
    case = rng.choice(("heterofl", "text"))
    contents, _, _ = world.unbroken(case)
    base = world.fresh()
    base.mkdir(parents=True)
    name = rng.choice(
        ["with blanks", "line\nbreak", "'quo\"tes'", "-dash", "ünïcödé 漢字", b"\xff\xfe".decode("utf-8", "surrogateescape"),
         "x" * 255, "x" * 300, "a/" * 60 + "b", "\x1b[31mred", "%s{0}$HOME", "~"]
    )  # fmt: skip
    folder = base / name
    run = world.train(case, folder)
    if run.code == 0 and programs.contents(folder) != contents:
        raise Failed("other results under another name")
    if run.code and len(name) <= 255:
        raise Failed(f"{name!r}: {run.err}")
    shutil.rmtree(base)
    return "refused" if run.code else "trained"


def other_users(world, rng):
    """A run folder of another user: read-only files do not change, and a run with changed owner continues."""
    if os.getuid() or not may_run(STRANGER):
        return "not allowed to be another user"
    case, situation = rng.choice(world.cases), rng.choice(("to read", "closed", "no room", "handed over", "one file"))
    _, operations, _ = world.unbroken(case)
    # Not in the campaign's folder, which other users may be unable to read.
    with tempfile.TemporaryDirectory() as name:
        parent, recipe = Path(name), Path(name) / "recipe.yaml"
        parent.chmod(0o755)
        shutil.copy(world.recipes[case], recipe)
        folder = parent / "theirs" / "run"
        folder.parent.mkdir()

        if situation != "no room":
            world.faulty(case, folder, rng.randint(operations // 2, operations), "before").wait()
        if situation in ("handed over", "one file"):
            for path in (folder.parent, *folder.parent.rglob("*")):
                os.chown(path, STRANGER, STRANGER)
        if situation == "one file":
            path = rng.choice(sorted(path for path in folder.rglob("*") if path.is_file()))
            os.chown(path, 0, 0)
            path.chmod(rng.choice((0o600, 0o644)))
        if situation == "closed":
            folder.chmod(0o700)
        before = state(parent)
        run = world.start(case, folder, recipe=recipe, cwd=parent, user=STRANGER)
        code = world.proper(run, (0, 2, 3)).code
        if situation != "one file" and (situation == "handed over") == bool(code):
            raise Failed(f"{situation}: exit code {code}")
        if situation == "to read":
            out = rng.choice((folder / "export", parent / "elsewhere"))
            exporting = world.programs.start("export", "--run_dir", folder, "--out", out, cwd=parent, user=STRANGER)
            world.proper(exporting, (2, 3))
        if situation in ("to read", "closed", "no room") and state(parent) != before:
            raise Failed(f"{situation}: changed files of another user")
        world.expect_same_end(case, folder)
    return f"{situation}, exit {code}"


def may_run(user):
    """True if a user can start this Python and read the tests."""
    try:
        command = [sys.executable, "-c", "import numpy"]
        return subprocess.run(command, user=user, cwd="/", capture_output=True, check=False).returncode == 0
    except OSError:
        return False


def state(folder):
    """Names, owners, permissions, sizes and times of all files in a folder."""
    about = {path: path.lstat() for path in sorted(folder.rglob("*"))}
    return [(path, one.st_uid, one.st_mode, one.st_size, one.st_mtime_ns) for path, one in about.items()]


TRIALS = (killed_at_an_operation, operation_fails, signalled, odd_names, other_users)
