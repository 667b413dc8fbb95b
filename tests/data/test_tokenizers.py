"""Characters as tokens, and texts without spaces."""

import json

import pytest
from refusals import refusal

from hetero_tf.data import labelled_text, pydoc, text
from hetero_tf.data.described import describe, from_description
from hetero_tf.data.tokenizers import check_spaces, split_characters

CHINESE = "显示或设置系统时间。\n列出目录的内容,按字母排序。\n"


def test_words_become_characters():
    words = ["in", "a", "<eos>", "<eos>", "b"]
    assert split_characters(words, ("<eos>",)) == [*"in▁a", "<eos>", "<eos>", "b"]
    assert split_characters(words[1:3], ()) == [*"a▁<eos>"]


@pytest.mark.parametrize(
    ("words", "mean", "longest"),
    [
        (CHINESE.split(), 12, "'列出目录的内容,按字母排序。'"),
        (["แสดงเวลาของระบบ", "<eos>"], 15, "'แสดงเวลาของระบบ'"),
        (["ファイルの一覧を表示する"], 12, "'ファイルの一覧を表示する'"),
        (["ACGT" * 10, "ACG"], 22, f"'{'ACGT' * 10}'"[:41]),
    ],
)
def test_text_without_spaces_is_rejected(words, mean, longest):
    sentence = refusal(check_spaces, "text (a.txt)", words)
    assert sentence.startswith(
        f"text (a.txt): the text has no spaces between words: its words have {mean} characters on average, such as "
    )
    assert longest[:15] in sentence
    assert sentence.endswith(". Set `tokenizer: characters` or `tokenizer: subwords`. Received: tokenizer='words'")


@pytest.mark.parametrize(
    "words", ["显示 或 设置 系统 时间", "Donaudampfschifffahrtsgesellschaft auf der Donau", "시간을 표시", ""]
)
def test_text_with_spaces_is_accepted(words):
    check_spaces("text", words.split())


def test_loaders_of_text_take_characters(tmp_path):
    (tmp_path / "a.txt").write_text(CHINESE, "utf-8")
    assert "a.txt): the text has no spaces" in refusal(text.load, tmp_path, train="a.txt", rows=1, test_rows=1)
    dataset = text.load(tmp_path, train="a.txt", test="a.txt", rows=1, test_rows=2, tokenizer="characters")
    assert dataset.codec.vocabulary[:4] == ("<ukn>", "<eos>", "显", "示") and dataset.train.x.shape == (1, 26)
    assert dataset.train.x[0, 9:13].tolist() == [11, 1, 12, 13]
    assert len(pydoc.load(None, tokenizer="characters").codec.vocabulary) == 104


def test_labelled_texts_become_lower_case_characters(tmp_path):
    (tmp_path / "a.csv").write_text("text,label\n时 A,x\n间b间间,y\n", "utf-8")
    options = {"path": "a.csv", "test": "a.csv", "length": 4}
    dataset = labelled_text.load(tmp_path, **options, tokenizer="characters")
    assert dataset.codec.vocabulary == ("<pad>", "<ukn>", "时", "▁", "a", "间", "b")
    assert dataset.train.x.tolist() == [[2, 3, 4, 0], [5, 6, 5, 5]]
    (tmp_path / "a.csv").write_text("text,label\n显示或设置系统时间,x\n列出目录的内容,y\n", "utf-8")
    assert "such as '显示或设置系统时间'. Set `tokenizer: characters` or" in refusal(
        labelled_text.load, tmp_path, **options
    )


def test_description_has_the_tokenizer():
    dataset = pydoc.load(None, tokenizer="characters", rows=2, test_rows=1)
    assert from_description(json.loads(json.dumps(describe(dataset))), "data").codec.tokenizer == "characters"
