"""Versions of exported models in their folder: numbered, never changed, and written whole or not at all."""

import os
from pathlib import Path

import pytest
from disk import record_disk
from refusals import raising, refusal

from hetero_tf.base.errors import DiskProblem
from hetero_tf.runs import versions


def write(level, version=None):
    versions.check_version_folder(level, version)
    with versions.create_draft(level) as draft:
        (draft / "export.json").touch()
        return int(versions.publish(draft, version).name)


def test_the_name_of_the_next_version_is_on_the_disk_when_publish_returns(tmp_path, monkeypatch):
    (tmp_path / "a" / "7").mkdir(parents=True)
    calls = record_disk(monkeypatch, tmp_path)
    with versions.create_draft(tmp_path / "a") as draft:
        assert versions.publish(draft, None) == tmp_path / "a" / "8"
    assert calls == ["rename a/.tmp-version.PID a/8", "sync a"]


def test_versions_are_numbered_and_never_change(tmp_path):
    level = tmp_path / "out" / "b"
    assert [write(level, version) for version in (None, None, 7, None)] == [1, 2, 7, 8]
    assert refusal(write, level, 2) == (
        f"{level / '2'}: already exists, and versions never change; choose another --export_version, or leave it out for the next one"
    )
    assert sorted(os.listdir(level)) == ["1", "2", "7", "8"]


def test_a_failed_version_leaves_no_files(tmp_path, monkeypatch):
    for left in ([], ["b"]):
        with monkeypatch.context() as full:
            full.setattr(os, "rename", raising(OSError(28, "No space left on device")))
            message = refusal(write, tmp_path / "out" / "b", kind=DiskProblem)
        assert "could not name: No space left on device" in message
        assert os.listdir(tmp_path / "out" if left else tmp_path) == left
        assert write(tmp_path / "out" / "b") == 1 + len(left)


def test_a_number_that_another_program_uses_is_skipped(tmp_path, monkeypatch):
    rename = os.rename

    def slow(source, target):
        if Path(target).name == "1":
            (Path(target) / "variables").mkdir(parents=True)
        rename(source, target)

    monkeypatch.setattr(os, "rename", slow)
    assert write(tmp_path) == 2


def test_the_next_version_removes_the_draft_of_a_killed_program(tmp_path):
    mine = [".tmp-mine", f".tmp-version.{os.getppid()}", "notes"]
    for name in (".tmp-version.4194999", *mine):
        (tmp_path / name).mkdir()
    write(tmp_path)
    assert sorted(os.listdir(tmp_path)) == sorted([*mine, "1"])


@pytest.mark.parametrize(
    ("occupied", "level", "message"),
    [
        ("file", "file/b", "file: exists and is not a folder; choose another folder"),
        ("b", "b", "b: exists and is not a folder; choose another folder"),
    ],
)
def test_an_occupied_path_is_rejected_and_unchanged(tmp_path, occupied, level, message):
    (tmp_path / occupied).parent.mkdir(exist_ok=True)
    (tmp_path / occupied).touch()
    assert refusal(write, tmp_path / level).startswith(f"{tmp_path}/{message}")
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == [Path(occupied).name]
