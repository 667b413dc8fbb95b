"""Exports stored for several tests: written once in a session, whole or not at all."""

import exports
import pytest


def test_an_export_is_written_once_and_never_half(tmp_path, monkeypatch):
    def write(folder):
        (folder / "export").write_text("whole")

    def fail(folder):
        write(folder)
        raise OSError("full")

    monkeypatch.setenv("HETERO_TF_EXPORTS", str(tmp_path))
    with pytest.raises(OSError, match="full"):
        exports.stored(fail, "one")
    first = exports.stored(write, "one")
    assert first == exports.stored(fail, "one") != exports.stored(write, "two")
    assert (first / "export").read_text() == "whole"
    assert sorted(path.suffix for path in first.parent.iterdir()) == ["", "", ".lock", ".lock"]
