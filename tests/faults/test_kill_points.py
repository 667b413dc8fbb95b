"""Kills the process at each file operation of a save, and lets each operation fail."""

import concurrent.futures
import errno
import os
import re
import shutil

import harness
import pytest

from hetero_tf.runs import checkpoints

pytestmark = pytest.mark.long

# Two cores: strace and its child alternate, so two pairs run at a time.
WORKERS = 2
MAKING = {"mkdir", "mkdirat", "write", "fsync", "fdatasync", "rename", "renameat", "renameat2"}
REMOVING = {"unlink", "unlinkat", "rmdir"}


def trace(base, prepare):
    """Return (template folder, system calls of saving round 3 in a copy of it, that copy)."""
    harness.need_strace()
    (base / "template").mkdir()
    prepare(base / "template")
    shutil.copytree(base / "template", base / "folder")
    result = harness.strace(base / "log", harness.command(base / "folder", 3, 3))
    assert (result.returncode, result.stdout) == (0, "begin\nend\n"), result.stderr
    return base / "template", harness.points((base / "log").read_text()), base / "folder"


@pytest.fixture(scope="module")
def traced(tmp_path_factory):
    """The common case: rounds 1 and 2 exist, 3 is saved, 1 is deleted."""
    return trace(tmp_path_factory.mktemp("traced"), lambda folder: harness.fill(folder, [1, 2]))


def inject(template, parent, point, fault):
    """Run the save in a new copy with one fault; return (folder, result, trace)."""
    folder = parent / f"{point.call}-{point.nth}-{fault.partition('=')[2]}"
    shutil.copytree(template, folder)
    log = folder.with_suffix(".log")
    result = harness.strace(log, harness.command(folder, 3, 3), f"{point.call}:{fault}:when={point.nth}")
    return folder, result, log.read_text()


def each(points, job):
    """Run the job for all points, two at a time."""
    with concurrent.futures.ThreadPoolExecutor(WORKERS) as pool:
        return list(pool.map(job, points))


def test_order_of_operations(traced):
    """Power loss: files are synced before a rename, and old rounds are deleted after the new name is on the disk."""
    _, points, folder = traced
    lines = [point.line.replace(str(folder), "@") for point in points]

    def first(pattern):
        return next(i for i, line in enumerate(lines) if re.search(pattern, line))

    sealing = first(r'rename\w*\(.*"@/\.tmp-round-000003".*"@/round-000003"')
    for name in ("arrays.npz", "info.json", "MANIFEST.json"):
        created, synced = first(rf"O_EXCL.*<@/\.tmp-round-000003/{name}>"), first(rf"fsync\(\d+<@/.tmp-\S+/{name}>")
        written = max(i for i, line in enumerate(lines) if re.search(rf" write\(\d+<@/.tmp-\S+/{name}>", line))
        assert created < written < synced < first(r"fsync\(\d+<@/\.tmp-round-000003>\)") < sealing
    assert first(r"O_EXCL.*/MANIFEST.json>") > first(r"fsync\(\d+<@/\S+/arrays.npz>")
    assert sealing < first(r"fsync\(\d+<@>\)") < first(r'rename.*"@/\.old-round-000001"') < first(r" (unlink|rmdir)")


def test_killed_before_each_operation(traced, tmp_path):
    template, points, _ = traced
    assert len(points) > 30
    newest = []

    def job(point):
        folder, result, log = inject(template, tmp_path, point, "signal=SIGKILL")
        assert result.returncode in (137, -9) and log.rstrip().endswith("+++ killed by SIGKILL +++"), point
        loaded = checkpoints.load_newest(folder)
        harness.check(loaded, {2, 3})
        assert loaded.skipped == ()
        newest.append(loaded.round)
        harness.fill(folder, [3])
        assert checkpoints.load_newest(folder).round == 3
        harness.fill(folder, [4])
        harness.check(checkpoints.load_newest(folder), {4})
        remaining = sorted(os.listdir(folder))
        assert remaining[-1] == "round-000004" and len(remaining) == 2 and remaining[0].startswith("round-000003"), (
            remaining
        )

    each(points, job)
    assert {2, 3} == set(newest), "kills before and after the sealing rename must both occur"


def test_killed_while_saving_a_damaged_round_again(tmp_path):
    """Round 3 is truncated and trained again: its old folder is deleted only after the new one exists."""

    def prepare(folder):
        harness.fill(folder, [1, 2, 3])
        os.truncate(folder / "round-000003" / "arrays.npz", 100)

    template, points, _ = trace(tmp_path, prepare)

    def job(point):
        folder, result, log = inject(template, tmp_path, point, "signal=SIGKILL")
        assert result.returncode in (137, -9) and log.rstrip().endswith("+++ killed by SIGKILL +++"), point
        loaded = checkpoints.load_newest(folder)
        harness.check(loaded, {2, 3})
        assert len(loaded.skipped) == (loaded.round == 2)
        harness.fill(folder, [4])
        harness.check(checkpoints.load_newest(folder), {4})
        assert len(os.listdir(folder)) == 2
        return loaded.round

    assert {2, 3} == set(each(points, job))


