"""Every file operation of a sealed save is killed, or made to fail, once."""

import concurrent.futures
import errno
import os
import re
import shutil

import harness
import pytest

from hetero_tf.store import checkpoints

pytestmark = pytest.mark.long

# Two cores: strace and its child take turns, so two pairs at a time.
WORKERS = 2
MAKING = {"mkdir", "mkdirat", "write", "fsync", "fdatasync", "rename", "renameat", "renameat2"}
REMOVING = {"unlink", "unlinkat", "rmdir"}


def trace(base, prepare):
    """(template folder, points of saving round 3 into a copy of it, that copy)."""
    harness.need_strace()
    (base / "template").mkdir()
    prepare(base / "template")
    shutil.copytree(base / "template", base / "folder")
    result = harness.strace(base / "log", harness.command(base / "folder", 3, 3))
    assert (result.returncode, result.stdout) == (0, "begin\nend\n"), result.stderr
    return base / "template", harness.points((base / "log").read_text()), base / "folder"


@pytest.fixture(scope="module")
def traced(tmp_path_factory):
    """The common case: rounds 1 and 2 are there, 3 comes, 1 goes."""
    return trace(tmp_path_factory.mktemp("traced"), lambda folder: harness.fill(folder, [1, 2]))


def inject(template, where, point, fault):
    """Runs the save in a fresh copy with one fault; returns (folder, result, injected line of the trace)."""
    folder = where / f"{point.call}-{point.nth}-{fault.partition('=')[2]}"
    shutil.copytree(template, folder)
    log = folder.with_suffix(".log")
    result = harness.strace(log, harness.command(folder, 3, 3), f"{point.call}:{fault}:when={point.nth}")
    return folder, result, log.read_text()


def each(points, job):
    """Runs the job for all points, two at a time."""
    with concurrent.futures.ThreadPoolExecutor(WORKERS) as pool:
        return list(pool.map(job, points))


def test_order_of_operations(traced):
    """Power loss: what is renamed was synced before, and nothing old goes before the new name is on the disk."""
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
        kept = sorted(os.listdir(folder))
        assert kept[-1] == "round-000004" and len(kept) == 2 and kept[0].startswith("round-000003"), kept

    each(points, job)
    assert {2, 3} == set(newest), "kills before and after the sealing rename must both occur"


def test_killed_while_saving_a_damaged_round_again(tmp_path):
    """Round 3 was torn and is trained again: the torn folder goes only after the new one stands."""

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
    """The system refuses one operation: one sentence, exit code 3, no rubbish, the old rounds as they were."""
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
    """The new round stands, the sentence says so, and the next save clears what could not be removed."""
    template, points, _ = traced

    def job(point):
        folder, result, log = inject(template, tmp_path, point, "error=EIO")
        assert "(INJECTED)" in log and result.returncode == 3, (point, result.stdout)
        assert "round 3 is saved, but an older one stays in the way" in result.stdout
        harness.check(checkpoints.load_newest(folder), {3})
        harness.fill(folder, [4])
        assert sorted(os.listdir(folder)) == ["round-000003", "round-000004"]

    removing = [point for point in points if point.call in REMOVING]
    each(removing, job)
    assert len(removing) == 4, "three files and their folder"


def test_fault_fires_or_is_noticed(traced, tmp_path):
    """The harness itself: an injection beyond the last call must not pass for a survived fault."""
    template, points, _ = traced
    last = points[-1]
    beyond = harness.Point(last.call, last.nth + 1000, last.line)
    _, result, log = inject(template, tmp_path, beyond, "error=EIO")
    assert result.returncode == 0 and "(INJECTED)" not in log


def test_killed_while_the_folder_is_made(tmp_path):
    """The very first save: before the seal there is no round, which is not an error."""
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
    """Whatever operation is the last one: earlier versions are untouched, a new one is whole, and the next one follows."""
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
        # What a kill left goes with the next export.
        assert harness.run(harness.exporting(folder)).returncode == 0, point
        found = {path.name: sorted(file.read_text() for file in path.iterdir()) for path in folder.iterdir()}
        assert found.pop("1") == ["old"] and set(map(tuple, found.values())) == {("new", "new")}, (point, found)
        return tuple(seen)

    assert set(each(points, job)) == {("1",), ("1", "2")}
