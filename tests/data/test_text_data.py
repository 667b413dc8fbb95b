"""Words, vocabulary and rows; text files in every bad state; WikiText-2 in numbers."""

import gzip
import os

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from refusals import refusal

from hetero_tf.base.errors import InputError
from hetero_tf.data import text, wikitext2
from hetero_tf.data.dataset import NotAvailable
from hetero_tf.data.words import build_vocabulary, encode, read_words, reshape_to_rows


def write(path, content):
    path.write_bytes(content)
    return path


def test_every_line_ends_in_eos_blank_ones_too(tmp_path):
    path = write(tmp_path / "a.txt", b" = Title = \n\nthe  cat\tsat\n")
    assert read_words(path) == ["=", "Title", "=", "<eos>", "<eos>", "the", "cat", "sat", "<eos>"]


@pytest.mark.parametrize("content", [b"a b\r\n\r\nc\r\n", b"\xef\xbb\xbfa b\n\nc\n", b"a b\n\nc"])
def test_line_ends_marks_and_packing_do_not_matter(tmp_path, content):
    expected = ["a", "b", "<eos>", "<eos>", "c", "<eos>"]
    assert read_words(write(tmp_path / "a.txt", content)) == expected
    assert read_words(write(tmp_path / "a.txt.gz", gzip.compress(content))) == expected


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "a.txt: expected text. Received: an empty file or blank lines only"),
        (b"\n\n \n", "a.txt: expected text. Received: an empty file or blank lines only"),
        (b"good\nbad \xff byte\n", "a.txt:2: is not UTF-8 text; save it as UTF-8"),
        (b"a\nb\0c\n", "a.txt:2: is not UTF-8 text"),
    ],
)
def test_bad_texts_are_one_sentence(tmp_path, content, message):
    with pytest.raises(InputError, match=message):
        read_words(write(tmp_path / "a.txt", content))


def test_truncated_gzip_is_detected(tmp_path):
    packed = gzip.compress(b"".join(b"line %d of the text\n" % number for number in range(300)))
    for cut in (1, 5, 100, len(packed) - 1):
        with pytest.raises(InputError, match="a.txt.gz: cannot be unpacked, it is damaged"):
            read_words(write(tmp_path / "a.txt.gz", packed[:cut]))


def test_equal_words_are_one_object(tmp_path):
    first, _, second, _ = read_words(write(tmp_path / "a.txt", b"word\nword\n"))
    assert first is second


def test_too_long_name_is_not_available(tmp_path):
    with pytest.raises(NotAvailable, match="`train` must name an existing file"):
        text.load(tmp_path, train="a" * 300)


def test_vocabulary_keeps_the_order_of_first_appearance():
    # heterofl-facts: `<ukn>` is an extra symbol, not the corpus's own `<unk>`.
    words = ["the", "<unk>", "<eos>", "cat", "the", "<eos>"]
    assert build_vocabulary(words) == ("<ukn>", "<eos>", "the", "<unk>", "cat")
    assert encode(["cat", "dog", "<eos>"], build_vocabulary(words)).tolist() == [4, 0, 1]
    assert encode([], build_vocabulary(words)).dtype == np.int32


def test_small_vocabulary_keeps_the_frequent_words():
    words = ["rare", "b", "a", "a", "b", "c", "c", "c", "<eos>"]
    assert build_vocabulary(words, 6) == ("<ukn>", "<eos>", "rare", "b", "a", "c")
    assert build_vocabulary(words, 5) == ("<ukn>", "<eos>", "b", "a", "c")
    assert build_vocabulary(words, 4) == ("<ukn>", "<eos>", "b", "c")
    assert build_vocabulary(words, 99) == build_vocabulary(words)


def test_rows_are_contiguous_and_the_rest_is_cut():
    np.testing.assert_array_equal(reshape_to_rows(np.arange(11), 3, "rows"), [[0, 1, 2], [3, 4, 5], [6, 7, 8]])
    with pytest.raises(InputError, match="`rows` must not exceed the 11 words of the text. Received: rows=12"):
        reshape_to_rows(np.arange(11), 12, "rows")


def test_test_text_uses_the_training_vocabulary(tmp_path):
    write(tmp_path / "a.txt", b"a b\nc d\n")
    write(tmp_path / "b.txt", b"b z\n")
    dataset = text.load(tmp_path, train="a.txt", test="b.txt", rows=2, test_rows=1)
    assert dataset.codec.vocabulary == ("<ukn>", "<eos>", "a", "b", "c", "d")
    assert dataset.train.x.tolist() == [[2, 3, 1], [4, 5, 1]]
    assert dataset.test.x.tolist() == [[3, 0, 1]]
    assert dataset.classes == 6


def test_end_of_the_text_is_the_default_test_split(tmp_path, monkeypatch):
    write(tmp_path / "a.txt", b"a b c d\ne f g h\n")
    monkeypatch.chdir(tmp_path)
    dataset = text.load(None, train="a.txt", rows=1, test_rows=1, test_share=0.3)
    assert dataset.train.x.tolist() == [[2, 3, 4, 5, 1, 6, 7]]
    assert dataset.test.x.tolist() == [[0, 0, 1]]


def test_column_of_texts_is_read_as_lines(tmp_path):
    for split, texts in (("train", ["a b\n", "", "c\nd"]), ("test", ["d e"])):
        (tmp_path / split).mkdir()
        pq.write_table(pa.table({"line": texts}), tmp_path / split / "0.parquet")
    dataset = text.load(None, train=str(tmp_path), column="line", rows=1, test_rows=1)
    assert dataset.codec.vocabulary == ("<ukn>", "<eos>", "a", "b", "c", "d")
    assert dataset.train.x.tolist() == [[2, 3, 1, 1, 4, 1, 5, 1]] and dataset.test.x.tolist() == [[5, 0, 1]]
    pq.write_table(pa.table({"line": ["", " "]}), tmp_path / "test" / "0.parquet")
    sentence = refusal(text.load, None, train=str(tmp_path), column="line", rows=1, test_rows=1)
    assert sentence == f"{tmp_path}: column 'line' must have words. Received: none"


@pytest.mark.skipif("HETERO_TF_DATA" not in os.environ, reason="needs the real corpus in HETERO_TF_DATA")
def test_real_corpus_in_numbers():
    # Sizes: HeteroFL's code reproduces the paper's 73.49 MB with 33,279 words only; 2,088,628 tokens = 100 x 20,886.
    dataset = wikitext2.load(os.environ["HETERO_TF_DATA"])
    assert dataset.classes == 33279
    assert dataset.train.x.shape == (100, 20886)
    assert dataset.test.x.shape == (10, 24556)
    assert dataset.codec.vocabulary[:5] == ("<ukn>", "<eos>", "=", "Valkyria", "Chronicles")
    vocabulary_sizes = [len(np.unique(row)) for row in dataset.train.x]
    assert (min(vocabulary_sizes), max(vocabulary_sizes)) == (2826, 4160)
    assert not (dataset.train.x == 0).any()
