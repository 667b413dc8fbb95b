"""`tokenizer.json` as a vocabulary file: WordPiece, BPE with bytes or `▁`, Unigram and WordLevel."""

import json

import pytest
from refusals import refusal

from hetero_tf.data import labelled_text
from hetero_tf.data.vocabulary_file import read_tokens

SPECIAL = [{"id": 0, "content": "[X]", "special": True}, {"id": 1, "content": "un", "special": False}]
LEVEL = {"pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "ByteLevel"}]}}


def ids(*tokens):
    """A vocabulary whose order in the file differs from that of its ids."""
    return dict(reversed([(token, number) for number, token in enumerate(tokens)]))


def document(kind, vocabulary, prefix=None, **more):
    return {
        "added_tokens": SPECIAL,
        "model": {"type": kind, "vocab": vocabulary, "continuing_subword_prefix": prefix},
    } | more


def read(tmp_path, value, tokenizer="subwords"):
    path = tmp_path / "tokenizer.json"
    path.write_text(value if isinstance(value, str) else json.dumps(value), "utf-8")
    return read_tokens(path, tokenizer)


def test_words_begin_with_their_mark(tmp_path):
    pieces = ids("[X]", "un", "##done", "[UNK]", "é")
    assert read(tmp_path, document("WordPiece", pieces, "##")) == ("▁un", "done", "▁é")
    # Bytes: a space is U+0120, the German ß is two bytes, and U+00C3 alone is a part of a character.
    pieces = ids("[X]", "Ġ", "Ġthe", "ing", "ÃŁ", "Ã", "ĠĠ", "Ċ", "a" * 33)
    assert read(tmp_path, document("BPE", pieces, **LEVEL)) == ("▁", "▁the", "ing", "ß")
    assert read(tmp_path, document("BPE", ids("<unk>", "▁", "▁der", "en", "<0x0A>"))) == ("▁", "▁der", "en")
    assert read(tmp_path, document("Unigram", [["<unk>", 0], ["▁das", -2.5], ["s", -3]])) == ("▁das", "s")
    assert read(tmp_path, document("WordLevel", ids("[X]", "das", "Ende")), "words") == ("das", "Ende")


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        (
            document("BPE", ids("de", "r")),
            "subwords must mark the beginning of a word by `▁` or `Ġ`, or its continuation",
        ),
        (document("WordLevel", ids("a")), "with `tokenizer: subwords`. Received: WordLevel, tokenizer='subwords'"),
        ({"model": {"type": "BPE"}}, "is not a tokenizer.json of `tokenizers`: KeyError('vocab')"),
        ("[" * 99_999, "is not a tokenizer.json of `tokenizers`: RecursionError"),
        ("{}x", "is not a tokenizer.json of `tokenizers`: JSONDecodeError"),
        (document("WordPiece", ids("[X]"), "##"), "expected a token in each line. Received: none"),
    ],
)
def test_other_files_are_rejected(tmp_path, value, sentence):
    assert sentence in refusal(read, tmp_path, value)


def test_labelled_texts_become_its_subwords(tmp_path):
    (tmp_path / "a.csv").write_text("text,label\nUndone?,x\nun-done,y\n")
    read(tmp_path, document("WordPiece", ids("[X]", "un", "##done", "?", "-"), "##"))
    options = {"path": "a.csv", "test": "a.csv", "tokenizer": "subwords", "length": 5}
    dataset = labelled_text.load(tmp_path, **options, vocabulary_file="tokenizer.json")
    assert dataset.codec.vocabulary == ("<pad>", "<ukn>", "▁un", "done", "▁?", "▁-")
    assert dataset.train.x.tolist() == [[2, 3, 4, 0, 0], [2, 5, 1, 3, 0]]
