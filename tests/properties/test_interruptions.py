"""Kills, failing file operations and signals at any time: the same command ends with the bits of an undisturbed run.

A run folder with files of another run is rejected, or has the same results.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import programs
import pytest
from each import for_each
from hypothesis import Phase, settings
from hypothesis import given as for_all
from hypothesis import strategies as st
from run_cases import CASES
from world import newest

pytestmark = pytest.mark.long

# Each example starts several runs; a smaller counterexample would take minutes.
COSTLY = settings(max_examples=max(1, settings.default.max_examples // 40), phases=[Phase.explicit, Phase.generate])
ERRORS = ("ENOSPC", "EIO", "EROFS", "EACCES", "EDQUOT", "EMFILE")
ENDINGS = ("SIGKILL", "SIGTERM", "SIGINT", "SIGHUP")
NAMES = (
    "with blanks", "line\nbreak", "'quo\"tes'", "-dash", "ünïcödé 漢字", b"\xff\xfe".decode("utf-8", "surrogateescape"),
    "x" * 255, "x" * 300, "a/" * 60 + "b", "\x1b[31mred", "%s{0}$HOME", "~",
)  # fmt: skip
# A user without files.
STRANGER = 54321


@COSTLY
@for_all(
    st.sampled_from(list(CASES)),
    st.lists(st.tuples(st.floats(0, 1), st.sampled_from(("before", "after", *ERRORS))), min_size=1, max_size=3),
)
def test_a_run_continues_after_faults_of_file_operations(world, case, faults):
    folder, (_, operations) = world.new_folder(), world.undisturbed(case)
    for share, how in faults:
        run = world.start(case, folder, fault=(1 + round(share * (operations - 1)), how))
        if how in ERRORS:
            world.finish(run, (0, 2, 3))
        else:
            assert run.wait() in (0, -signal.SIGKILL), run.err
    world.assert_same_end(case, folder)


@COSTLY
@for_all(
    st.sampled_from(list(CASES)),
    st.lists(st.tuples(st.floats(0, 4), st.booleans(), st.sampled_from((*ENDINGS, None))), min_size=1, max_size=3),
)
def test_a_run_continues_after_signals(world, case, signals):
    folder = world.new_folder()
    for seconds, paused, ending in signals:
        run = world.start(case, folder)
        run.until(folder.exists)
        time.sleep(seconds)
        if paused:
            run.kill(signal.SIGSTOP)
            time.sleep(0.2)
            run.kill(signal.SIGCONT)
        number = ending and getattr(signal, ending)
        if number:
            run.kill(number)
        assert run.wait() in (0, -(number or 0), 128 + (number or 0)), run.err
        assert "Traceback" not in run.err and run.err.count("stopped by") <= 1
    world.assert_same_end(case, folder)


@for_each(NAMES)
def test_a_run_folder_has_any_name(name, world, tmp_path):
    run = world.finish(world.start("heterofl", tmp_path / name))
    assert bool(run.code) == (len(name) > 255), run.err
    assert run.code or programs.contents(tmp_path / name) == programs.contents(world.undisturbed("heterofl")[0])


def may_run(user):
    try:
        command = [sys.executable, "-c", "import numpy"]
        return not subprocess.run(command, user=user, cwd="/", capture_output=True, check=False).returncode
    except OSError:
        return False


def state(folder):
    """Names, owners, permissions, sizes and times of all files in a folder."""
    about = {path: path.lstat() for path in sorted(folder.rglob("*"))}
    return [(path, one.st_uid, one.st_mode, one.st_size, one.st_mtime_ns) for path, one in about.items()]


@pytest.mark.parametrize("situation", ["to read", "closed", "no room", "handed over", "one file"])
def test_a_run_of_another_user_is_unchanged_unless_it_changed_its_owner(world, situation):
    if os.getuid() or not may_run(STRANGER):
        pytest.skip("no right to be another user who can start this Python")
    case, (_, operations) = "heterofl", world.undisturbed("heterofl")
    # Not in a folder of pytest, which other users may be unable to read.
    with tempfile.TemporaryDirectory() as name:
        parent, folder = Path(name), Path(name) / "theirs" / "run"
        parent.chmod(0o755)
        recipe = shutil.copy(world.recipe(case), parent / "recipe.yaml")
        folder.parent.mkdir()
        if situation != "no room":
            world.start(case, folder, fault=(operations * 3 // 4, "before")).wait()
        if situation in ("handed over", "one file"):
            for path in (folder.parent, *folder.parent.rglob("*")):
                os.chown(path, STRANGER, STRANGER)
        if situation == "one file":
            os.chown(folder / "metrics.jsonl", 0, 0)
            (folder / "metrics.jsonl").chmod(0o600)
        if situation == "closed":
            folder.chmod(0o700)
        before, options = state(parent), {"cwd": parent, "user": STRANGER}
        code = world.finish(world.start(case, folder, recipe=recipe, **options), (0, 2, 3)).code
        assert situation == "one file" or bool(code) == (situation != "handed over")
        if situation == "to read":
            world.finish(programs.shared().start("export", "--run_dir", folder, **options), (2, 3))
        assert situation in ("handed over", "one file") or state(parent) == before
        world.assert_same_end(case, folder, recipe=recipe)


def assert_same_or_reported(case, folder, world):
    """Training ends with the results of the case, except for lost parts that the program reports."""
    run = world.finish(world.start(case, folder))
    if run.code:
        return
    actual, expected = newest(folder), newest(world.undisturbed(case)[0])
    names = [name for name in {*actual, *expected} if name != "metrics" or "metrics.jsonl is missing" not in run.out]
    assert [name for name in names if actual.get(name) != expected.get(name)] == [], run.out


@COSTLY
@for_all(
    st.sampled_from(list(CASES)),
    st.booleans(),
    st.sampled_from(("seed=4", "data.seed=1", "partition.clients=7", "optimizer.learning_rate=0.04")),
    st.sampled_from(("checkpoints", "partition.npz", "metrics.jsonl", "environment.json", "recipe.yaml")),
    st.sampled_from(("train", "evaluate", "export")),
)
def test_files_of_another_run_are_never_accepted(world, case, is_finished, change, part, command):
    other, folder = world.new_folder(), world.new_folder()
    if is_finished:
        shutil.copytree(world.undisturbed(case)[0], folder)
    else:
        world.finish(world.start(case, folder, "--set=rounds=3"), (0,))
    if world.finish(world.start(case, other, f"--set={change}")).code:
        return
    (shutil.rmtree if (folder / part).is_dir() else os.unlink)(folder / part)
    (shutil.copytree if (other / part).is_dir() else shutil.copy)(other / part, folder / part)
    if command == "train":
        assert_same_or_reported(case, folder, world)
    elif command == "export":
        world.run("export", "--run_dir", folder, "--out", world.new_folder())
    else:
        run = world.run("evaluate", "--run_dir", folder, "--json")
        metrics = json.loads(run.out) if not run.code else {}
        rows = [json.loads(line) for line in (world.undisturbed(case)[0] / "metrics.jsonl").read_text().splitlines()]
        for name, value in rows[metrics["round"] - 1].items() if metrics else ():
            if name.startswith("global_") and name in metrics:
                np.testing.assert_allclose(metrics[name], value, rtol=1e-4, err_msg=name)
