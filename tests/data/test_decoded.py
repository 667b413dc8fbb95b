"""Decoded arrays that are kept: equal, refused when anything about them is off, and never in the way."""

import os
import time

import folders
import numpy as np
import pytest

from hetero_tf.base.npz_reader import read_arrays
from hetero_tf.data import decoded

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

    def start(name="set/1.0", about=("train", None)):
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
    assert (read, again) == (True, False) and files() == ["set-1.0.npz"]
    assert first.keys() == second.keys() == set(NAMES)
    for name in NAMES:
        assert first[name].dtype == second[name].dtype
        np.testing.assert_array_equal(first[name], second[name])


@pytest.mark.parametrize("change", ["options", "size", "time", "name", "more", "version"])
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
    assert load(about=about)[1] and not load(about=about)[1]
    assert files() == ["set-1.0.npz"], "the stale one is replaced"


def test_every_flip_and_cut_is_noticed(load):
    load()
    path = decoded.FOLDER / "set-1.0.npz"
    for broken in folders.damaged(path.read_bytes(), 40):
        path.write_bytes(broken)
        arrays, _ = load()
        assert arrays["x"].tolist() == np.arange(24).reshape(2, 3, 4).tolist() and arrays["y"].tolist() == [5, 6]


def test_arrays_of_another_key_are_rejected(load):
    load()
    arrays_and_seal = read_arrays(decoded.FOLDER / "set-1.0.npz", [*NAMES, "seal"])
    np.savez(decoded.FOLDER / "set-1.0.npz", **{**arrays_and_seal, "y": arrays_and_seal["y"] + 1})
    arrays, read = load()
    assert read and arrays["y"].tolist() == [5, 6]


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

    def full(*arguments, **options):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(decoded.np, "savez", full)
    assert load()[1] and files() == []
    source.rename(source.with_name("gone"))
    assert load()[1] and files() == []


def test_temporary_files_of_killed_processes_are_removed(load):
    decoded.FOLDER.mkdir()
    for name, age in ((".tmp-old", decoded.STALE + 9), (".tmp-new", 9)):
        (decoded.FOLDER / name).write_bytes(b"x")
        os.utime(decoded.FOLDER / name, (time.time() - age,) * 2)
    load()
    assert files() == [".tmp-new", "set-1.0.npz"]


def test_name_cannot_leave_the_cache_folder(load, tmp_path):
    load("../../outside/1.0")
    assert files() == ["..-..-outside-1.0.npz"] and not (tmp_path / "outside").exists()
