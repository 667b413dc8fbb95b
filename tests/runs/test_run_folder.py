"""Run folder: who may write, what counts as started, what is refused with nothing written."""

import errno
import os
import shutil
from pathlib import Path

import pytest
from refusals import raising, refusal

from hetero_tf.base import files
from hetero_tf.base.errors import DiskProblem, InputError, Locked
from hetero_tf.base.files import Damaged, hold_lock, write_atomic
from hetero_tf.runs.run_folder import RunFolder
from hetero_tf.sweeps.definition import SweepFolder


def contents(path):
    return sorted(str(entry.relative_to(path)) for entry in path.rglob("*"))


def taken(path):
    """Whether a run folder that is locked once holds a run."""
    with RunFolder(path).lock() as run:
        return run.started


def test_start_and_resume(tmp_path):
    run = RunFolder(tmp_path / "runs" / "mnist")
    with run.lock():
        assert not run.started
        write_atomic(run.recipe, b"name: mnist\n")
        assert run.started and run.read_recipe() == "name: mnist\n"
    with run.lock():
        assert run.read_recipe() == "name: mnist\n"
    assert contents(run.path) == ["recipe.yaml", "run.lock"]


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EIO])
def test_a_file_system_without_locks_is_named(tmp_path, monkeypatch, number):
    monkeypatch.setattr("fcntl.flock", raising(OSError(number, os.strerror(number))))
    advice = "choose a folder on a local disk, or mount this file system with locks"
    advice = "check the disk, then run the same command again" if number == errno.EIO else advice
    for lock, name in (
        (RunFolder(tmp_path / "run").lock, "run/run.lock"),
        (lambda: SweepFolder(tmp_path / "sweep").lock(print), "sweep/sweep.lock"),
        (lambda: hold_lock(tmp_path / "x.lock", print), "x.lock"),
    ):
        with pytest.raises(DiskProblem) as refused, lock():
            pass
        assert str(refused.value) == f"{tmp_path / name}: could not lock: {os.strerror(number)}; {advice}"


def test_second_lock_is_refused_and_names_the_holder(tmp_path):
    run = RunFolder(tmp_path)
    message = f"process {os.getpid()} works on this run folder; wait for it, stop it, or"
    with run.lock(), pytest.raises(Locked, match=message):
        taken(run.path)
    assert not taken(run.path)


def test_a_dead_process_in_the_lock_file_is_not_taken_for_the_holder(tmp_path, monkeypatch):
    """The new holder has the lock but has not yet written its number: the refused one looks again."""
    run, waits = RunFolder(tmp_path / "run"), []

    def write_it_now(seconds):
        waits.append(seconds)
        (run.path / "run.lock").write_text(f"{os.getpid()}\n")

    monkeypatch.setattr("time.sleep", write_it_now)
    with run.lock():
        (run.path / "run.lock").write_text("4194999\n")  # above the largest process id of Linux, 2**22
        assert f"process {os.getpid()} works" in refusal(taken, run.path, kind=Locked)
    assert len(waits) == 1


def test_a_folder_that_another_run_makes_meanwhile_is_no_file(tmp_path, monkeypatch):
    path, looked = tmp_path / "run", os.path.lexists

    def meanwhile(name):
        path.mkdir(exist_ok=True)
        return looked(name)

    monkeypatch.setattr(os.path, "lexists", meanwhile)
    with RunFolder(path).lock() as folder:
        assert folder.holder == str(os.getpid())


def test_a_copied_run_folder_without_its_lock_is_taken(tmp_path):
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "recipe.yaml").write_text("name: a\n")
    assert taken(tmp_path)


FILES = ("run.lock", "recipe.yaml", "metrics.jsonl", "timings.jsonl", "timeline.jsonl", "environment.json")
FILES += ("costs.json", "classes.json", "data.json", "partition.npz", "log.txt", "README.txt")


