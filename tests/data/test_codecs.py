"""The contract of all codecs: the graph decodes the values that Python reads, and descriptions restore the codecs."""

import json
import math
from csv import DictReader
from dataclasses import replace

import hypothesis
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import strategies as st
from refusals import refusal

from hetero_tf.base.errors import InputError
from hetero_tf.data import codecs, csv
from hetero_tf.data.codecs import (
    Assets,
    Field,
    build_fields,
    category,
    date,
    number,
    picture,
    raw,
    running_text,
    series,
    sound,
    split_stored,
    words,
)
from hetero_tf.data.dates import date_features, parse_date
from hetero_tf.data.fields import encoded_form, forms_of, input_names, type_request
from hetero_tf.data.words import build_tokenizer, encode_sentences, split_text

VOCABULARY = ("<pad>", "<ukn>", "a", "b", "\xe4", ",", "\u2581a", "ab")
# Each codec and valid stored values of a few examples.
CODECS = {
    "number": (number.Codec(), [[1.5], [-2]]),
    "filled": (number.Codec(2.5, True, "comma"), [[2.5, 1], [7, 0]]),
    "category": (category.Codec(("x", "y z", "\xe9")), [[0, 0, 1], [1, 0, 0]]),
    "index": (category.Codec(("u", "v"), False, "v"), [[1], [0]]),
    "date": (date.Codec("dmy", "31.01.2024"), [date_features(parse_date("2024-02-29", "ymd"))]),
    "picture": (picture.Codec((2, 2, 1)), np.full((1, 2, 2, 1), 51, np.uint8)),
    "raw": (raw.Codec((2,), "int32", 2, 5), [[2, 5]]),
    "series": (series.Codec((2, 1)), [[[1], [2]]]),
    "sound": (sound.Codec(3, 8000), np.array([[0, 16384, -32768]], np.int16)),
    "words": (words.Codec(3, VOCABULARY), np.array([[2, 1, 0]], np.int32)),
    "running_text": (running_text.Codec(3, VOCABULARY), np.array([[2, 1, 0]], np.int32)),
}
TEXTS = (
    "1;-2.5;+.5;1.;1e3;1_0;nan;inf;x; 3 ;\uff11;1e39;0x1;;NA; ? ;-;.;007;1.234,5;12 %;-3,5;1 000;1.5;1.500;%;"
    "1.23,4;\u22122;1,5e3;1'000,25;1\xa0000;1,234.5;12%;1'000.5;1,23;5 %;,5;1.5.2;y z;é;w; x ;u;v;none;"
    "2024-02-29;2023-02-29;1900-02-29;2000-02-29;2024/1/5;2024.12.31;2024-1/5;2024-01-05T10:20:30Z;"
    "20240105;0000-01-01;2024-13-01;2024-00-10;2024-04-31;31.12.2024;1-2-1999;12/31/2024;9999-12-31;"
    "0001-01-01"
)
LETTERS = st.text("aAbB\xe4\xc4,'<>\u2581x \t\n\u2003\u65f6", max_size=12)
quickly = hypothesis.settings(deadline=None, derandomize=True, max_examples=40, database=None)


@pytest.fixture(scope="module")
def assets(tmp_path_factory):
    return lambda: Assets(tmp_path_factory.mktemp("assets"))


def decode(codec, values, assets, signature="serving_default"):
    form = codec.forms("x", assets())[signature]
    return form.decode(tf.constant(values, form.dtype, shape=[len(values), *form.shape])).numpy()


def test_every_codec_has_a_case():
    assert {type(codec).__module__.rpartition(".")[2] for codec, _ in CODECS.values()} == {*codecs.names()}


@pytest.mark.parametrize(("codec", "stored"), CODECS.values(), ids=CODECS)
def test_a_description_restores_a_codec_and_drawn_values_have_the_form_of_stored_ones(codec, stored):
    (field,) = build_fields(json.loads(json.dumps([Field("a", codec).describe()])))
    # A vocabulary is a file of the export.
    expected = replace(codec, vocabulary=None) if isinstance(codec, words.Codec) else codec
    assert field == Field("a", expected)
    fitted = codec.fit(np.asarray(stored, np.float32)) if isinstance(codec, raw.Codec | series.Codec) else codec
    (field,) = build_fields(json.loads(json.dumps([Field("a", fitted).describe(is_exported=False)])))
    assert field == Field("a", fitted)
    drawn = codec.draw(np.random.default_rng(0), 6)
    assert drawn.dtype in codec.DTYPES and drawn[0].size == codec.size == np.asarray(stored)[0].size
    codec.check("here", drawn)