@pytest.mark.parametrize("name", ["ENOSPC", "EIO"])
def test_each_operation_fails(traced, tmp_path, name):
    """One operation fails: one sentence, exit code 3, no leftover files, unchanged old rounds."""
    template, points, _ = traced
    failing = [point for point in points if point.call in MAKING or "O_EXCL" in point.line]
    text = os.strerror(getattr(errno, name))

    def job(point):
        folder, result, log = inject(template, tmp_path, point, f"error={name}")
        assert "(INJECTED)" in log, point
        assert result.returncode == 3 and f"{text}; " in result.stdout, (point, result.stdout, result.stderr)
        assert result.stdout.count("\n") == 2 and "Traceback" not in result.stderr
        harness.check(checkpoints.load_newest(folder), {2, 3})
        assert not [entry for entry in os.listdir(folder) if entry.startswith(".")], point
        assert "round-000002" in os.listdir(folder)
        harness.fill(folder, [4])
        harness.check(checkpoints.load_newest(folder), {4})

    each(failing, job)
    assert len(failing) > 10


def test_each_removal_fails(traced, tmp_path):
    """The new round exists, the message says so, and the next save removes the leftover files."""
    template, points, _ = traced

    def job(point):
        folder, result, log = inject(template, tmp_path, point, "error=EIO")
        assert "(INJECTED)" in log and result.returncode == 3, (point, result.stdout)
        assert "round 3 is saved, but an older one cannot be removed" in result.stdout
        harness.check(checkpoints.load_newest(folder), {3})
        harness.fill(folder, [4])
        assert sorted(os.listdir(folder)) == ["round-000003", "round-000004"]

    removing = [point for point in points if point.call in REMOVING]
    each(removing, job)
    assert len(removing) == 4, "three files and their folder"


def test_missed_injection_is_reported(traced, tmp_path):
    """The harness must not count an injection after the last call as a survived fault."""
    template, points, _ = traced
    last = points[-1]
    beyond = harness.Point(last.call, last.nth + 1000, last.line)
    _, result, log = inject(template, tmp_path, beyond, "error=EIO")
    assert result.returncode == 0 and "(INJECTED)" not in log


def test_killed_while_the_folder_is_created(tmp_path):
    """The first save: without a finished round, loading returns None."""
    harness.need_strace()
    log = tmp_path / "log"
    assert harness.strace(log, harness.command(tmp_path / "new", 1, 1)).returncode == 0
    points = harness.points(log.read_text())

    def job(point):
        folder = tmp_path / f"{point.call}-{point.nth}"
        result = harness.strace(
            folder.with_suffix(".log"), harness.command(folder, 1, 1), f"{point.call}:signal=SIGKILL:when={point.nth}"
        )
        assert result.returncode in (137, -9), point
        loaded = checkpoints.load_newest(folder)
        if loaded is not None:
            harness.check(loaded, {1})
        harness.fill(folder, [1])
        assert len(os.listdir(folder)) in (1, 2) and checkpoints.load_newest(folder).round == 1
        return loaded is None

    assert {True, False} == set(each(points, job))


def test_killed_while_a_version_is_exported(tmp_path):
    """After a kill at any operation: old versions are unchanged, a new one is complete, and the next export works."""
    harness.need_strace()
    template = tmp_path / "template"
    (template / "1").mkdir(parents=True)
    (template / "1" / "export.json").write_text("old")
    shutil.copytree(template, tmp_path / "folder")
    result = harness.strace(tmp_path / "log", harness.exporting(tmp_path / "folder"))
    assert (result.returncode, result.stdout) == (0, "begin\nend\n"), result.stderr
    points = harness.points((tmp_path / "log").read_text())

    def job(point):
        folder = tmp_path / f"{point.call}-{point.nth}"
        shutil.copytree(template, folder)
        fault = f"{point.call}:signal=SIGKILL:when={point.nth}"
        result = harness.strace(folder.with_suffix(".log"), harness.exporting(folder), fault)
        assert result.returncode in (137, -9), point
        seen = sorted(name for name in os.listdir(folder) if not name.startswith("."))
        assert (folder / "1" / "export.json").read_text() == "old", point
        # The next export removes the leftover files of a kill.
        assert harness.run(harness.exporting(folder)).returncode == 0, point
        contents = {path.name: sorted(file.read_text() for file in path.iterdir()) for path in folder.iterdir()}
        assert contents.pop("1") == ["old"] and set(map(tuple, contents.values())) == {("new", "new")}, (
            point,
            contents,
        )
        return tuple(seen)

    assert set(each(points, job)) == {("1",), ("1", "2")}
