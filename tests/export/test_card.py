"""MODEL_CARD.md: its commands are safe to paste, its names are text, and its examples have the fields of the export."""

import base64
import json
import re
import subprocess

import numpy as np
import pytest
import tensorflow as tf
from refusals import refusal

from hetero_tf.data.codecs import Field, category, date, number, picture, raw, series, sound, words
from hetero_tf.export.card import example_request, model_card

CATEGORIES = ["A'; touch PWNED; echo '", "O'Fallon", '"$(touch PWNED)`touch PWNED`"', "```\ntouch PWNED"]


def card(town, class_names=("no", "yes"), recipe="mine", data="mine.csv"):
    """The card of a table with one column."""
    field = Field("town", category.Codec((town,))).describe()
    about = {"recipe": recipe, "level": "a", "width": 1.0, "round": 1, "data": {"name": data}, "classes": 2}
    about |= {"class_names": class_names, "task": "classification", "method": {"submodel": "prefix"}, "training": {}}
    about |= {"method_name": "HeteroFL", "test_examples": 1234}
    about |= {"parameters": 1, "measured": {"on": "the whole test set"}, "formats": {}}
    about |= {"input": {"kind": "table", "fields": [field], "normalised_by": {}}}
    inputs = {"town": {"dtype": "string", "shape": [None]}}
    about["signatures"] = {"serving_default": {"inputs": inputs, "outputs": {}}}
    return model_card(about, [])


@pytest.mark.parametrize("town", CATEGORIES)
def test_the_shell_of_a_reader_sends_the_category_and_runs_nothing_else(tmp_path, town):
    (line,) = re.findall("```sh\n(.*)\n```", card(town))
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
    assert json.loads(body) == {"signature_name": "serving_default", "instances": [town]}
    assert [path.name for path in tmp_path.iterdir()] == ["bin"]


def test_names_are_text_and_not_html():
    hostile = "<img src=x>\n|[a](b)"
    text = card("here", (hostile, "yes"), hostile, hostile).split("---\n\n")[1]
    assert re.findall(r"(?<!\\)[<[]|^\|\[", text.partition("## Signatures")[0], re.MULTILINE) == [], text
    assert r"| classes | 2: \<img src=x\>\\n\|\[a\](b), yes |" in text


def instance(signature, *fields, kind="", inputs=None):
    """The example for a model whose signature has an input for each field."""
    spec = {"kind": kind, "fields": json.loads(json.dumps([field.describe() for field in fields]))}
    about = {"signatures": {signature: {"inputs": inputs or {}}}, "input": spec}
    request = example_request(about)
    assert request["signature_name"] == signature and len(request["instances"]) == 1
    return request["instances"][0]


def test_the_example_of_each_codec():
    """A row has the means of its columns, a category and a date; series are waves around their means."""
    fields = (
        Field("power (kW)", number.Codec(mean=(1234.5,), std=(1.0,))),
        Field("fuel", category.Codec(("diesel", "petrol"))),
        Field("sold", date.Codec("dmy")),
    )
    assert instance("serving_default", *fields) == {"power__kW_": 1230.0, "fuel": "diesel", "sold": "2024-12-31"}
    assert instance("serving_default", fields[1]) == "diesel"
    codec = series.Codec((24, 2), mean=(50.0, 0.0), std=(5.0, 1.0))
    values = np.array(instance("serving_default", Field("series", codec)))
    assert values.shape == (24, 2) and 45 <= values[:, 0].min() < 46 and 54 < values[:, 0].max() <= 55
    for kind, text in (("text", "<mask>"), ("next_word", "the end"), ("sequences", "sentence")):
        assert text in instance("serve_text", Field("text", words.Codec(5)), kind=kind)


def test_without_a_signature_for_items_the_example_consists_of_numbers():
    row, size = {"dtype": "float32", "shape": [None, 3]}, [None, 2, 1, 1]
    inputs = {"row": row, "picture": {"dtype": "uint8", "shape": size}}
    fields = Field("row", raw.Codec((3,))), Field("picture", raw.Codec((2, 1, 1), "uint8"))
    spec = {"kind": "arrays", "fields": [field.describe() for field in fields]}
    about = {"signatures": {"serving_default": {"inputs": inputs}}, "input": spec}
    assert example_request(about)["instances"] == [{"row": [0, 0, 0], "picture": [[[0]], [[0]]]}]
    spec["fields"] = [Field("text", words.Codec(5)).describe()]
    about["signatures"]["serving_default"]["inputs"] = {"token_ids": {"shape": [None, None]}}
    assert example_request(about)["instances"] == [[0]]


def test_files_have_the_size_of_the_input():
    file = instance("serve_bytes", Field("image", picture.Codec((8, 12, 3))))
    pixels = tf.io.decode_png(base64.b64decode(file["b64"])).numpy()
    assert pixels.shape == (64, 96, 3) and set(np.unique(pixels)) == {0, 255} and pixels[32, 48, 0] == 0
    clip = instance("serve_bytes", Field("audio", sound.Codec(4000, 8000)))
    samples, rate = tf.audio.decode_wav(base64.b64decode(clip["b64"]))
    assert samples.shape == (4000, 1) and rate == 8000 and 0.4 < np.max(samples) <= 0.5


@pytest.mark.parametrize("spec", [None, {}, {"fields": [{"name": "a", "codec": "os"}]}, {"fields": []}])
def test_another_program_has_no_example(spec):
    message = refusal(example_request, {"signatures": {"serving_default": {}}, "input": spec})
    assert message == "an example is known for exports of hetero_tf only"
