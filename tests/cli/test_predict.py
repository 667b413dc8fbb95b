"""The command `predict`: files in, files out, exit codes, closed pipes and full disks."""

import csv
import json
import subprocess
import sys

import programs
import pytest

TABLE = """
name: small_table
data: {name: csv, path: train.csv, label: kind, header: true}
input: table
partition: {name: iid, clients: 3}
model: {layers: [[Dense: {units: !w 8}, Scaler, ReLU], Dense: {units: !classes }]}
levels: {widths: {a: 1.0, b: 0.5}, mix: a-b}
round: {clients: 2}
client: {batch_size: 5}
optimizer: {learning_rate: 0.1}
rounds: 2
"""


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory):
    """A trained run on a table."""
    folder = tmp_path_factory.mktemp("predict")
    rows = [f"{index % 2 * 5 + index / 100},{index},{['cow', 'ox'][index % 2]}" for index in range(60)]
    (folder / "train.csv").write_text("\n".join(["size,age,kind", *rows]))
    path = programs.recipe_file(folder, TABLE)
    run = programs.shared().run("--recipe", path, "--run_dir", folder / "run", "--data_dir", folder, stub=True)
    assert run.code == 0, run.err
    (folder / "train.csv").unlink()
    return folder / "run"


def predict(run_dir, *arguments, **options):
    return programs.shared().run("predict", "--run_dir", run_dir, *arguments, **options)


def test_a_file_of_rows_becomes_a_file_of_predictions(run_dir, tmp_path):
    (tmp_path / "rows.csv").write_text("kind,age,size,id\nox,1,5.2,7\ncow,x,0,8\ncow,2,0.1,9\n")
    out = tmp_path / "out.csv"
    run = predict(run_dir, tmp_path / "rows.csv", "--out", out, "--copy_columns", "--top", "1")
    rows = list(csv.DictReader(out.read_text().splitlines()))
    assert list(rows[0]) == ["input", "kind", "age", "size", "id", "class", "probability", "error"]
    assert [(row["input"].rpartition(":")[2], row["id"], row["error"]) for row in rows] == [
        ("2", "7", ""),
        ("3", "8", "column 'age' must be a finite number. Received: 'x'"),
        ("4", "9", ""),
    ]
    assert run.code == 2 and run.err == "hetero_tf: 1 of 3 items could not be read; see the column error\n"
    assert run.out.splitlines() == [f"{tmp_path}/rows.csv: ignored columns: kind, id", f"wrote 3 predictions to {out}"]


@pytest.mark.long
def test_lines_and_json_have_the_same_predictions(run_dir):
    row = "age=1,size=5.2"
    lines, data = predict(run_dir, row), json.loads(predict(run_dir, row, "--json").out)
    (prediction,) = data["predictions"]
    assert lines.code == 0 and lines.err == ""
    run = predict(run_dir, row, "age=1", "age=1,size=x")
    assert (
        run.code == 2
        and run.out == lines.out
        and run.err.splitlines()
        == [
            "age=1: a row must have a value for each column, size, age, separated by commas: `1,2`, or `NAME=1,NAME=2` in any "
            "order. Received: 'age=1'",
            "age=1,size=x: column 'size' must be a finite number. Received: 'x'",
            "hetero_tf: 2 of 3 items could not be read",
        ]
    )
    share, other = (f"{100 * prediction[name]:.1f} %" for name in ("probability", "probability_2"))
    assert lines.out == f"{row}: {prediction['class']} {share}, {prediction['class_2']} {other}\n"
    assert (data["level"], data["round"], data["items"], data["invalid"]) == ("a", 2, 1, 0)
    message = "--maps needs a model of the task segmentation with at most 256 classes"
    assert predict(run_dir, "--maps", "maps", row).err == f"hetero_tf: {message}\n"


def test_flags_are_checked_before_anything_is_computed(run_dir, tmp_path):
    assert predict(run_dir).err == (
        "hetero_tf: predict needs a file, a folder of pictures or WAV files, a row such as 5.1,red, or a sentence\n"
    )
    assert "--level A: no such level; known: a, b" in predict(run_dir, "1,2", "--level", "A").err
    (tmp_path / "rows.csv").write_text("size,age\n1,2\n")
    run = predict(run_dir, tmp_path / "rows.csv", "--out", tmp_path / "rows.csv")
    assert run.code == 2 and "--out must not be an input" in run.err
    assert (tmp_path / "rows.csv").read_text() == "size,age\n1,2\n"


@pytest.mark.long
def test_a_closed_pipe_or_a_full_disk_ends_the_command(run_dir, tmp_path):
    (tmp_path / "rows.csv").write_text("size,age\n" + "1,2\n" * 300_000)
    words = [sys.executable, "-m", "hetero_tf", "predict", "--run_dir", str(run_dir), str(tmp_path / "rows.csv")]
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "env": programs.environment()}
    with subprocess.Popen(words, **options) as process:
        assert b"rows.csv:2: " in process.stdout.readline()
        process.stdout.close()
        assert (process.stderr.read(), process.wait(timeout=60)) == (b"", 0)
    with open("/dev/full", "w") as full:
        run = subprocess.run(words, **options | {"stdout": full}, timeout=60)
    assert run.returncode == 3
    assert run.stderr == (
        b"hetero_tf: OSError: [Errno 28] No space left on device; check the disk and run the same command again\n"
    )