@pytest.mark.parametrize("change", [{"codec": "pickle"}, {"name": 3}, {"fill": "z"}])
def test_an_invalid_description_is_rejected(change):
    with pytest.raises(InputError):
        build_fields([{**Field("a", CODECS["category"][0]).describe(), **change}])


@pytest.mark.parametrize(("codec", "stored"), CODECS.values(), ids=CODECS)
def test_the_graph_decodes_what_is_stored_and_blank_and_example_are_valid(codec, stored, assets):
    (sent,) = codec.send("x", np.asarray(stored)).values()
    expected = sent if isinstance(codec, picture.Codec | sound.Codec) else stored
    np.testing.assert_allclose(decode(codec, sent.tolist(), assets), expected, rtol=1e-6)
    assert codec.blank.shape == np.shape(stored)[1:]
    forms, example = codec.forms("x", assets()), codec.example()
    signature = codec.ITEMS if codec.ITEMS in forms else "serving_default"
    if not isinstance(codec, picture.Codec | sound.Codec):
        decoded = decode(codec, [example], assets, signature)
        assert np.isfinite(decoded).all() and (decoded >= 0).any()


def host_features(codec, value):
    """Features of a typed value, computed in Python; None if it is invalid."""
    if isinstance(codec, number.Codec):
        is_missing = math.isnan(value)
        value = codec.fill if is_missing and codec.fill is not None else value
        with np.errstate(over="ignore"):
            valid = math.isfinite(np.float32(value))
        return [value, float(is_missing)][: 1 + codec.marks_missing] if valid else None
    value = value.strip(" \t\n\v\f\r")  # as `tf.strings.strip`
    if isinstance(codec, category.Codec):
        value = codec.fill if codec.fill and value.lower() in ("", "?", "na", "n/a", "nan", "null", "none") else value
        if value not in codec.categories:
            return None
        index = codec.categories.index(value)
        return np.eye(len(codec.categories))[index] if codec.one_hot else [index]
    day = parse_date(codec.fill, codec.order) if not value and codec.fill else parse_date(value, "ymd")
    is_iso = not value or len(value) >= 10 and value[4] == value[7] == "-"
    return date_features(day) if day and is_iso else None


def check_columns(codec, values, assets):
    for features, value in zip(decode(codec, values, assets), values, strict=True):
        expected = host_features(codec, value)
        if expected is None:
            assert not np.isfinite(features).all(), value
        else:
            np.testing.assert_allclose(features, expected, rtol=1e-6, atol=1e-6, err_msg=repr(value))


@pytest.mark.parametrize("name", ["number", "filled", "category", "index", "date"])
def test_texts_of_files_are_parsed_to_values_that_the_graph_decodes(name, assets):
    codec, texts, parsed, refused = CODECS[name][0], TEXTS.split(";"), [], 0
    for text in texts:
        try:
            parsed.append(codec.parse("column", text))
        except InputError as error:
            refused += str(error).startswith("column 'column' must be ")
    assert len(parsed) + refused == len(texts) and min(len(parsed), refused) > 1
    assert all(host_features(codec, value) is not None for value in parsed)
    check_columns(codec, parsed, assets)


NUMBERS = st.lists(st.floats() | st.floats(width=32), max_size=20)
ASCII = st.lists(
    st.text(st.characters(codec="utf-8", max_codepoint=126), max_size=9) | st.dates().map(str), max_size=20
)


@pytest.mark.parametrize("name", ["number", "filled", "category", "index", "date"])
@hypothesis.given(data=st.data())
@quickly
def test_any_number_or_text_is_decoded_or_invalid(name, data, assets):
    check_columns(CODECS[name][0], data.draw(NUMBERS if name in ("number", "filled") else ASCII), assets)


