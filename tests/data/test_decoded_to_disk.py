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


def kept():
    return sorted(path.name for path in decoded.FOLDER.iterdir() if path.suffix != ".lock")


def in_memory(root, monkeypatch, **options):
    with monkeypatch.context() as patch:
        patch.setattr(decoded, "LARGEST", 2**31)
        return load(root, **options)


def test_the_pixels_are_those_in_memory_and_decoded_once(root, monkeypatch, capsys):
    found = load(root)
    assert isinstance(found.train.x, DiskArray) and isinstance(found.test.x, DiskArray)
    assert found.sha256 == in_memory(root, monkeypatch).sha256
    (name,) = kept()
    assert name.startswith("folder-") and "-4x4x3-" in name
    said = capsys.readouterr().err
    assert said == f"decoding 210 pictures of {root}: 0.0 GiB, kept for later runs in {decoded.FOLDER / name}\n"
    assert found.source == f"pictures ({root}; 0.0 GiB of pixels stay on disk)"
    monkeypatch.setattr(folder, "decoded_blocks", None)
    assert load(root).sha256 == found.sha256 and not capsys.readouterr().err


def test_a_folder_of_tests_is_a_file_of_its_own(root, monkeypatch):
    (root.parent / "both").mkdir()
    root.rename(root.parent / "both" / "train")
    folders.write_pictures(root.parent / "both" / "test", images=3)
    both = root.parent / "both"
    found = load(both)
    assert len(kept()) == 2 and found.sha256 == in_memory(both, monkeypatch).sha256


def test_what_is_large_depends_on_the_memory_too(monkeypatch):
    assert decoded_to_disk.is_large(2**31 + 1) and not decoded_to_disk.is_large(2**20)
    monkeypatch.setattr(decoded_to_disk, "memory", lambda: 2**20)
    assert decoded_to_disk.is_large(2**18 + 1) and not decoded_to_disk.is_large(2**18)


@pytest.mark.parametrize("change", ["picture", "more", "version", "half", "other"])
def test_what_is_stale_or_damaged_is_decoded_anew(root, monkeypatch, capsys, change):
    load(root)
    (before,), path = kept(), decoded.FOLDER / kept()[0]
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
    found = load(root)
    assert found.sha256 == in_memory(root, monkeypatch).sha256
    assert f"of {root} anew, since they or this program changed: 0.0 GiB" in capsys.readouterr().err
    (after,) = kept()
    assert (after == before) == (change in ("half", "other"))


def test_other_sizes_stand_beside(root):
    load(root, size=4)
    load(root, size=5)
    load(root, size=5, channels=1)
    assert len(kept()) == 3


def test_a_full_disk_is_told_before_and_while_it_is_written(root, monkeypatch):
    monkeypatch.setattr(decoded_to_disk.shutil, "disk_usage", lambda path: Usage(free=200 * 48))
    with pytest.raises(DiskProblem, match=r"cache: needs 0.0 GiB for the decoded pictures of .*own, but 0.0 GiB are "):
        load(root)
    monkeypatch.setattr(decoded_to_disk.shutil, "disk_usage", lambda path: Usage(free=2**30))

    def full(*arguments):
        yield np.zeros((64, 4, 4, 3), np.uint8)
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(folder, "decoded_blocks", full)
        with pytest.raises(DiskProblem, match=r"could not write: No space left on device; free some space and run the"):
            load(root)
    assert kept() == []


def test_a_damaged_picture_and_no_home_are_told(root, monkeypatch):
    (root / "dog" / "9.jpg").write_bytes(b"x")
    with pytest.raises(
        InputError, match=r"dog/9.jpg: is not a picture: it begins with b'x'; convert it to PNG, JPEG, BMP, GIF or WebP"
    ):
        load(root)
    assert kept() == []

    def homeless(self):
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(type(root), "expanduser", homeless)
    with pytest.raises(DiskProblem, match=r"own: needs the folder .*cache for decoded pictures; set HOME"):
        decoded_to_disk.cached_on_disk("folder-1", [], root, (210, 4, 4, 3), lambda: iter(()))


def started(root, blocks):
    """A program of its own that asks for the pixels of the folder, of which `blocks` is Python code that gives them."""
    code = f"""
import os, sys
from pathlib import Path
import numpy as np
from hetero_tf.data import decoded, folder
decoded.FOLDER, decoded.LARGEST = Path({str(decoded.FOLDER)!r}), 100
def blocks(*arguments):
    {blocks}
folder.decoded_blocks = blocks
print(folder.load(Path({str(root.parent)!r}), path={root.name!r}, size=4).sha256)
"""
    return subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, env=programs.environment())


def test_a_killed_writer_leaves_nothing_that_counts(root, monkeypatch):
    killed = started(root, "yield np.zeros((64, 4, 4, 3), np.uint8); os.kill(os.getpid(), 9)")
    assert killed.wait(60) == -9
    (left,) = kept()
    assert left.startswith(".tmp-")
    assert load(root).sha256 == in_memory(root, monkeypatch).sha256
    (name,) = kept()
    assert name.startswith("folder-"), "what the killed one left is removed"


def test_a_second_program_waits_for_the_first(root):
    found = load(root)
    (lock,) = decoded.FOLDER.glob("*.lock")
    with open(lock, "r+b") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        waiting = started(root, "raise AssertionError")
        with pytest.raises(subprocess.TimeoutExpired):
            waiting.wait(3)
    assert waiting.communicate(timeout=60)[0].strip() == found.sha256
