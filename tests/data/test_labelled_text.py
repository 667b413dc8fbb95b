"""Texts with labels from CSV, TSV, JSON lines, Parquet and Arrow: words, vocabulary, padding and owners."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest
from refusals import refusal

from hetero_tf.data.labelled_text import load
from hetero_tf.data.words import split_words

ROWS = [
    ("The film is good, isn't it?", "good", "ann"),
    ("A GOOD one", "good", "bob"),
    ("bad film", "bad", "ann"),
    ("so bad", "bad", "bob"),
]


def write(path, rows=ROWS):
    """A file of rows in the format that its ending names."""
    names = ("text", "label", "who")
    if path.suffix in (".parquet", ".arrow"):
        table = pa.table(dict(zip(names, zip(*rows))))
        (pq.write_table if path.suffix == ".parquet" else feather.write_feather)(table, path)
        return path
    if path.suffix == ".jsonl":
        lines = [json.dumps(dict(zip(names, row))) for row in rows]
    else:
        sign = "\t" if path.suffix == ".tsv" else ","
        lines = [sign.join(names), *(sign.join(f'"{value}"' for value in row) for row in rows)]
    path.write_text("\n".join(lines) + "\n")
    return path


def test_words_are_lower_case_and_a_vocabulary_keeps_the_most_frequent_ones(tmp_path):
    assert split_words(" The FILM's\tgood,(isn't it?)  ÄÖ") == [
        *("the", "film's", "good", ",", "(", "isn't", "it", "?", ")", "äö")
    ]
    assert split_words("<pad>") == ["<", "pad", ">"]
    path = write(tmp_path / "a.csv", [("a b b", "x", ""), ("c b c", "y", "")])
    for size, known in ((None, "abc"), (4, "bc")):
        dataset = load(None, path=str(path), test=str(path), vocabulary=size)
        assert dataset.codec.vocabulary == ("<pad>", "<ukn>", *known)


def test_folders_of_text_files_are_classes(tmp_path):
    for split in ("train", "test"):
        for index, (text, label, _) in enumerate(ROWS):
            (tmp_path / split / label).mkdir(parents=True, exist_ok=True)
            (tmp_path / split / label / f"{index}.txt").write_text(text)
    dataset, table = load(None, path=str(tmp_path)), load(None, path=str(tmp_path / "train"), test_share=0.5)
    assert dataset.class_names == ("bad", "good") and len(dataset.train.x) == len(dataset.test.x) == 4
    np.testing.assert_array_equal(dataset.train.y, [0, 0, 1, 1])
    words = [[dataset.codec.vocabulary[word] for word in row if word] for row in dataset.train.x]
    assert words[0] == ["bad", "film"] and len(table.test.x) == 2
    (tmp_path / "train" / "odd").mkdir()
    assert refusal(load, None, path=str(tmp_path)).endswith("odd: expected .txt, .text files. Received: none")
    (tmp_path / "train" / "odd" / "x.txt").write_bytes(b"\xff")
    assert refusal(load, None, path=str(tmp_path)).startswith(f"{tmp_path}/train/odd/x.txt:1: is not UTF-8 text")


@pytest.mark.parametrize("name", ["texts.csv", "texts.tsv", "texts.jsonl", "texts.parquet", "texts.arrow"])
def test_every_format_gives_the_same(tmp_path, name):
    tests = write(tmp_path / f"test{name}", [("good morning", "bad", "bob")])
    dataset = load(None, path=str(write(tmp_path / name)), test=str(tests), owner="who", length=4)
    assert (dataset.codec.KIND, dataset.classes, dataset.class_names) == ("sequences", 2, ("bad", "good"))
    assert dataset.codec.vocabulary[:6] == ("<pad>", "<ukn>", "the", "film", "is", "good")
    number = dataset.codec.vocabulary.index
    np.testing.assert_array_equal(dataset.train.x[0], list(map(number, ["the", "film", "is", "good"])))
    np.testing.assert_array_equal(dataset.train.x[2], [number("bad"), number("film"), 0, 0])
    # A word of the tests only is unknown.
    np.testing.assert_array_equal(dataset.test.x, [[number("good"), 1, 0, 0]])
    np.testing.assert_array_equal(dataset.train.y, [1, 1, 0, 0])
    np.testing.assert_array_equal(dataset.train.owners, [0, 1, 0, 1])


def test_folder_has_the_splits_and_class_names_of_hugging_face(tmp_path):
    features = {"label": {"names": ["neg", "pos"], "_type": "ClassLabel"}}
    metadata = {b"huggingface": json.dumps({"info": {"features": features}}).encode()}
    for split, labels in (("train", [0, 1, 1]), ("test", [1])):
        table = pa.table({"text": ["a b", "b", "c"][: len(labels)], "label": labels, "extra": [b"x"] * len(labels)})
        pq.write_table(table.replace_schema_metadata(metadata), tmp_path / f"{split}-00000-of-00001.parquet")
    dataset = load(None, path=str(tmp_path), length=2)
    assert dataset.class_names == ("neg", "pos")
    assert dataset.train.x.tolist() == [[2, 3], [3, 0], [4, 0]] and dataset.train.y.tolist() == [0, 1, 1]
    assert dataset.test.x.tolist() == [[2, 3]] and dataset.test.y.tolist() == [1]
    sentence = refusal(load, None, path=str(tmp_path), text="label", label="text")
    assert sentence == f"{tmp_path}: `text` must name a column of texts. Received: text='label'"


def test_vocabulary_is_that_of_the_training_rows(tmp_path):
    rows = [(f"word{index} common", ("x", "y")[index % 2], "ann") for index in range(20)]
    dataset = load(None, path=str(write(tmp_path / "texts.csv", rows)), test_share=0.2)
    assert (len(dataset.train.x), len(dataset.test.x)) == (16, 4)
    assert len(dataset.codec.vocabulary) == 2 + 1 + 16
    assert (dataset.test.x[:, 0] == 1).all() and (dataset.train.x[:, 0] > 1).all()