@pytest.mark.parametrize("tokenizer", ["words", "characters", "subwords"])
@hypothesis.given(texts=st.lists(LETTERS, min_size=1, max_size=8))
@quickly
def test_any_sentence_has_the_ids_of_the_loader(tokenizer, texts, assets):
    sentences = [list(build_tokenizer(tokenizer, VOCABULARY)(split_text(text, tokenizer))) for text in texts]
    expected = encode_sentences(sentences, VOCABULARY, 4)
    expected[expected[:, 0] == 0] = -1
    codec = words.Codec(4, VOCABULARY, tokenizer)
    np.testing.assert_array_equal(
        decode(codec, [codec.parse("text", text) for text in texts], assets, "serve_text"), expected
    )


def test_ids_outside_their_range_are_invalid(assets):
    assert decode(CODECS["words"][0], [[0, 7, 8], [-1, 2, 2**31 - 1]], assets).tolist() == [[0, 7, -1], [-1, 2, -1]]
    np.testing.assert_array_equal(decode(CODECS["raw"][0], [[1, 2], [5, 6]], assets), [[np.nan, 2], [5, np.nan]])


CSV = """size (cm),colour,day,price,code,kind
1.5,red,31.12.2023,"1.234,5",01,ox
"2,5",,29.02.2024,12 %,02,pig
-3,blue,,"3,5",01,ox
,blue,01.05.1999,,02,pig
"""


def test_the_features_of_a_file_are_those_of_its_texts_in_the_graph(tmp_path, assets):
    (tmp_path / "train.csv").write_text(CSV)
    options = {"columns": {"day": "date", "code": "category"}, "numbers": "comma", "test": "train.csv"}
    table = csv.load(tmp_path, path="train.csv", label="kind", missing="category", **options)
    fields, rows = table.fields, [*DictReader(CSV.splitlines())]
    assert [type(field.codec).__module__[-4:] for field in fields] == ["mber", "gory", "date", "mber", "gory"]
    names, forms = input_names(fields), forms_of(fields, assets())
    assert names == ["size__cm_", "colour", "day", "price", "code"]
    for field, form, stored in zip(fields, forms["serving_default"], split_stored(fields, table.train.x)):
        typed = [field.codec.parse(field.name, row[field.name]) for row in rows]
        np.testing.assert_allclose(form.decode(tf.constant(typed, form.dtype)), stored, rtol=1e-6)
    (encoded,) = forms["serve_numbers"]
    missing = table.train.x.copy()
    missing[missing[:, 1] == 1, :2] = np.nan, 0
    np.testing.assert_array_equal(encoded.decode(tf.constant(missing)), table.train.x)
    assert encoded.name == encoded_form(fields).name == "features" and encoded.shape == table.train.x.shape[1:]


FIELDS = (
    Field("size (cm)", number.Codec()),
    Field("colour", category.Codec(("blue", "red"))),
    Field("age", number.Codec(fill=3.0, notation="comma")),
)


def test_rows_are_lists_or_objects_with_values_or_their_texts():
    expected = {"size__cm_": 1.5, "colour": "red", "age": 2}
    rows = [1.5, "red", 2], ["1.5", " red ", "2,0"], {"age": 2, "size (cm)": 1.5, "colour": "red"}
    rows = *rows, {"size__cm_": 1.5, "colour": "red", "age": "2"}
    assert type_request({"instances": [*rows]}, FIELDS) == {"instances": [expected] * 4}
    for row in rows[2:]:
        inputs = type_request({"inputs": {name: [value] for name, value in row.items()}}, FIELDS)["inputs"]
        assert inputs == {name: [value] for name, value in expected.items()}
    (row,) = type_request({"instances": [[1, "red", None]]}, FIELDS)["instances"]
    assert math.isnan(row["age"])
    assert refusal(type_request, {"instances": [[1, "red", 1], [None, "red", 1]]}, FIELDS) == (
        "instance 1: column 'size (cm)' must be a finite number. Received: ''"
    )
    assert refusal(type_request, {"inputs": {"colour": ["bleu"]}}, FIELDS) == (
        "column 'colour' must be one of blue, red. Received: 'bleu'; did you mean 'blue'?"
    )
    assert refusal(type_request, {"instances": [[1, "red"]]}, FIELDS) == "instance 0 must have 3 values. Received: 2"


def test_inputs_have_names_of_tensorflow():
    names = ["size (cm)", "size_[cm]", "2nd", "", "Colour", "colour", "gr\xf6\xdfe"]
    assert input_names([Field(name, number.Codec()) for name in names]) == [
        "size__cm_", "size__cm__2", "_2nd", "_", "Colour", "colour_2", "gr__e"
    ]  # fmt: skip
