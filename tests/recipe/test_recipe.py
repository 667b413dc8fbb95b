"""Errors of invalid recipes: exact messages, their number, their positions and the overrides that cause them."""

import itertools
import re

import pytest
from bad_recipes import BASE, EDITS, OVERRIDES, TEXT, TEXT_EDITS
from refusals import refusal

from hetero_tf import recipe
from hetero_tf.run.data import load_data, split


def error_of(text, overrides=()):
    return refusal(recipe.loads, text, "r.yaml", overrides)


# Numbers of errors of recipes with several.
SEVERAL = {
    "epochs of no level": 2,
    "members of an unknown level": 3,
    "depth without an exit": 2,
    "an ensemble of which the first lacks some": 2,
    "everyone idle": 2,
    "half of dynamic, server": 2,
}


@pytest.mark.parametrize(
    "base, row",
    [pytest.param(base, row, id=row[0]) for base, rows in ((BASE, EDITS), (TEXT, TEXT_EDITS)) for row in rows],
)
def test_wrong_recipe(base, row):
    name, piece, replacement, message = row
    assert piece in base
    text = base.replace(piece, replacement, 1)
    lines = (error_of(text) + "\n\n").split("\n")
    assert lines[0] == (f"r.yaml: {SEVERAL[name]} errors" if name in SEVERAL else message)
    # The line of the file follows the last error at its position.
    followers = lines[lines.index(message) + 1 :]
    line, caret, *_ = itertools.dropwhile(lambda line: line.startswith("r.yaml:"), followers)
    number, column = (int(part) for part in re.match(r"r\.yaml:(\d+):(\d+): ", message).groups())
    written = (text.splitlines() + [""])[number - 1].replace("\t", " ")
    assert line in written and len(line) <= 110
    if len(written) <= 110:
        assert line == written and caret == " " * (column - 1) + "^"


@pytest.mark.parametrize("override, expected", OVERRIDES)
def test_wrong_override(override, expected):
    assert error_of(BASE, [override]) == expected


def test_all_errors_of_a_one_line_recipe_are_reported_at_once():
    header, *lines, line, caret = error_of("rounds: 3\n").split("\n")
    assert header == "r.yaml: 9 errors" and (line, caret) == ("rounds: 3", "^")
    keys = ("name", "data", "input", "partition", "model", "levels", "round", "client", "optimizer")
    assert [re.match(r"r\.yaml:1:1: the key '(\w+)' is missing \(", line)[1] for line in lines] == list(keys)
    needs = [line.partition("; it needs ")[2] for line in lines if "; it needs " in line]
    assert needs == ["widths and mix", "clients", "batch_size", "learning_rate"]


def test_errors_of_several_sections_and_overrides_are_reported_in_order():
    text = BASE.replace("epochs: 1", "epochs: 0").replace("clients: 5", "clients: x")
    text = text.replace("seed: 0", "seed: -1\nsede: 1")
    overrides = ["rounds", "evaluate.every=0", "levels.mix=9", "levels.widths={a: 3, b: 2}", "round.sever=sgd"]
    lines = error_of(text, overrides).split("\n")
    keys = ("evaluate.every", "levels.mix", "levels.widths.a", "levels.widths.b", "round.sever")
    labels = [re.escape(f"--set {overrides[number]}: ") for number in (1, 2, 3, 3, 4)]
    expected = ["r.yaml: 10 errors", "--set rounds: must be path=value", *map("".join, zip(labels, keys))]
    expected += ["r.yaml:2:7: seed: too small", "r.yaml:3:1: sede: unknown", "r.yaml:17:18: round.clients: wrong type"]
    expected += ["r.yaml:18:18: client.epochs: too small"]
    messages = [line for line in lines if line.startswith(("r.yaml", "--set"))]
    assert all(re.match(start, line) for start, line in zip(expected, messages, strict=True))


def test_many_errors_are_counted_and_frames_of_long_lines_stay_short_and_point_right():
    message = error_of(BASE + "".join(f"key{number}: 1\n" for number in range(23)))
    assert message.startswith("r.yaml: 23 errors\n") and message.endswith("\n... and 3 more")
    assert message.count("unknown key") == 20 and "key19: unknown key 'key19'; known: " in message
    padding = "x" * 300
    text = BASE.replace("kind: images}", f"kind: {padding}, exampels: 3, test_examples: 5}}")
    _, kind, line, caret, message, *_ = error_of(text).split("\n")
    assert "data.kind: unknown value" in kind and len(line) <= 110 and line[caret.index("^") :].startswith("xxx")
    _, _, _, _, message, line, caret = error_of(text).split("\n")
    assert message.endswith("data.exampels: unknown key 'exampels'; did you mean 'examples'?")
    assert len(line) <= 110 and line[caret.index("^") :].startswith("exampels")


def test_an_error_in_a_file_also_names_the_overrides(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text("base: digits\ndata: {name: synthetic, examples: 40, test_examples: 9}\nround.clients: 100\n")
    message = refusal(recipe.load, path, ["rounds=3", "evaluate.exits=mean"])
    assert re.search(r"^--set evaluate.exits=mean: evaluate.exits: has no effect because .*'mean'$", message, re.M)
    expected = (
        r":3:16: round.clients: more active .* at most 30 .* 100 \(with --set rounds=3 --set evaluate.exits=mean\)"
    )
    assert re.search(expected, message)
    of_split = refusal(
        split, made := recipe.load(path, ["partition.clients=50", "round.clients=1"]), load_data(made, None)
    )
    assert of_split.startswith("--set partition.clients=50: partition.clients: must be in 1..40, ")
    of_data = refusal(
        load_data, recipe.load(path, ["data={name: csv, label: zz}", "data.path=no.csv", "round.clients=1"]), None
    )
    assert of_data.startswith("--set data.path=no.csv: data.path: must name an existing file. ")
