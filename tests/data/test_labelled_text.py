"""Texts with labels from CSV, TSV and JSON lines: words, vocabulary, padding, owners, and what is refused."""

import json

import numpy as np
import pytest
from refusals import refusal

from hetero_tf.data.labelled_text import load
from hetero_tf.data.sentences import encode_sentences, vocabulary_of_sentences, words_of

ROWS = [
    ("The film is good, isn't it?", "good", "ann"),
    ("A GOOD one", "good", "bob"),
    ("bad film", "bad", "ann"),
    ("so bad", "bad", "bob"),
]


def written(path, rows=ROWS):
    """A file of rows in the format that its ending names."""
    names = ("text", "label", "who")
    if path.suffix == ".jsonl":
        lines = [json.dumps(dict(zip(names, row))) for row in rows]
    else:
        sign = "\t" if path.suffix == ".tsv" else ","
        lines = [sign.join(names), *(sign.join(f'"{value}"' for value in row) for row in rows)]
    path.write_text("\n".join(lines) + "\n")
    return path


def test_words_are_lower_case_and_signs_stand_alone():
    assert words_of(" The FILM's\tgood,(isn't it?)  ÄÖ") == [
        *("the", "film's", "good", ",", "(", "isn't", "it", "?", ")", "äö")
    ]
    assert words_of("<pad>") == ["<", "pad", ">"]


def test_the_vocabulary_keeps_the_most_frequent_words_in_order_of_appearance():
    sentences = [["a", "b", "b"], ["c", "b", "c"]]
    assert vocabulary_of_sentences(sentences) == ("<pad>", "<ukn>", "a", "b", "c")
    assert vocabulary_of_sentences(sentences, 4) == ("<pad>", "<ukn>", "b", "c")


def test_rows_are_cut_and_filled_up():
    found = encode_sentences([["b", "x", "c", "b"], ["c"], []], ("<pad>", "<ukn>", "b", "c"), 3)
    assert found.dtype == np.int32
    np.testing.assert_array_equal(found, [[2, 1, 3], [3, 0, 0], [0, 0, 0]])


@pytest.mark.parametrize("name", ["texts.csv", "texts.tsv", "texts.jsonl"])
def test_every_format_gives_the_same(tmp_path, name):
    tests = written(tmp_path / f"test{name}", [("good morning", "bad", "bob")])
    found = load(None, path=str(written(tmp_path / name)), test=str(tests), owner="who", length=4)
    assert (found.kind, found.classes, found.class_names) == ("sequences", 2, ("bad", "good"))
    assert found.vocabulary[:6] == ("<pad>", "<ukn>", "the", "film", "is", "good")
    number = found.vocabulary.index
    np.testing.assert_array_equal(found.train.x[2], [number("bad"), number("film"), 0, 0])
    # A word of the tests only is unknown.
    np.testing.assert_array_equal(found.test.x, [[number("good"), 1, 0, 0]])
    np.testing.assert_array_equal(found.train.y, [1, 1, 0, 0])
    np.testing.assert_array_equal(found.train.owners, [0, 1, 0, 1])


def test_the_vocabulary_is_that_of_the_training_rows(tmp_path):
    rows = [(f"word{place} common", ("x", "y")[place % 2], "ann") for place in range(20)]
    found = load(None, path=str(written(tmp_path / "texts.csv", rows)), test_share=0.2)
    assert (len(found.train.x), len(found.test.x)) == (16, 4)
    assert len(found.vocabulary) == 2 + 1 + 16
    assert (found.test.x[:, 0] == 1).all() and (found.train.x[:, 0] > 1).all()


@pytest.mark.parametrize(
    "lines, options, sentence",
    [
        ("text,label\na,x\n,y\n", {}, "r.csv:3: column 'text' has no word here; fill it in or remove the row"),
        ("txt,label\na,x\nb,y\n", {}, "r.csv: `text` must name a column. Received: text='text'; did you mean 'txt'?"),
        (
            "text,labels\na,x\nb,y\n",
            {},
            "r.csv: `label` must name a column. Received: label='label'; did you mean 'labels'?",
        ),
    ],
)
def test_what_is_missing_is_refused(tmp_path, lines, options, sentence):
    (tmp_path / "r.csv").write_text(lines)
    assert refusal(lambda: load(tmp_path, path="r.csv", **options)).removeprefix(f"{tmp_path}/") == sentence


@pytest.mark.parametrize(
    "line, sentence",
    [
        (b"[1]", "r.jsonl:2: must hold an object of texts and numbers. Received: '[1]'"),
        (b'{"text": ["a"], "label": 1}', "r.jsonl:2: must hold an object of texts and numbers. Received: "),
        (b'{"text": "a"}', "r.jsonl:2: must have the keys of the first line. Received: ['label'] in one of them only"),
        (b'{"text"', "r.jsonl:2: is no JSON: "),
        (b"\xff", "r.jsonl:2: is not UTF-8 text; save it as UTF-8"),
        (b" " * 2**21, "r.jsonl:2: a line may have up to 1048576 bytes"),
    ],
)
def test_damaged_json_lines_are_refused(tmp_path, line, sentence):
    (tmp_path / "r.jsonl").write_bytes(b'{"text": "a", "label": 1}\n' + line + b"\n")
    assert refusal(lambda: load(tmp_path, path="r.jsonl")).removeprefix(f"{tmp_path}/").startswith(sentence)


def test_an_empty_file_of_json_lines_is_refused(tmp_path):
    (tmp_path / "r.jsonl").write_text("\n\n")
    assert refusal(lambda: load(tmp_path, path="r.jsonl")).endswith("r.jsonl: expected rows. Received: none")
