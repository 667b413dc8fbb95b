"""Metrics rows: strict JSON lines that survive a kill in the middle of a row."""

import json
import os

import numpy as np
import pytest
from disk import record_disk

from hetero_tf.base.errors import InputError
from hetero_tf.base.files import Damaged
from hetero_tf.runs import metrics_file


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "metrics.jsonl"
    for number in range(1, 6):
        metrics_file.append(path, {"round": number, "loss": 1 / number})
    return path


def numbers(path):
    return [row["round"] for row in metrics_file.rows(path)]


def test_rows_come_back_and_a_missing_file_has_none(path, tmp_path):
    assert metrics_file.rows(path) == [{"round": number, "loss": 1 / number} for number in range(1, 6)]
    assert path.read_bytes().splitlines()[1] == b'{"loss":0.5,"round":2}'
    assert metrics_file.rows(tmp_path / "m") == []
    assert not (tmp_path / "m").exists()


def test_not_finite_is_null_and_numpy_is_plain(path):
    row = {"round": np.int64(6), "loss": np.float32("nan"), "accuracy": [np.inf, 0.5], "note": "two\nlines\r\u2028é"}
    metrics_file.append(path, {**row, "round": 6})
    assert metrics_file.rows(path)[-1] == {"round": 6, "loss": None, "accuracy": [None, 0.5], "note": row["note"]}
    assert path.read_bytes().count(b"\n") == 6
    json.loads(path.read_text().split("\n")[5], parse_constant=pytest.fail)


@pytest.mark.parametrize("row", [{"loss": 1}, {"round": None}, {"round": 1.0}, {"round": True}, [1]])
def test_a_row_needs_its_round(path, row):
    with pytest.raises(InputError, match="a row of metrics needs an integer 'round'. Received: row="):
        metrics_file.append(path, row)
    assert numbers(path) == [1, 2, 3, 4, 5]


def test_every_torn_end_is_left_out(path):
    """Cut at each byte of the last row: whole rows stay."""
    data = path.read_bytes()
    for end in range(data.rindex(b"\n", 0, -1) + 1, len(data)):
        path.write_bytes(data[:end])
        assert numbers(path) == [1, 2, 3, 4]


@pytest.mark.parametrize("torn", [b'{"round": 6, "lo', b"\0\0\0\0", b'{"round": 6, "lo\n', b"\0\0\n", b'{"loss": 1}\n'])
def test_other_torn_last_lines(path, torn):
    """After a power cut the end of a file may also be zeros, or a line end may stand without its line."""
    whole = path.read_bytes()
    path.write_bytes(whole + torn)
    assert numbers(path) == [1, 2, 3, 4, 5]
    assert path.read_bytes() == whole + torn


def test_a_broken_line_in_the_middle_is_named(path):
    lines = path.read_bytes().split(b"\n")
    lines[2] = b'{"round": NaN}'
    path.write_bytes(b"\n".join(lines))
    with pytest.raises(Damaged, match=r"metrics.jsonl:3: is not plain JSON: NaN is not a number; remove or repair"):
        metrics_file.rows(path)
    assert path.read_bytes() == b"\n".join(lines)


def test_a_link_is_not_written_through(tmp_path):
    (tmp_path / "target").write_text("mine")
    (tmp_path / "m").symlink_to(tmp_path / "target")
    with pytest.raises(InputError, match="m: expected a file or nothing. Received: a symbolic link; move it away"):
        metrics_file.append(tmp_path / "m", {"round": 1})
    assert (tmp_path / "target").read_text() == "mine"


def test_a_row_is_on_the_disk_when_append_returns(tmp_path, monkeypatch):
    """First row: file, then the folder that got its name; later rows: the file alone."""
    calls = record_disk(monkeypatch, tmp_path)
    for number in (1, 2):
        metrics_file.append(tmp_path / "m", {"round": number})
    assert calls == ["sync m 12", "sync .", "sync m 24"]


def test_short_writes_are_continued(tmp_path, monkeypatch):
    """The system may take any part of a write; three bytes at a time must give the same row."""
    write = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, data: write(descriptor, data[:3]))
    metrics_file.append(tmp_path / "m.jsonl", {"round": 1, "loss": 0.25})
    assert metrics_file.rows(tmp_path / "m.jsonl") == [{"round": 1, "loss": 0.25}]
