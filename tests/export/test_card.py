"""MODEL_CARD.md: its commands are safe to paste, and its names are text, whatever the data contain."""

import json
import re
import subprocess

import pytest

from hetero_tf.data.codecs import Field
from hetero_tf.data.codecs.category import Codec as Category
from hetero_tf.export.card import model_card

CATEGORIES = ["A'; touch PWNED; echo '", "O'Fallon", '"$(touch PWNED)`touch PWNED`"', "```\ntouch PWNED"]


def card(category, class_names=("no", "yes"), recipe="mine", data="mine.csv"):
    """The card of a table with one column."""
    field = Field("town", Category((category,))).describe()
    about = {
        "recipe": recipe,
        "level": "a",
        "width": 1.0,
        "round": 1,
        "data": {"name": data},
        "classes": 2,
        "class_names": class_names,
        "task": "classification",
        "method": {"submodel": "heterofl"},
        "training": {},
        "parameters": 1,
        "measured": {"on": "the whole test set"},
        "formats": {},
        "input": {"kind": "table", "fields": [field], "normalised_by": {}},
        "items": {"signature": "serving_default"},
        "signatures": {"serving_default": {"inputs": {"town": {"dtype": "string", "shape": [None]}}, "outputs": {}}},
    }
    return model_card(about, "pass\n", [])


@pytest.mark.parametrize("category", CATEGORIES)
def test_the_shell_of_a_reader_sends_the_category_and_runs_nothing_else(tmp_path, category):
    (line,) = re.findall("```sh\n(.*)\n```", card(category))
    program = tmp_path / "bin" / "curl"
    program.parent.mkdir()
    program.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    program.chmod(0o755)
    environment = {"PATH": f"{program.parent}:/usr/bin:/bin"}
    result = subprocess.run(
        ["sh", "-c", line], capture_output=True, text=True, cwd=tmp_path, env=environment, timeout=60, check=True
    )
    flag, body, url = result.stdout.splitlines()
    assert (flag, url) == ("-d", "http://127.0.0.1:8501/v1/models/a:predict")
    assert json.loads(body) == {"signature_name": "serving_default", "instances": [category]}
    assert [path.name for path in tmp_path.iterdir()] == ["bin"]


def test_names_are_text_and_not_html():
    hostile = "<img src=x>\n|[a](b)"
    text = card("here", (hostile, "yes"), hostile, hostile).split("---\n\n")[1]
    assert re.findall(r"(?<!\\)[<[]|^\|\[", text.partition("## Signatures")[0], re.MULTILINE) == [], text
    assert r"| classes | 2: \<img src=x\>\\n\|\[a\](b), yes |" in text
