"""Decoded arrays in the cache, in memory or on disk: equal to fresh ones, or decoded again after any change."""

import os
import subprocess
import sys

import folders
import numpy as np
import programs
import pytest
from refusals import raising, refusal

from hetero_tf.base.errors import DiskProblem
from hetero_tf.data import decoded, folder
from hetero_tf.data.disk_array import DiskArray

NAMES = ("x", "y")


@pytest.fixture
def source(tmp_path, monkeypatch):
    """A folder of source files, and one for the cache that takes any number of examples."""
    monkeypatch.setattr(decoded, "FOLDER", tmp_path / "cache")
    monkeypatch.setattr(decoded, "SMALLEST", 1)
    folder = tmp_path / "source"
    folder.mkdir()
    (folder / "images").write_bytes(b"images")
    return folder


@pytest.fixture
def load(source):
    """`(name, about) -> (arrays, whether they were read)`."""

    def start(name="../set/1.0", about=("train", None)):
        reads = []

        def read():
            reads.append(name)
            return {"x": np.arange(24, dtype=np.uint8).reshape(2, 3, 4), "y": np.array([5, 6], np.int32)}

        return decoded.load_cached(name, list(about), source, NAMES, read), bool(reads)

    return start


def files():
    return sorted(path.name for path in decoded.FOLDER.iterdir())


def test_second_load_uses_the_cache(load):
    (first, read), (second, again) = load(), load()
    assert (read, again) == (True, False) and len(files()) == 1 and files()[0].startswith("..-set-1.0-")
    assert sorted(path.name for path in (decoded.FOLDER / files()[0]).iterdir()) == ["x.npy", "y.npy"]
    assert first.keys() == second.keys() == set(NAMES)
    for name in NAMES:
        assert first[name].dtype == second[name].dtype
        np.testing.assert_array_equal(first[name], second[name])


@pytest.mark.parametrize("change", ["options", "size", "time", "name", "more", "version", "cut"])
def test_every_dependency_invalidates_the_cache(load, source, monkeypatch, change):
    load()
    path = source / "images"
    about = ("train", 8) if change == "options" else ("train", None)
    if change == "size":
        then = path.stat().st_mtime_ns
        path.write_bytes(b"image")
        os.utime(path, ns=(then, then))
    elif change == "time":
        os.utime(path, ns=(1, path.stat().st_mtime_ns + 1))
    elif change == "name":
        path.rename(source / "pictures")
    elif change == "more":
        (source / "second").write_bytes(b"")
    elif change == "version":
        monkeypatch.setattr(decoded, "__version__", "9")
    elif change == "cut":
        array = decoded.FOLDER / files()[0] / "x.npy"
        array.write_bytes(array.read_bytes()[:-1])
    arrays, is_read = load(about=about)
    assert is_read and arrays["x"].tolist() == np.arange(24).reshape(2, 3, 4).tolist() and not load(about=about)[1]
    assert len(files()) == 1, "the stale one is replaced"


def test_small_and_very_large_sets_are_not_cached(load, monkeypatch):
    monkeypatch.setattr(decoded, "SMALLEST", 3)
    assert load()[1] and load()[1] and not decoded.FOLDER.exists()
    monkeypatch.setattr(decoded, "SMALLEST", 2)
    monkeypatch.setattr(decoded, "LARGEST", 31)
    assert load()[1] and not decoded.FOLDER.exists()
    monkeypatch.setattr(decoded, "LARGEST", 32)
    assert load()[1] and not load()[1]


def test_unusable_cache_is_ignored(load, source, monkeypatch):
    decoded.FOLDER.write_text("a file where the folder should be")
    assert load()[1]
    decoded.FOLDER.unlink()

    monkeypatch.setattr(decoded, "create_file", raising(OSError(28, "No space left on device")))
    assert load()[1] and files() == []
    source.rename(source.with_name("gone"))
    assert load()[1] and files() == []


def test_temporary_folders_of_killed_processes_are_removed(load):
    load()
    (entry,) = files()
    killed = subprocess.Popen(["true"])
    killed.wait()
    for process in (killed.pid, os.getppid()):
        (decoded.FOLDER / f".tmp-{entry}.{process}").mkdir()
    load(about=("other",))
    assert len(files()) == 2 and f".tmp-{entry}.{os.getppid()}" in files()


