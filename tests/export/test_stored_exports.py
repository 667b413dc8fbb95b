"""Exports stored for several tests: written once for each version of the code, whole or not at all."""

import functools
import shutil

import exports
import pytest


@pytest.fixture
def root(tmp_path, monkeypatch):
    """A checkout with one file in each folder of sources, and an empty cache."""
    for folder in exports.SOURCES:
        (tmp_path / "checkout" / folder).mkdir(parents=True)
        (tmp_path / "checkout" / folder / "file.py").write_text("x = 1\n")
    monkeypatch.setattr(exports, "ROOT", tmp_path / "checkout")
    monkeypatch.setattr(exports, "FOLDER", tmp_path / "cache")
    exports.digest.cache_clear()
    yield tmp_path / "checkout"
    exports.digest.cache_clear()


def write(folder):
    (folder / "export").write_text("whole")


def test_key_changes_with_every_source_file(root):
    keys = set()
    for source in exports.SOURCES:
        path = root / source / "file.py"
        shutil.copytree(root / source, root / source / "__pycache__")
        for change in (bool, functools.partial(path.write_text, "x = 2"), path.with_name("new.py").touch):
            change()
            keys.add(exports.digest.__wrapped__(root))
    # Compiled files change no key: the first change of each folder is none.
    assert len(keys) == 1 + 2 * len(exports.SOURCES)


def test_an_export_is_written_once_and_never_half(root):
    def fail(folder):
        write(folder)
        raise OSError("full")

    with pytest.raises(OSError, match="full"):
        exports.stored(fail, "one")
    first = exports.stored(write, "one")
    assert first == exports.stored(fail, "one") != exports.stored(write, "two")
    assert (first / "export").read_text() == "whole"
    assert sorted(path.suffix for path in first.parent.iterdir()) == ["", "", ".lock", ".lock"]
