"""Files of predictions: formats, lists, names outside UTF-8, and paths that are refused."""

import json
import os

import pytest
from refusals import refusal

from hetero_tf.base.errors import DiskProblem, InputError
from hetero_tf.export.prediction_files import check_output, write

ROWS = [
    {"input": "a,1", "word": ["x", "y"], "probability": [0.5, 0.25], "error": None},
    {"input": "\udcffé", "word": None, "probability": None, "error": 'b "c"', "other": 1},
]


@pytest.mark.parametrize(("ending", "sign"), [("csv", ","), ("TSV", "\t")])
def test_tables(tmp_path, ending, sign):
    write(tmp_path / f"out.{ending}", iter(ROWS))
    first = "a,1" if sign == "\t" else '"a,1"'
    lines = [
        ["input", "word", "probability", "error"],
        [first, "x; y", "0.5; 0.25", ""],
        ["\\udcffé", "", "", '"b ""c"""'],
    ]
    assert (tmp_path / f"out.{ending}").read_text("utf-8") == "".join(f"{sign.join(line)}\n" for line in lines)


def test_json_lines(tmp_path):
    write(tmp_path / "out.jsonl", iter(ROWS))
    text = (tmp_path / "out.jsonl").read_text("utf-8")
    assert "é" in text and [json.loads(line)["word"] for line in text.splitlines()] == [["x", "y"], None]


def test_an_earlier_file_stays_until_the_new_one_is_complete(tmp_path):
    path = tmp_path / "out.csv"
    path.write_text("earlier")

    def rows():
        yield ROWS[0]
        assert path.read_text() == "earlier"
        raise InputError("a file is gone")

    assert refusal(write, path, rows()) == "a file is gone"
    assert path.read_text() == "earlier" and [entry.name for entry in tmp_path.iterdir()] == ["out.csv"]
    message = refusal(write, tmp_path / "none" / "out.csv", iter(ROWS), kind=DiskProblem)
    assert "its folder does not exist" in message


def test_paths_are_checked(tmp_path):
    table = tmp_path / "rows.csv"
    table.write_text("a\n")
    os.link(table, tmp_path / "same.csv")
    (tmp_path / "link.csv").symlink_to(table)
    assert refusal(check_output, tmp_path / "out.xlsx", []) == (
        f"--out must end in one of .csv, .tsv, .jsonl, .ndjson. Received: --out={tmp_path}/out.xlsx"
    )
    for path in (table, tmp_path / "same.csv"):
        assert refusal(check_output, path, ["x", str(table)]) == (
            f"--out must not be an input, which would be lost. Received: --out={path}"
        )
    assert "expected a file or nothing. Received: a symbolic link" in refusal(check_output, tmp_path / "link.csv", [])
    check_output(tmp_path / "new.csv", [str(table)])
