"""Run folder: who may write, what counts as started, what is refused with nothing written."""

import os

import pytest

from hetero_tf.base.errors import BadInput, DiskProblem, Locked
from hetero_tf.base.files import Damaged, write_atomic
from hetero_tf.store.run_folder import RunFolder


def contents(path):
    return sorted(str(entry.relative_to(path)) for entry in path.rglob("*"))


def taken(path):
    """Whether a run folder that is locked once holds a run."""
    with RunFolder(path).lock() as run:
        return run.started


def test_layout(tmp_path):
    run = RunFolder(str(tmp_path / "run"))
    files = {"metrics": "metrics.jsonl", "environment": "environment.json", "log": "log.txt", "export": "export"}
    files |= {"recipe": "recipe.yaml", "checkpoints": "checkpoints", "best": "best", "partition": "partition.npz"}
    assert {name: getattr(run, name).name for name in files} == files
    assert run.log.parent == run.path and os.listdir(tmp_path) == []


def test_start_and_resume(tmp_path):
    run = RunFolder(tmp_path / "runs" / "mnist")
    with run.lock():
        assert not run.started
        write_atomic(run.recipe, b"name: mnist\n")
        assert run.started and run.read_recipe() == "name: mnist\n"
    with run.lock():
        assert run.read_recipe() == "name: mnist\n"
    assert contents(run.path) == ["recipe.yaml", "run.lock"]


def test_killed_before_the_recipe_counts_as_new(tmp_path):
    run = RunFolder(tmp_path / "run")
    with run.lock():
        run.partition.write_bytes(b"x")
        (run.path / ".tmp-recipe.yaml").write_text("nam")
    with run.lock():
        assert not run.started
        assert contents(run.path) == ["partition.npz", "run.lock"]


def test_lock_sweeps_the_round_folders_too(tmp_path):
    run = RunFolder(tmp_path / "run")
    with run.lock():
        (run.checkpoints / ".tmp-round-000001").mkdir(parents=True)
        (run.best / ".old-round-000001").mkdir(parents=True)
        (run.export / ".tmp-other").mkdir(parents=True)
    with run.lock():
        assert contents(run.path) == ["best", "checkpoints", "export", "export/.tmp-other", "run.lock"]


def test_second_lock_is_refused_and_names_the_holder(tmp_path):
    run = RunFolder(tmp_path)
    told = f"process {os.getpid()} works on this run folder; wait for it, stop it, or"
    with run.lock(), pytest.raises(Locked, match=told):
        taken(run.path)
    assert not taken(run.path)


def test_lock_is_freed_by_an_exception(tmp_path):
    run = RunFolder(tmp_path / "run")
    with pytest.raises(ZeroDivisionError), run.lock():
        raise ZeroDivisionError
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
        with pytest.raises(Locked, match=f"process {os.getpid()} works"):
            taken(run.path)
    assert len(waits) == 1


def test_a_file_is_refused(tmp_path):
    (tmp_path / "run").write_text("text")
    with pytest.raises(BadInput, match="run: is a file, not a folder; choose another run folder"):
        taken(tmp_path / "run")
    assert (tmp_path / "run").read_text() == "text"


def test_a_path_through_a_file_is_refused(tmp_path):
    (tmp_path / "file").write_text("text")
    with pytest.raises(DiskProblem, match="file/run: could not create: Not a directory"):
        taken(tmp_path / "file" / "run")


@pytest.mark.parametrize("names", [["notes.txt"], ["recipe.yaml"], ["log.txt", "plots"], [".tmp-x"]])
def test_a_folder_with_other_things_is_refused_and_left_alone(tmp_path, names):
    for name in names:
        (tmp_path / name).write_text("mine")
    text = rf"holds other things \({', '.join(names)}\) and no run; choose an empty or new run folder"
    with pytest.raises(BadInput, match=text):
        taken(tmp_path)
    assert contents(tmp_path) == names


def test_a_copied_run_folder_without_its_lock_is_taken(tmp_path):
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "recipe.yaml").write_text("name: a\n")
    assert taken(tmp_path)


def test_a_linked_lock_file_is_refused(tmp_path):
    (tmp_path / "target").write_text("mine")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "run.lock").symlink_to(tmp_path / "target")
    with pytest.raises(DiskProblem, match="run.lock: could not lock: Too many levels of symbolic links"):
        taken(tmp_path / "run")
    assert (tmp_path / "target").read_text() == "mine"


def test_reading_what_is_no_run(tmp_path):
    with pytest.raises(BadInput, match="is not a run folder, it has no recipe.yaml; name one that `train` wrote"):
        RunFolder(tmp_path).read_recipe()
    (tmp_path / "recipe.yaml").write_bytes(b"\xff")
    with pytest.raises(Damaged, match="recipe.yaml: is not UTF-8 text"):
        RunFolder(tmp_path).read_recipe()


def test_sweeping_does_not_follow_a_link_out_of_the_run(tmp_path):
    (tmp_path / "outside" / ".tmp-mine").mkdir(parents=True)
    run = RunFolder(tmp_path / "run")
    with run.lock():
        run.checkpoints.symlink_to(tmp_path / "outside")
    with run.lock():
        assert contents(tmp_path / "outside") == [".tmp-mine"]
