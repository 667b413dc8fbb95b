"""Kills the process before and after each file operation of a save or an export, and lets each operation fail."""

import errno
import os
import shutil

import harness
import pytest

from hetero_tf.runs import checkpoints

pytestmark = pytest.mark.long


def damage_the_last(folder):
    """Three rounds, of which the last is truncated."""
    harness.fill(folder, [1, 2, 3])
    os.truncate(checkpoints.path_of(folder, 3), 100)


def write_version(folder):
    (folder / "1").mkdir()
    (folder / "1" / "export.json").write_text("old")


def with_each_fault(base, prepare, last, faults):
    """Yield `(folder, result, fault)` of a save of round `last` in a copy of a prepared folder, for each operation."""
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
            result, count = harness.run_with_fault(folder, number, last, fault)
            if number == 0:
                assert result.returncode == 0, result.stderr
                operations = count
            else:
                yield folder, result, fault
            number += 1
        assert operations > 5


KILLS = ("before", "after")


@pytest.mark.parametrize("prepare", [lambda folder: harness.fill(folder, [1, 2]), damage_the_last])
def test_a_kill_at_any_operation_leaves_a_complete_round(tmp_path, prepare):
    newest = set()
    for folder, result, _ in with_each_fault(tmp_path, prepare, 3, KILLS):
        assert result.returncode == -9
        loaded = checkpoints.load_newest(folder)
        harness.check(loaded, {2, 3})
        assert len(loaded.skipped) == (loaded.round == 2 and prepare is damage_the_last)
        newest.add(loaded.round)
        harness.fill(folder, [3, 4])
        harness.check(checkpoints.load_newest(folder), {4})
        checkpoints.sweep(folder)
        assert sorted(os.listdir(folder)) == ["round-000003.npz", "round-000004.npz"]
    assert newest == {2, 3}


def test_a_kill_while_the_folder_is_created_leaves_no_round_or_the_first(tmp_path):
    seen = set()
    for folder, result, _ in with_each_fault(tmp_path, None, 1, KILLS):
        assert result.returncode == -9
        loaded = checkpoints.load_newest(folder)
        if loaded is not None:
            harness.check(loaded, {1})
        seen.add(loaded is None)
        harness.fill(folder, [1])
        assert checkpoints.load_newest(folder).round == 1
    assert seen == {True, False}


def test_a_failed_operation_is_one_sentence_and_changes_no_old_round(tmp_path):
    """If only an older round cannot be removed, the new one is saved, and the next save removes both."""
    removals = 0
    prepare = lambda folder: harness.fill(folder, [1, 2])  # noqa: E731
    for folder, result, fault in with_each_fault(tmp_path, prepare, 3, ("ENOSPC", "EIO")):
        text, removal_failed = (
            os.strerror(getattr(errno, fault)),
            "round 3 is saved, but an older one cannot be removed",
        )
        assert result.returncode == 3 and f"{text}; " in result.stdout, result.stdout + result.stderr
        assert result.stdout.count("\n") == 1 and result.stderr == ""
        removals += removal_failed in result.stdout
        harness.check(checkpoints.load_newest(folder), {3} if removal_failed in result.stdout else {2, 3})
        assert removal_failed in result.stdout or not [name for name in os.listdir(folder) if name.startswith(".")]
        assert checkpoints.path_of(folder, 2).exists()
        harness.fill(folder, [4])
        assert len(os.listdir(folder)) == 2
        harness.check(checkpoints.load_newest(folder), {4})
    assert removals >= 2


def test_a_kill_while_a_version_is_exported_leaves_old_versions_and_complete_ones(tmp_path):
    seen = set()
    for folder, result, _ in with_each_fault(tmp_path, write_version, 0, KILLS):
        assert result.returncode == -9
        seen.add(tuple(sorted(name for name in os.listdir(folder) if not name.startswith("."))))
        assert (folder / "1" / "export.json").read_text() == "old"
        # The next export removes the leftover files of a kill.
        assert harness.run(harness.command(folder, 0, 0)).returncode == 0
        contents = {path.name: sorted(file.read_text() for file in path.iterdir()) for path in folder.iterdir()}
        assert contents.pop("1") == ["old"] and set(map(tuple, contents.values())) == {("new", "new")}
    assert seen == {("1",), ("1", "2")}
