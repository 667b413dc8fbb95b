"""Durable writes, guarded reads and strict JSON."""

import math
import os
import stat
import subprocess
import sys

import numpy as np
import pytest
from disk import record_disk
from refusals import raising, refusal

from hetero_tf import recipe
from hetero_tf.base import files, typed_json
from hetero_tf.base.errors import DiskProblem, InputError
from hetero_tf.base.npz_reader import read_arrays
from hetero_tf.data.words import read_words


@pytest.mark.parametrize(
    ("write", "calls"),
    [
        (files.write_new, ["sync a 2"]),
        (files.write_atomic, ["sync .tmp-a.PID 2", "rename .tmp-a.PID a", "sync ."]),
        (lambda path, data: files.sync_folder(path.parent), ["sync ."]),
    ],
)
def test_contents_and_names_are_on_the_disk_when_a_call_returns(tmp_path, monkeypatch, write, calls):
    recorded = record_disk(monkeypatch, tmp_path)
    write(tmp_path / "a", b"12")
    assert recorded == calls


WRITERS = {
    "replaced": lambda path: files.write_atomic(path, b"x"),
    "changed in place": lambda path: os.close(files.open_for_update(path, os.O_WRONLY | os.O_APPEND, "append to")),
}


@pytest.mark.parametrize("writer", WRITERS)
def test_only_regular_files_are_written(tmp_path, writer):
    """Neither a link out of the folder, nor a pipe on which the program would wait for ever, nor a device."""
    outside, paths = tmp_path / "outside", {name: tmp_path / name for name in ("link", "nowhere", "pipe", "folder")}
    outside.write_text("mine")
    paths["link"].symlink_to(outside)
    paths["nowhere"].symlink_to(tmp_path / "not there")
    os.mkfifo(paths["pipe"])
    paths["folder"].mkdir()
    before = sorted(os.listdir(tmp_path))
    kinds = ("a symbolic link", "a symbolic link", "a pipe, device or socket", "a folder")
    for path, kind in zip(paths.values(), kinds, strict=True):
        expected = f"{path}: expected a file or nothing. Received: {kind}; move it away"
        assert refusal(WRITERS[writer], path) == expected
    assert outside.read_text() == "mine" and sorted(os.listdir(tmp_path)) == before


def test_target_replaced_before_open_is_not_written(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "check_write_target", lambda path: None)
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    assert "Received: a pipe" in refusal(files.open_for_update, tmp_path / "pipe", os.O_WRONLY, "append to")
    os.close(reader)
    (tmp_path / "link").symlink_to(tmp_path / "target")
    with pytest.raises(DiskProblem, match="link: could not append to: Too many levels of symbolic links"):
        files.open_for_update(tmp_path / "link", os.O_WRONLY, "append to")
    assert not (tmp_path / "target").exists()


def test_write_atomic_replaces_files_and_leftovers_keeps_permissions_and_needs_a_folder(tmp_path):
    (tmp_path / f".tmp-a.{os.getpid()}").mkdir()
    (tmp_path / "a").write_text("older")
    os.chmod(tmp_path / "a", 0o640)
    files.write_atomic(tmp_path / "a", memoryview(b"x"))
    assert os.listdir(tmp_path) == ["a"] and (tmp_path / "a").read_bytes() == b"x"
    assert stat.S_IMODE(os.stat(tmp_path / "a").st_mode) == 0o640
    with pytest.raises(DiskProblem, match=r"gone/a: could not write: .*; its folder does not exist"):
        files.write_atomic(tmp_path / "gone" / "a", b"x")
    with pytest.raises(DiskProblem, match=r"x: could not look at: File name too long; choose a shorter path"):
        files.write_atomic(tmp_path / ("x" * 300), b"x")
    assert os.listdir(tmp_path) == ["a"]


def test_drafts_of_killed_programs_are_removed_by_the_next_write(tmp_path):
    script = "from hetero_tf.base import files\nwith files.replace_file('a.txt') as file:\n print(flush=True)\n input()"
    command, environment = [sys.executable, "-c", script], {**os.environ, "PYTHONPATH": os.getcwd()}
    streams = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, cwd=tmp_path, env=environment, **streams) as writer:
        writer.stdout.readline()
        (living,) = os.listdir(tmp_path)
        files.write_atomic(tmp_path / "a.txt", b"one")
        assert set(os.listdir(tmp_path)) == {"a.txt", living}
        writer.kill()
    (tmp_path / ".tmp-b.txt.99999998").touch()
    files.write_atomic(tmp_path / "a.txt", b"two")
    assert set(os.listdir(tmp_path)) == {"a.txt", ".tmp-b.txt.99999998"}