@pytest.mark.parametrize("name", [*FILES, "checkpoints"])
def test_paths_of_another_type_are_refused_before_the_first_write(tmp_path, name):
    folder, wanted = tmp_path / "run", "a file" if name in FILES else "a folder"
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / ".tmp-round-000001.npz.1").mkdir()
    makers = {
        "a symbolic link": lambda path: path.symlink_to(tmp_path / "outside"),
        "a pipe, device or socket": os.mkfifo,
        "a folder" if name in FILES else "a file": Path.mkdir if name in FILES else Path.touch,
    }
    for kind, make in makers.items():
        folder.mkdir()
        (folder / "checkpoints").mkdir()
        (folder / "recipe.yaml").touch()
        files.remove(folder / name)
        make(folder / name)
        # Without these two, or the lock, it would not be taken for a run folder at all.
        if name in ("checkpoints", "recipe.yaml"):
            (folder / "run.lock").touch()
        before = contents(tmp_path)
        expected = f"{folder / name}: expected {wanted} or nothing. Received: {kind}; move it away"
        assert refusal(taken, folder) == expected
        assert contents(tmp_path) == before
        shutil.rmtree(folder)


def test_the_run_folder_itself_may_be_a_link(tmp_path):
    (tmp_path / "large disk").mkdir()
    (tmp_path / "run").symlink_to(tmp_path / "large disk")
    assert not taken(tmp_path / "run")
    assert os.listdir(tmp_path / "large disk") == ["run.lock"]
    (tmp_path / "lost").symlink_to(tmp_path / "unplugged disk")
    expected = f"{tmp_path / 'lost'}: is not a folder; choose another run folder by --run_dir"
    assert refusal(taken, tmp_path / "lost") == expected


def test_folder_without_a_run_is_refused(tmp_path):
    assert "is not a run folder: it has no recipe.yaml; name a folder that `train` wrote" in refusal(
        RunFolder(tmp_path).read_recipe
    )
    (tmp_path / "recipe.yaml").write_bytes(b"\xff")
    assert "recipe.yaml: is not UTF-8 text" in refusal(RunFolder(tmp_path).read_recipe, kind=Damaged)


@pytest.mark.parametrize(
    ("path", "error", "message"),
    [
        ("file", InputError, "file: is not a folder; choose another run folder"),
        ("file/run", DiskProblem, "file/run: could not create: Not a directory"),
        ("linked", InputError, "run.lock: expected a file or nothing. Received: a symbolic link"),
        ("recipe", InputError, r"holds other things \(recipe.yaml\) and no run; choose an empty or new run folder"),
        ("others", InputError, r"holds other things \(.tmp-x, log.txt, notes\) and no run"),
    ],
)
def test_a_path_that_cannot_be_a_run_folder_is_refused_and_left_alone(tmp_path, path, error, message):
    (tmp_path / "file").write_text("mine")
    for name in ("linked", "recipe/recipe.yaml", "others/log.txt", "others/notes", "others/.tmp-x"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "linked" / "run.lock").symlink_to(tmp_path / "file")
    before = contents(tmp_path)
    with pytest.raises(error, match=message):
        taken(tmp_path / path)
    assert contents(tmp_path) == before and (tmp_path / "file").read_text() == "mine"


def test_the_next_run_removes_what_a_killed_program_left_and_nothing_else(tmp_path):
    """Without its recipe, a run has not started. Drafts of files under the lock belong to no run."""
    left = [".tmp-recipe.yaml.7", ".tmp-metrics.jsonl.7", ".tmp-partition.npz", ".tmp-costs.json.7", ".tmp-data.json.7"]
    left += [f".tmp-environment.json.{os.getppid()}", "checkpoints/.tmp-round-000001.npz.1"]
    mine = [".tmp-mine", ".old-mine", ".tmp-recipe.yaml.bak", ".partition.npz.swp", ".metrics.jsonl.7", "recipe.yaml.7"]
    mine += ["export", "export/.tmp-other"]
    run = RunFolder(tmp_path / "run")
    with pytest.raises(ZeroDivisionError), run.lock():
        run.partition.write_bytes(b"x")
        raise ZeroDivisionError
    for name in left + mine:
        (run.path / name).mkdir(parents=True)
    assert not taken(run.path)
    assert contents(run.path) == sorted([*mine, "checkpoints", "partition.npz", "run.lock"])
