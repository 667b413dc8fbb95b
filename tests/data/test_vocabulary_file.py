"""Vocabulary files: formats and what is rejected."""

import pytest
from refusals import refusal

from hetero_tf.data import text
from hetero_tf.data.vocabulary_file import find_tokens, read_tokens


def test_special_tokens_and_scores_are_skipped(tmp_path):
    path = tmp_path / "m.vocab"
    path.write_text("<unk>\t0\n<s>\t0\n</s>\t0\n▁the\t-3.1\ning\t-4\r\n\n", "utf-8")
    assert read_tokens(path, "subwords") == ("▁the", "ing")
    path.write_text("<pad>\n<ukn>\n##a\n#\n", "utf-8")
    assert read_tokens(path, "subwords") == ("a", "▁#")
    assert find_tokens(tmp_path, "m.vocab", "words") == ("##a", "#")
    assert find_tokens(tmp_path, None, "words") is None


@pytest.mark.parametrize(
    ("content", "tokenizer", "sentence"),
    [
        ("a\nb\na\n", "words", "3: a token must not occur twice, as in line 1. Received: 'a'"),
        ("a b\n", "words", "1: a token must not contain white space. Received: 'a b'"),
        ("ab\n", "characters", "1: a token must be one character with `tokenizer: characters`. Received: 'ab'"),
        ("▁a▁\n", "subwords", "1: `▁` must be the first character of a subword. Received: '▁a▁'"),
        ("a" * 33, "subwords", f"1: a subword must have at most 32 characters. Received: '{'a' * 33}'"),
        ("<pad>\n", "words", " expected a token in each line. Received: none"),
    ],
)
def test_wrong_files_are_rejected(tmp_path, content, tokenizer, sentence):
    (tmp_path / "v").write_text(content, "utf-8")
    assert refusal(read_tokens, tmp_path / "v", tokenizer) == f"{tmp_path}/v:{sentence}"


def test_file_of_another_language_is_rejected(tmp_path):
    (tmp_path / "a.txt").write_text("das Ende der Zeile\n")
    (tmp_path / "v").write_text("the\nend\nder\n")
    options = {"train": "a.txt", "rows": 1, "test_rows": 1, "test_share": 0.2, "vocabulary_file": "v"}
    assert refusal(text.load, tmp_path, **options) == (
        "`vocabulary_file` must have at least half of the tokens of the training text; choose one of its language (in "
        "lower case for labelled_text) and for `tokenizer: words`. Received: a file with 25%"
    )
    (tmp_path / "v").write_text("das\nder\n")
    assert text.load(tmp_path, **options).codec.vocabulary == ("<ukn>", "<eos>", "das", "der")
