"""Kills the process before and after each file operation of a save or an export, and lets each operation fail."""

import errno
import os
import shutil

import programs
import pytest
import saved_rounds

from hetero_tf.runs import checkpoints

pytestmark = pytest.mark.long


def damage_the_last(folder):
    """Three rounds, of which the last is truncated."""
    saved_rounds.fill(folder, [1, 2, 3])
    os.truncate(checkpoints.path_of(folder, 3), 100)


def write_version(folder):
    (folder / "1").mkdir()
    (folder / "1" / "export.json").write_text("old")


def run_with_fault(folder, number, last, how):
    """Save the round `last` (0: an export) with a fault of operation `number` (0: none): (run, number of operations)."""
    log = folder.with_suffix(".log")
    faults = {"root": str(folder), "at": number, "how": how, "log": str(log)}
    script = "tests/faults/saved_rounds.py"
    run = programs.shared().run(folder, last, last, saved_rounds.SIZE, script=script, faults=faults)
    return run, log.stat().st_size


def with_each_fault(base, prepare, last, faults):
    """Yield `(folder, run, fault)` of a save of round `last` in a copy of a prepared folder, for each operation."""
    template = base / "template"
    if prepare:
        template.mkdir()
        prepare(template)
    for fault in faults:
        number = operations = 0
        while number <= operations:
            folder = base / f"{number}-{fault}"
            if prepare:
                shutil.copytree(template, folder)
            run, count = run_with_fault(folder, number, last, fault)
            if number == 0:
                assert run.code == 0, run.err
                operations = count
            else:
                yield folder, run, fault
            number += 1
        assert operations > 5


KILLS = ("before", "after")


@pytest.mark.parametrize("prepare", [lambda folder: saved_rounds.fill(folder, [1, 2]), damage_the_last])
def test_a_kill_at_any_operation_leaves_a_complete_round(tmp_path, prepare):
    newest = set()
    for folder, run, _ in with_each_fault(tmp_path, prepare, 3, KILLS):
        assert run.code == -9
        loaded = checkpoints.load_newest(folder)
        saved_rounds.check(loaded, {2, 3})
        assert len(loaded.skipped) == (loaded.round == 2 and prepare is damage_the_last)
        newest.add(loaded.round)
        saved_rounds.fill(folder, [3, 4])
        saved_rounds.check(checkpoints.load_newest(folder), {4})
        checkpoints.sweep(folder)
        assert sorted(os.listdir(folder)) == ["round-000003.npz", "round-000004.npz"]
    assert newest == {2, 3}


def test_a_kill_while_the_folder_is_created_leaves_no_round_or_the_first(tmp_path):
    seen = set()
    for folder, run, _ in with_each_fault(tmp_path, None, 1, KILLS):
        assert run.code == -9
        loaded = checkpoints.load_newest(folder)
        if loaded is not None:
            saved_rounds.check(loaded, {1})
        seen.add(loaded is None)
        saved_rounds.fill(folder, [1])
        assert checkpoints.load_newest(folder).round == 1
    assert seen == {True, False}


def test_a_failed_operation_is_one_sentence_and_changes_no_old_round(tmp_path):
    """If only an older round cannot be removed, the new one is saved, and the next save removes both."""
    removals = 0
    prepare = lambda folder: saved_rounds.fill(folder, [1, 2])  # noqa: E731
    for folder, run, fault in with_each_fault(tmp_path, prepare, 3, ("ENOSPC", "EIO")):
        text, removal_failed = (
            os.strerror(getattr(errno, fault)),
            "round 3 is saved, but an older one cannot be removed",
        )
        assert run.code == 3 and f"{text}; " in run.out, run.out + run.err
        assert run.out.count("\n") == 1 and run.err == ""
        removals += removal_failed in run.out
        saved_rounds.check(checkpoints.load_newest(folder), {3} if removal_failed in run.out else {2, 3})
        assert removal_failed in run.out or not [name for name in os.listdir(folder) if name.startswith(".")]
        assert checkpoints.path_of(folder, 2).exists()
        saved_rounds.fill(folder, [4])
        assert len(os.listdir(folder)) == 2
        saved_rounds.check(checkpoints.load_newest(folder), {4})
    assert removals >= 2


def test_a_kill_while_a_version_is_exported_leaves_old_versions_and_complete_ones(tmp_path):
    seen = set()
    for folder, run, _ in with_each_fault(tmp_path, write_version, 0, KILLS):
        assert run.code == -9
        seen.add(tuple(sorted(name for name in os.listdir(folder) if not name.startswith("."))))
        assert (folder / "1" / "export.json").read_text() == "old"
        # The next export removes the leftover files of a kill.
        assert run_with_fault(folder, 0, 0, "")[0].code == 0
        contents = {path.name: sorted(file.read_text() for file in path.iterdir()) for path in folder.iterdir()}
        assert contents.pop("1") == ["old"] and set(map(tuple, contents.values())) == {("new", "new")}
    assert seen == {("1",), ("1", "2")}
