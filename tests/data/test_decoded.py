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
def place(tmp_path, monkeypatch):
    """A folder of source files, and one for the cache that takes any number of examples."""
    monkeypatch.setattr(decoded, "FOLDER", tmp_path / "cache")
    monkeypatch.setattr(decoded, "SMALLEST", 1)
    source = tmp_path / "source"
    source.mkdir()
    (source / "images").write_bytes(b"images")
    return source


@pytest.fixture
def ask(place):
    """`(name, about) -> (arrays, whether they were read)`."""

    def start(name="set/1.0", about=("train", None)):
        reads = []

        def read():
            reads.append(name)
            return {"x": np.arange(24, dtype=np.uint8).reshape(2, 3, 4), "y": np.array([5, 6], np.int32)}

        return decoded.cached(name, list(about), place, NAMES, read), bool(reads)

    return start


def files():
    return sorted(path.name for path in decoded.FOLDER.iterdir())


def test_the_second_time_nothing_is_read(ask):
    (first, read), (second, again) = ask(), ask()
    assert (read, again) == (True, False) and files() == ["set-1.0.npz"]
    assert first.keys() == second.keys() == set(NAMES)
    for name in NAMES:
        assert first[name].dtype == second[name].dtype
        np.testing.assert_array_equal(first[name], second[name])


@pytest.mark.parametrize("change", ["options", "size", "time", "name", "more", "version"])
def test_whatever_the_arrays_depend_on_makes_them_stale(ask, place, monkeypatch, change):
    ask()
    path = place / "images"
    about = ("train", 8) if change == "options" else ("train", None)
    if change == "size":
        then = path.stat().st_mtime_ns
        path.write_bytes(b"image")
        os.utime(path, ns=(then, then))
    elif change == "time":
        os.utime(path, ns=(1, path.stat().st_mtime_ns + 1))
    elif change == "name":
        path.rename(place / "pictures")
    elif change == "more":
        (place / "second").write_bytes(b"")
    elif change == "version":
        monkeypatch.setattr(decoded, "__version__", "9")
    assert ask(about=about)[1] and not ask(about=about)[1]
    assert files() == ["set-1.0.npz"], "the stale one is replaced"


def test_every_flip_and_cut_is_noticed(ask):
    ask()
    path = decoded.FOLDER / "set-1.0.npz"
    for broken in folders.damaged(path.read_bytes(), 40):
        path.write_bytes(broken)
        arrays, _ = ask()
        assert arrays["x"].tolist() == np.arange(24).reshape(2, 3, 4).tolist() and arrays["y"].tolist() == [5, 6]


def test_arrays_of_another_key_under_the_same_name_are_not_believed(ask):
    ask()
    found = read_arrays(decoded.FOLDER / "set-1.0.npz", [*NAMES, "seal"])
    np.savez(decoded.FOLDER / "set-1.0.npz", **{**found, "y": found["y"] + 1})
    arrays, read = ask()
    assert read and arrays["y"].tolist() == [5, 6]


def test_small_and_very_large_sets_are_not_kept(ask, monkeypatch):
    monkeypatch.setattr(decoded, "SMALLEST", 3)
    assert ask()[1] and ask()[1] and not decoded.FOLDER.exists()
    monkeypatch.setattr(decoded, "SMALLEST", 2)
    monkeypatch.setattr(decoded, "LARGEST", 31)
    assert ask()[1] and not decoded.FOLDER.exists()
    monkeypatch.setattr(decoded, "LARGEST", 32)
    assert ask()[1] and not ask()[1]


def test_a_cache_that_cannot_be_written_or_found_costs_nothing_else(ask, place, monkeypatch):
    decoded.FOLDER.write_text("a file where the folder should be")
    assert ask()[1]
    decoded.FOLDER.unlink()

    def full(*arguments, **options):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(decoded.np, "savez", full)
    assert ask()[1] and files() == []
    place.rename(place.with_name("gone"))
    assert ask()[1] and files() == []


def test_what_a_killed_process_left_is_swept_later(ask):
    decoded.FOLDER.mkdir()
    for name, age in ((".tmp-old", decoded.STALE + 9), (".tmp-new", 9)):
        (decoded.FOLDER / name).write_bytes(b"x")
        os.utime(decoded.FOLDER / name, (time.time() - age,) * 2)
    ask()
    assert files() == [".tmp-new", "set-1.0.npz"]


def test_a_name_leads_nowhere_else(ask, tmp_path):
    ask("../../outside/1.0")
    assert files() == ["..-..-outside-1.0.npz"] and not (tmp_path / "outside").exists()
