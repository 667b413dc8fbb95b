"""Runs whose data have gone: descriptions of data sets, and `predict` and `export` by them."""

import dataclasses
import functools
import json

import numpy as np
import programs
import pytest
import tiny

from hetero_tf.base.errors import InputError, MemoryProblem
from hetero_tf.data.codecs import Field, category, number, picture, words
from hetero_tf.data.dataset import Dataset, Split
from hetero_tf.data.described import describe
from hetero_tf.run import data
from hetero_tf.runs import checkpoints

RNG = np.random.default_rng(3)


def build(x, fields, classes, **named):
    splits = (Split(x, RNG.integers(0, classes, len(x)).astype(np.int32)) for _ in range(2))
    return Dataset(*splits, fields, classes, **named)


COLUMNS = Field("size", number.Codec()), Field("colour", category.Codec(("red", "blue")))
TABLE = build(
    RNG.normal(50, 9, (40, 3)).astype(np.float32), COLUMNS, 2, source="table (t.csv)", class_names=("no", "yes")
)
SENTENCES = Field("text", words.Codec(5, ("<pad>", "<unk>", "good", "bad")))
SEQUENCES = build(RNG.integers(0, 4, (9, 5)).astype(np.int32), (SENTENCES,), 3, source="sentences")
PIXELS = RNG.normal(0, 9, (9, 4, 4, 2)).astype(np.float32)
FLOATS = build(PIXELS, (picture.field(PIXELS),), 3, source="floats", stand_in_for="the real ones")
SETS = {"table": TABLE, "sequences": SEQUENCES, "floats": FLOATS}
SETS |= {"images": tiny.images()[0], "text": tiny.text()[0]}


@pytest.mark.parametrize("name", SETS)
def test_a_description_is_a_data_set_with_other_examples(tmp_path, name):
    dataset = SETS[name]
    data.save_description(tmp_path / "data.json", dataset)
    loaded = data.load_description(tmp_path / "data.json")
    for field in ("fitted_fields", "classes", "source", "class_names", "stand_in_for", "sha256"):
        assert getattr(loaded, field) == getattr(dataset, field)
    for split, described in ((dataset.train, loaded.train), (dataset.test, loaded.test)):
        assert described.x.shape == (32, *split.x.shape[1:]) and described.x.dtype == split.x.dtype
    if name == "table":
        assert np.array_equal(loaded.feature_statistics, dataset.feature_statistics)
    if name == "floats":
        assert dataset.train.x.min() <= loaded.train.x.min() < loaded.train.x.max() <= dataset.train.x.max()


HUGE = {"name": "image", "codec": "picture", "shape": [10**6, 10**6, 3]}


def forged(**changes):
    """The described columns of a table, of which the second one is changed."""
    first, second = describe(TABLE)["fields"]
    return [first, {**second, **changes}]


@pytest.mark.parametrize(
    ("change", "error", "sentence"),
    [
        ({"fields": [HUGE]}, MemoryProblem, "needs .* GiB, but half of this machine's memory is"),
        ({"fields": []}, InputError, "target_statistics and fields must fit the other values; put it back, or delete"),
        ({"fields": [3]}, InputError, r"data.json: fields\[0\] has an unknown name or codec; put it back"),
        ({"fields": forged(codec="os")}, InputError, r"fields\[1\] has an unknown name or codec"),
        ({"fields": forged(mean="x")}, InputError, "data.json: field 'colour': mean must be a list. Received: 'x'"),
        ({"fields": forged(mean=[1.0])}, InputError, "field 'colour': .* must fit"),
        ({"fields": forged(categories=["x", 1])}, InputError, r"categories\[1\] must be text"),
        ({"fields": forged(fill="x")}, InputError, "`fill` must be one of the categories. Received: fill='x'"),
        ({"fields": forged(notation="roman")}, InputError, "notation must be 'plain', .*. Received: 'roman'"),
        ({"fields": forged(codec="date", order="ydm")}, InputError, "order must be '.*. Received: 'ydm'"),
        ({"targets": "words"}, InputError, "targets must be one of label, .*. Received: 'words'"),
        ({"class_names": [1, 2]}, InputError, r"class_names\[0\] must be text. Received: 1; put it back, or delete it"),
        ({"classes": 10**30}, InputError, "classes must be a whole number of at most 64 bits"),
    ],
)
def test_a_forged_description_is_refused(tmp_path, change, error, sentence):
    path = tmp_path / "data.json"
    data.save_description(path, TABLE)
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(error, match=sentence):
        data.load_description(path)