def test_interrupted_write_leaves_no_temporary_file(tmp_path, monkeypatch):
    (tmp_path / "a").write_text("old")
    monkeypatch.setattr(os, "fsync", raising(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        files.write_atomic(tmp_path / "a", b"new")
    assert os.listdir(tmp_path) == ["a"] and (tmp_path / "a").read_text() == "old"


def test_reads_are_limited_and_kernel_files_are_read_as_empty(tmp_path):
    (tmp_path / "a").write_bytes(b"12345")
    assert files.read_bytes(tmp_path / "a", 5) == b"12345"
    assert "a: has 5 bytes, at most 4 are allowed" in refusal(files.read_bytes, tmp_path / "a", 4, kind=files.Damaged)
    # It has no size, and /proc/kmsg never ends.
    assert files.read_bytes("/proc/self/comm", 5) == b""
    with files.open_file("/proc/self/comm") as file:
        assert file.read() == b"" and os.fstat(file.fileno()).st_size == 0


@pytest.mark.parametrize(
    "number, kind, text",
    [
        (5, files.Damaged, "could not read: Input/output error"),
        (24, DiskProblem, "could not read: Too many open files"),
        (13, DiskProblem, "could not read: Permission denied"),
    ],
)
def test_only_errors_of_the_file_are_damage(tmp_path, monkeypatch, number, kind, text):
    monkeypatch.setattr(os, "open", raising(OSError(number, os.strerror(number))))
    with pytest.raises(kind, match=text):
        files.read_bytes(tmp_path / "a", 5)


READERS = {"arrays": lambda path: read_arrays(path, ["x"]), "words": read_words, "recipes": recipe.load}


@pytest.mark.parametrize("name", READERS)
def test_readers_refuse_everything_but_regular_files(tmp_path, name):
    os.mkfifo(tmp_path / "pipe")
    other = "a pipe, device or socket"
    for path, what in ((tmp_path, "a folder"), (tmp_path / "pipe", other), ("/dev/zero", other)):
        assert refusal(READERS[name], path) == f"{path}: expected a file. Received: {what}"


@pytest.mark.parametrize(
    "text, message",
    [
        (b"[1e999]", "1e999 is too large for a number"),
        (b"[-Infinity]", "-Infinity is not a number"),
        (b'["\\ud800"]', "surrogates not allowed"),
        (b'{"a": 1, "a": 1}', "key 'a' appears twice"),
        (b"[" + b"9" * 5000 + b"]", "4300"),
        (b"[1] x", "Extra data"),
        (b"[" * 10**5 + b"]" * 10**5, "recursion"),
        (b'"' + b'\\"' * 10**5, "Unterminated string"),
        (b"]" * 50 + b"[" * 82, "Expecting value"),
    ],
)
def test_json_refusals(text, message):
    with pytest.raises(files.Damaged, match=f"^x.json: is not plain JSON: .*{message}"):
        typed_json.parse(text, "x.json")


@pytest.mark.parametrize("value", [{"a": {1, 2}}, {"a": math.inf}, {"a": "\ud800"}])
def test_unreadable_json_is_not_written(value):
    with pytest.raises(InputError, match="^`v` must hold finite numbers, strings, lists and dicts only. Received: "):
        typed_json.dump(value, "`v`")


def test_finite_turns_numpy_into_numbers_and_nan_into_none():
    row = {
        "a": np.float32("nan"),
        "b": [np.int64(3), -math.inf],
        "c": np.array([1.5, np.inf]),
        "d": (True, np.bool_(0)),
    }
    assert typed_json.finite(row) == {"a": None, "b": [3, None], "c": [1.5, None], "d": [True, False]}


def test_waiting_for_a_lock_is_reported(tmp_path):
    path, messages = tmp_path / "a.part", []
    code = (
        f"import fcntl, time; file = open({str(path)!r}, 'w'); fcntl.flock(file, fcntl.LOCK_EX); print(1, flush=True)"
    )
    with subprocess.Popen([sys.executable, "-c", f"{code}; time.sleep(600)"], stdout=subprocess.PIPE) as holder:
        holder.stdout.readline()

        def say(sentence):
            messages.append(sentence)
            holder.kill()

        for _ in range(2):
            with files.hold_lock(path, say):
                pass
    assert messages == [f"{path}: another process is writing this file; waiting for it"]


@pytest.mark.parametrize("umask", [0, 0o77, 0o277])
def test_private_files_are_new_and_readable_by_the_owner_only(tmp_path, umask):
    before = os.umask(umask)
    try:
        files.write_new(tmp_path / "a.key", b"x", 0o600)
    finally:
        os.umask(before)
    assert (tmp_path / "a.key").read_bytes() == b"x"
    assert stat.S_IMODE(os.stat(tmp_path / "a.key").st_mode) == 0o600 & ~umask
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    for name in ("a.key", "link"):
        assert "could not write: File exists" in refusal(files.write_new, tmp_path / name, b"y", kind=DiskProblem)