def test_two_processes_may_write_an_entry_at_the_same_time(source):
    def blocks():
        folder = decoded._entry("set", [], source)
        folder.mkdir()
        np.save(folder / "x.npy", np.full((2, 3), 5, np.uint8))
        yield np.full((2, 3), 5, np.uint8)

    decoded.FOLDER.mkdir()
    arrays = decoded.load_cached("set", [], source, ("x",), lambda: {"x": blocks()}, large=(2, 3))
    assert arrays["x"][:].tolist() == [[5] * 3] * 2 and len(files()) == 1


@pytest.fixture
def root(tmp_path, monkeypatch):
    """A folder of pictures that count as large, and an empty cache."""
    monkeypatch.setattr(decoded, "FOLDER", tmp_path / "cache")
    monkeypatch.setattr(decoded, "LARGEST", 100)
    folders.write_pictures(tmp_path / "own", images=70)
    return tmp_path / "own"


def load_pictures(root, size=4, **options):
    return folder.load(root.parent, path=root.name, size=size, **options)


def in_memory(root, monkeypatch, **options):
    with monkeypatch.context() as patch:
        patch.setattr(decoded, "LARGEST", 2**31)
        return load_pictures(root, **options)


def test_pixels_equal_those_in_memory_and_are_decoded_once(root, monkeypatch, capsys):
    dataset = load_pictures(root)
    assert isinstance(dataset.train.x, DiskArray) and isinstance(dataset.test.x, DiskArray)
    assert dataset.sha256 == in_memory(root, monkeypatch).sha256
    (name,) = files()
    assert name.startswith("folder-") and "-4x4x3-" in name
    stderr = capsys.readouterr().err
    assert stderr == f"decoding 210 pictures of {root}: 0.0 GiB, cached for later runs in {decoded.FOLDER / name}\n"
    assert dataset.source == f"pictures ({root}; 0.0 GiB of pixels stay on disk)"
    monkeypatch.setattr(folder, "decode_blocks", None)
    assert load_pictures(root).sha256 == dataset.sha256 and not capsys.readouterr().err


def test_size_limit_depends_on_memory(monkeypatch):
    assert decoded.is_large(2**31 + 1) and not decoded.is_large(2**20)
    monkeypatch.setattr(decoded, "memory_limit", lambda: 2**20)
    assert decoded.is_large(2**18 + 1) and not decoded.is_large(2**18)


def test_stale_cache_is_decoded_again_and_each_size_and_split_has_a_file(root, monkeypatch):
    load_pictures(root)
    before = files()
    folders.write_jpeg(root / "cat" / "new.jpg", 1, 8)
    assert load_pictures(root).sha256 == in_memory(root, monkeypatch).sha256
    assert len(files()) == 1 and files() != before
    load_pictures(root, size=5)
    load_pictures(root, size=5, channels=1)
    assert len(files()) == 3
    both = root.parent / "both"
    both.mkdir()
    root.rename(both / "train")
    folders.write_pictures(both / "test", images=3)
    assert load_pictures(both).sha256 == in_memory(both, monkeypatch).sha256 and len(files()) == 5


def test_full_disk_and_damaged_picture_are_reported(root, monkeypatch):
    def full(*arguments):
        yield np.zeros((64, 4, 4, 3), np.uint8)
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(folder, "decode_blocks", full)
        with pytest.raises(DiskProblem, match=r"could not write: No space left on device; free some space and run the"):
            load_pictures(root)
    (root / "dog" / "9.jpg").write_bytes(b"x")
    assert "dog/9.jpg: is not a readable PNG, JPEG, BMP, GIF or WebP picture; convert" in refusal(load_pictures, root)
    assert files() == []


def test_killed_writer_leaves_no_valid_file(root, monkeypatch):
    code = f"""
import os
from pathlib import Path
import numpy as np
from hetero_tf.data import decoded, folder
decoded.FOLDER, decoded.LARGEST = Path({str(decoded.FOLDER)!r}), 100
def blocks(*arguments):
    yield np.zeros((64, 4, 4, 3), np.uint8)
    os.kill(os.getpid(), 9)
folder.decode_blocks = blocks
folder.load(Path({str(root.parent)!r}), path={root.name!r}, size=4)
"""
    assert subprocess.run([sys.executable, "-c", code], env=programs.environment(), timeout=60).returncode == -9
    (draft,) = files()
    assert draft.startswith(".tmp-")
    assert load_pictures(root).sha256 == in_memory(root, monkeypatch).sha256
    (name,) = files()
    assert name.startswith("folder-"), "what the killed one left is removed"
