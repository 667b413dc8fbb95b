"""`new`: writes a recipe, and replaces files only on request."""

import json

import pytest


@pytest.fixture
def run(tmp_path, monkeypatch, command):
    """Run `new` in a folder with a table; return its exit code and both outputs."""
    monkeypatch.chdir(tmp_path)
    lines = [f"{i % 7},{i % 5},{'xy'[i % 2]},{i % 3}" for i in range(60)]
    (tmp_path / "t.csv").write_text("\n".join(["a,b,c,d", *lines]))
    return lambda *words: command("new", *words)


def test_the_recipe_is_printed_and_written(run, tmp_path):
    code, out, err = run("t.csv")
    text = (tmp_path / "t.yaml").read_text()
    assert (code, err) == (0, "") and out.startswith(text) and "\nwrote t.yaml\n" in out
    assert "next: hetero_tf describe --recipe t.yaml" in out and "# run: hetero_tf describe --recipe t.yaml" in text


def test_an_existing_file_is_replaced_only_on_request(run, tmp_path):
    (tmp_path / "t.yaml").write_text("mine")
    code, _, err = run("t.csv")
    assert (code, err) == (2, "hetero_tf: t.yaml: exists; choose another file with --out, or replace it with --yes\n")
    assert (tmp_path / "t.yaml").read_text() == "mine"
    assert run("t.csv", "--out=other.yaml")[0] == 0 and (tmp_path / "other.yaml").exists()
    code, out, _ = run("t.csv", "--yes")
    assert code == 0 and "\nreplaced t.yaml\n" in out and (tmp_path / "t.yaml").read_text() != "mine"


def test_json_lists_the_choices(run):
    code, out, _ = run("t.csv", "--json", "--label=c", "--task=classification")
    choices = json.loads(out)["choices"]
    assert code == 0 and choices["data.label"] == ["c", "set by --label", False]
    assert choices["task"] == ["classification", "set by --task", False]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "new needs one path, such as my_table.csv, or a name of TensorFlow Datasets, such as mnist"),
        (("./none.csv",), "`PATH` must name an existing file. Received: PATH='./none.csv'; searched: "),
        (("t.csv", "--task=segmentation"), "--task: t.csv can train classification or binary or ordinal or regress"),
    ],
)
def test_problems_have_one_sentence(run, words, message):
    code, out, err = run(*words)
    assert (code, out) == (2, "") and message in err


def test_names_of_recipes_are_made_from_paths():
    from hetero_tf.starter import recipe_name

    names = {"a/my table.csv": "my_table", "b/pictures/": "pictures", "x.tar.gz": "x"}
    assert {path: recipe_name(path) for path in names} == names
