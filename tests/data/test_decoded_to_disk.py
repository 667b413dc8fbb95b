"""Large sets of pictures: decoded once into a file that is whole or not there, and read from it."""

import fcntl
import os
import subprocess
import sys
from collections import namedtuple

import folders
import numpy as np
import programs
import pytest

from hetero_tf.base.errors import DiskProblem, InputError
from hetero_tf.data import decoded, decoded_to_disk, folder
from hetero_tf.data.disk_array import DiskArray

Usage = namedtuple("Usage", ["free"])


@pytest.fixture
def root(tmp_path, monkeypatch):
    """A folder of pictures that count as large, and an empty cache."""
    monkeypatch.setattr(decoded, "FOLDER", tmp_path / "cache")
    monkeypatch.setattr(decoded, "LARGEST", 100)
    folders.write_pictures(tmp_path / "own", images=70)
    return tmp_path / "own"


def load(root, size=4, **options):
    return folder.load(root.parent, path=root.name, size=size, **options)


def cached_files():
    return sorted(path.name for path in decoded.FOLDER.iterdir() if path.suffix != ".lock")


def in_memory(root, monkeypatch, **options):
    with monkeypatch.context() as patch:
        patch.setattr(decoded, "LARGEST", 2**31)
        return load(root, **options)


def test_pixels_equal_those_in_memory_and_are_decoded_once(root, monkeypatch, capsys):
    dataset = load(root)
    assert isinstance(dataset.train.x, DiskArray) and isinstance(dataset.test.x, DiskArray)
    assert dataset.sha256 == in_memory(root, monkeypatch).sha256
    (name,) = cached_files()
    assert name.startswith("folder-") and "-4x4x3-" in name
    stderr = capsys.readouterr().err
    assert stderr == f"decoding 210 pictures of {root}: 0.0 GiB, cached for later runs in {decoded.FOLDER / name}\n"
    assert dataset.source == f"pictures ({root}; 0.0 GiB of pixels stay on disk)"
    monkeypatch.setattr(folder, "decode_blocks", None)
    assert load(root).sha256 == dataset.sha256 and not capsys.readouterr().err


def test_test_folder_has_a_separate_cache_file(root, monkeypatch):
    (root.parent / "both").mkdir()
    root.rename(root.parent / "both" / "train")
    folders.write_pictures(root.parent / "both" / "test", images=3)
    both = root.parent / "both"
    dataset = load(both)
    assert len(cached_files()) == 2 and dataset.sha256 == in_memory(both, monkeypatch).sha256


def test_size_limit_depends_on_memory(monkeypatch):
    assert decoded_to_disk.is_large(2**31 + 1) and not decoded_to_disk.is_large(2**20)
    monkeypatch.setattr(decoded_to_disk, "memory_limit", lambda: 2**20)
    assert decoded_to_disk.is_large(2**18 + 1) and not decoded_to_disk.is_large(2**18)


@pytest.mark.parametrize("change", ["picture", "more", "version", "half", "other"])
def test_stale_or_damaged_cache_is_decoded_again(root, monkeypatch, capsys, change):
    load(root)
    (before,), path = cached_files(), decoded.FOLDER / cached_files()[0]
    capsys.readouterr()
    if change == "picture":
        folders.write_jpeg(root / "bat" / "0.jpg", 2, 8)
        os.utime(root / "bat" / "0.jpg", ns=(1, 1))
    elif change == "more":
        folders.write_jpeg(root / "cat" / "new.jpg", 1, 8)
    elif change == "version":
        monkeypatch.setattr(decoded, "__version__", "9")
    elif change == "half":
        path.write_bytes(path.read_bytes()[:-100])
    else:
        np.save(path, np.zeros((210, 4, 4, 1), np.uint8))
    dataset = load(root)
    assert dataset.sha256 == in_memory(root, monkeypatch).sha256
    assert f"of {root} again, because they or this program changed: 0.0 GiB" in capsys.readouterr().err
    (after,) = cached_files()
    assert (after == before) == (change in ("half", "other"))


def test_each_size_has_a_cache_file(root):
    load(root, size=4)
    load(root, size=5)
    load(root, size=5, channels=1)
    assert len(cached_files()) == 3


def test_full_disk_is_reported_before_and_during_writing(root, monkeypatch):
    monkeypatch.setattr(decoded_to_disk.shutil, "disk_usage", lambda path: Usage(free=200 * 48))
    with pytest.raises(DiskProblem, match=r"cache: needs 0.0 GiB for the decoded pictures of .*own, but 0.0 GiB are "):
        load(root)
    monkeypatch.setattr(decoded_to_disk.shutil, "disk_usage", lambda path: Usage(free=2**30))

    def full(*arguments):
        yield np.zeros((64, 4, 4, 3), np.uint8)
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(folder, "decode_blocks", full)
        with pytest.raises(DiskProblem, match=r"could not write: No space left on device; free some space and run the"):
            load(root)
    assert cached_files() == []


def test_damaged_picture_and_missing_home_are_reported(root, monkeypatch):
    (root / "dog" / "9.jpg").write_bytes(b"x")
    with pytest.raises(
        InputError, match=r"dog/9.jpg: is not a picture: it begins with b'x'; convert it to PNG, JPEG, BMP, GIF or WebP"
    ):
        load(root)
    assert cached_files() == []

    def homeless(self):
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(type(root), "expanduser", homeless)
    with pytest.raises(DiskProblem, match=r"own: needs the folder .*cache for decoded pictures; set HOME"):
        decoded_to_disk.open_cached("folder-1", [], root, (210, 4, 4, 3), lambda: iter(()))


def start_program(root, blocks):
    """A program of its own that asks for the pixels of the folder, of which `blocks` is Python code that gives them."""
    code = f"""
import os, sys
from pathlib import Path
import numpy as np
from hetero_tf.data import decoded, folder
decoded.FOLDER, decoded.LARGEST = Path({str(decoded.FOLDER)!r}), 100
def blocks(*arguments):
    {blocks}
folder.decode_blocks = blocks
print(folder.load(Path({str(root.parent)!r}), path={root.name!r}, size=4).sha256)
"""
    return subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, env=programs.environment())


def test_killed_writer_leaves_no_valid_file(root, monkeypatch):
    killed = start_program(root, "yield np.zeros((64, 4, 4, 3), np.uint8); os.kill(os.getpid(), 9)")
    assert killed.wait(60) == -9
    (draft,) = cached_files()
    assert draft.startswith(".tmp-")
    assert load(root).sha256 == in_memory(root, monkeypatch).sha256
    (name,) = cached_files()
    assert name.startswith("folder-"), "what the killed one left is removed"


def test_second_process_waits_for_the_first(root):
    dataset = load(root)
    (lock,) = decoded.FOLDER.glob("*.lock")
    with open(lock, "r+b") as locked_file:
        fcntl.flock(locked_file, fcntl.LOCK_EX)
        waiting = start_program(root, "raise AssertionError")
        with pytest.raises(subprocess.TimeoutExpired):
            waiting.wait(3)
    assert waiting.communicate(timeout=60)[0].strip() == dataset.sha256