RECIPE = """
base: digits
name: rows
data: {name: csv, path: rows.csv, label: kind}
input: table
model:
  layers: [Dense: {units: !w 8}, Norm: {kind: sbn}, ReLU, Dense: {units: !classes}]
partition.clients: 6
round.clients: 2
client.epochs: 1
rounds: 1
levels.mix: a-b
"""


@pytest.fixture
def run(tmp_path):
    """Runs the program in a folder with the recipe and its data."""
    rows = [f"{RNG.random():.3f},{colour},{kind}" for colour in ("red", "blue") for kind in "ab" for _ in range(20)]
    (tmp_path / "rows.csv").write_text("\n".join(["size,colour,kind", *rows]))
    (tmp_path / "rows.yaml").write_text(RECIPE)
    return functools.partial(programs.shared().run, cwd=tmp_path)


@pytest.mark.long
def test_predict_and_export_do_not_need_the_data(run, tmp_path):
    assert run("--recipe", "rows.yaml", "--run_dir", "run", stub=True).code == 0
    predict = ("predict", "--run_dir", "run", "0.9,red")
    of_description, file = run(*predict), tmp_path / "run" / "data.json"
    content = file.read_bytes()
    file.unlink()
    of_data = run(*predict)
    assert of_data.code == 0 and of_description.out == of_data.out, of_data.err
    file.write_bytes(content)
    (tmp_path / "rows.csv").unlink()
    without = run(*predict)
    assert (without.code, without.out) == (0, of_data.out), without.err
    export = run("export", "--run_dir", "run")
    assert export.code == 0, export.err
    assert "note: exported without data, so the files are not evaluated: run/recipe.yaml:" in export.out
    assert "exported round 1 to run/export/a/1: the model of level a, not measured" in export.out
    about = json.loads((tmp_path / "run" / "export" / "a" / "1" / "export.json").read_text())
    assert about["measured"] == {"on": "nothing, since the data were missing at the export"}
    assert [column["name"] for column in about["input"]["fields"]] == ["size", "colour"]
    assert about["class_names"] == ["a", "b"] and about["last"]["round"] == 1
    # Statistics of a narrower level were not queried, and measuring needs examples.
    missing = "must name an existing file. Received: path='rows.csv'"
    reason = (
        "; the data are needed: the run folder lacks the batch normalization statistics of level b; runs with "
        "evaluate.levels: all save them for all levels\n  data: {"
    )
    for command in (("export", "--run_dir", "run", "--level", "b"), (*predict, "--level", "b")):
        refused = run(*command)
        assert refused.code == 2 and missing in refused.err and reason in refused.err, refused.err
    refused = run("evaluate", "--run_dir", "run")
    assert refused.code == 2 and missing in refused.err
    file.write_bytes(content[:-9])
    damaged = run(*predict)
    assert damaged.code == 2 and "data.json: is not plain JSON" in damaged.err


@pytest.mark.long
def test_levels_that_training_measured_are_exported_without_the_data(run, tmp_path):
    assert run("--recipe", "rows.yaml", "--run_dir", "run", "--set", "evaluate.levels=all", stub=True).code == 0
    of_data = run("predict", "--run_dir", "run", "--level", "b", "0.9,red")
    (tmp_path / "rows.csv").unlink()
    of_state = run("predict", "--run_dir", "run", "--level", "b", "0.9,red")
    assert (of_state.code, of_state.out) == (0, of_data.out), of_state.err
    exported = run("export", "--run_dir", "run", "--level", "all")
    assert exported.code == 0 and "of level b, not measured" in exported.out, exported.err
    names = checkpoints.load_newest(tmp_path / "run" / "checkpoints").arrays
    assert {name.split("/")[1] for name in names if name.startswith("level_statistics/")} == {"b"}


def test_a_description_of_other_data_is_refused_and_without_a_partition_the_data_are_read(tmp_path):
    recipe, folder = programs.recipe_file(tmp_path), tmp_path / "run"
    trained = programs.shared().run(f"--recipe={recipe}", "--set=rounds=1", f"--run_dir={folder}", stub=True)
    assert trained.code == 0, trained.err
    data.save_description(folder / "data.json", dataclasses.replace(TABLE, classes=10, class_names=None))
    refused = programs.shared().run("predict", f"--run_dir={folder}", "x.png")
    assert refused.code == 2 and "was trained on other data than table (t.csv)" in refused.err, refused.err
    (folder / "partition.npz").unlink()
    read = programs.shared().run("predict", f"--run_dir={folder}", "x.png")
    assert read.code == 2 and "x.png: could not read: No such file or directory" in read.err, read.err
