"""Running text and tokens: files, vocabularies, subwords, and their special tokens."""

import gzip
import json
import os

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from refusals import refusal

from hetero_tf.base.errors import InputError
from hetero_tf.data import labelled_text, pydoc, text, wikitext2
from hetero_tf.data.dataset import NotAvailable
from hetero_tf.data.described import describe, from_description
from hetero_tf.data.tokenizers import build_splitter, find_tokens, learn_pieces, split_characters, unspaced_length
from hetero_tf.data.words import TokenOptions, encode, learn_vocabulary, read_words

CHINESE = "显示或设置系统时间。\n列出目录的内容,按字母排序。\n"


def test_words_become_characters_or_their_longest_pieces():
    words = ["in", "a", "<eos>", "<eos>", "b"]
    assert split_characters(words, ("<eos>",)) == [*"in▁a", "<eos>", "<eos>", "b"]
    assert split_characters(words[1:3], ()) == [*"a▁<eos>"]
    split = build_splitter(["▁", "▁un", "▁under", "de", "r", "stand", "n"])
    assert split(["understand", "unde", "<eos>", "q"]) == ["▁under", "stand", "▁un", "de", "<eos>", "▁", "q"]
    assert learn_pieces(["aab", "aab"], 3) == ("a", "▁", "b")
    pieces = learn_pieces(["x" * 40, "x" * 40, "end.", "end."], 99)
    assert max(map(len, pieces)) == 16 and "▁end" in pieces and not any("d." in piece for piece in pieces)
    dataset = pydoc.load(None, tokenizer="characters", rows=2, test_rows=1)
    assert from_description(json.loads(json.dumps(describe(dataset))), "data").codec.tokenizer == "characters"


@pytest.mark.parametrize(
    ("text", "mean"),
    [
        (CHINESE, 12),
        ("แสดงเวลาของระบบ <eos>", 15),
        ("ファイルの一覧を表示する", 12),
        ("ACGT" * 10 + " ACG", 22),
        *((text, None) for text in ("显示 或 设置 系统 时间", "Donaudampfschifffahrtsgesellschaft auf der Donau", "시간을 표시", "")),
    ],
)  # fmt: skip
def test_texts_without_spaces_are_recognized_by_the_length_of_their_words(text, mean):
    length = unspaced_length(text.split())
    assert (length and round(length)) == mean


def test_loaders_of_text_take_characters(tmp_path):
    (tmp_path / "a.txt").write_text(CHINESE, "utf-8")
    assert refusal(text.load, tmp_path, train="a.txt", rows=1, test_rows=1) == (
        f"text ({tmp_path}/a.txt): the text has no spaces between words: its words have 12 characters on average, such as "
        "'列出目录的内容,按字母排序。'. Set `tokenizer: characters` or `tokenizer: subwords`. Received: tokenizer='words'"
    )
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


def learn_naively(words, count):
    """Byte-pair encoding that counts all pairs before each merge."""
    chunks = [list("▁" + word) for word in words]
    pieces = list(dict.fromkeys(sorted("".join(map("".join, chunks)), key=lambda c: -sum(x.count(c) for x in chunks))))
    while len(pieces) < count:
        counts = {}
        for chunk in chunks:
            for pair in zip(chunk, chunk[1:]):
                counts[pair] = counts.get(pair, 0) + 1
        pair = min(counts, key=lambda pair: (-counts[pair], pair), default=None)
        if pair is None or counts[pair] < 2:
            break
        for chunk in chunks:
            position = 0
            while position < len(chunk) - 1:
                if tuple(chunk[position : position + 2]) == pair:
                    chunk[position : position + 2] = ["".join(pair)]
                position += 1
        if "".join(pair) not in pieces:
            pieces.append("".join(pair))
    return pieces


@pytest.mark.parametrize("seed", range(5))
def test_pieces_are_those_of_byte_pair_encoding(seed):
    rng = np.random.default_rng(seed)
    words = ["".join(rng.choice(list("aabc时间"), rng.integers(1, 9))) for _ in range(60)]
    naive = learn_naively(words, 60)
    pieces = learn_pieces([*words, "<eos>"], 60)
    assert set(pieces[:6]) == set(naive[:6]) and list(pieces[6:]) == naive[6:] and len(pieces) > 20


def test_loaders_learn_subwords_of_the_training_text(tmp_path):
    (tmp_path / "a.txt").write_text("low lower\nlow lower\n")
    (tmp_path / "b.txt").write_text("slow\n")
    options = {"train": "a.txt", "test": "b.txt", "rows": 1, "test_rows": 1, "tokenizer": "subwords"}
    dataset = text.load(tmp_path, **options, vocabulary=10)
    assert dataset.codec.vocabulary == ("<ukn>", "<eos>", *"▁lowerr"[:6], "lo", "low")
    assert [dataset.codec.vocabulary[token] for token in dataset.test.x[0]] == ["▁", "<ukn>", "low", "<eos>"]
    assert refusal(text.load, tmp_path, **options) == (
        "`tokenizer: subwords` needs a size, such as `vocabulary: 8000`, or a `vocabulary_file`"
    )


def test_labelled_texts_become_subwords_of_a_word_piece_file(tmp_path):
    (tmp_path / "a.csv").write_text("text,label\nUndone?,x\nun-done,y\n")
    (tmp_path / "vocab.txt").write_text("[PAD]\n[UNK]\n[unused1]\nun\n##done\n?\n-\n")
    options = {"path": "a.csv", "test": "a.csv", "tokenizer": "subwords", "length": 5}
    dataset = labelled_text.load(tmp_path, **options, vocabulary_file="vocab.txt")
    assert dataset.codec.vocabulary == ("<pad>", "<ukn>", "▁un", "done", "▁?", "▁-")
    assert dataset.train.x.tolist() == [[2, 3, 4, 0, 0], [2, 5, 1, 3, 0]]
    assert refusal(labelled_text.load, tmp_path, **options, vocabulary_file="vocab.txt", vocabulary=5) == (
        "`vocabulary` must be at least 6, the size of `vocabulary_file` with two special tokens. Received: vocabulary=5"
    )


def test_special_tokens_and_scores_are_skipped(tmp_path):
    (tmp_path / "v").write_text("<unk>\t0\n<s>\t0\n</s>\t0\n▁the\t-3.1\ning\t-4\r\n\n", "utf-8")
    assert find_tokens(tmp_path, "v", "subwords") == ("▁the", "ing")
    (tmp_path / "v").write_text("<pad>\n<ukn>\n##a\n#\n", "utf-8")
    assert find_tokens(tmp_path, "v", "subwords") == ("a", "▁#")
    assert find_tokens(tmp_path, "v", "words") == ("##a", "#") and find_tokens(tmp_path, None, "words") is None
    for content, tokenizer, sentence in (
        ("a b\n", "words", " in each line. Received: 'a b'"),
        ("ab\n", "characters", " of at most 1 characters in each line. Received: 'ab'"),
        ("▁a▁\n", "subwords", " of at most 32 characters in each line. Received: '▁a▁'"),
        ("a" * 33, "subwords", f" of at most 32 characters in each line. Received: '{'a' * 33}'"),
        ("<pad>\n", "words", " in each line. Received: none"),
    ):
        (tmp_path / "v").write_text(content, "utf-8")
        message = refusal(find_tokens, tmp_path, "v", tokenizer)
        assert message == f"{tmp_path}/v: expected a token of `tokenizer: {tokenizer}`{sentence}"


def write(path, content):
    path.write_bytes(content)
    return path


def test_lines_end_in_eos_equal_words_are_one_object_and_damaged_files_are_detected(tmp_path):
    path = write(tmp_path / "a.txt", b" = Title = \n\nthe  cat\tsat\n")
    assert read_words(path) == ["=", "Title", "=", "<eos>", "<eos>", "the", "cat", "sat", "<eos>"]
    first, _, second, _ = read_words(write(tmp_path / "a.txt", b"word\nword\n"))
    assert first is second
    packed = gzip.compress(b"".join(b"line %d of the text\n" % number for number in range(300)))
    for cut in (1, 5, 100, len(packed) - 1):
        with pytest.raises(InputError, match="a.txt.gz: cannot be unpacked, it is damaged"):
            read_words(write(tmp_path / "a.txt.gz", packed[:cut]))
    assert "`train` must name an existing file" in refusal(text.load, tmp_path, kind=NotAvailable, train="a" * 300)


def test_line_ends_marks_and_packing_do_not_matter_and_bad_texts_are_one_sentence(tmp_path):
    for content in (b"a b\r\n\r\nc\r\n", b"\xef\xbb\xbfa b\n\nc\n", b"a b\n\nc"):
        for path in (write(tmp_path / "a.txt", content), write(tmp_path / "a.txt.gz", gzip.compress(content))):
            assert read_words(path) == ["a", "b", "<eos>", "<eos>", "c", "<eos>"]
    assert read_words(write(tmp_path / "a.txt", "größer".encode("cp1252")), "cp1252") == ["größer", "<eos>"]
    empty = "a.txt: expected text. Received: an empty file or blank lines only"
    encoding = "a.txt:2: is not UTF-8 text; save it as UTF-8"
    for content, message in (
        (b"", empty),
        (b"\n\n \n", empty),
        (b"good\nbad \xff\n", encoding),
        (b"a\nb\0c\n", encoding),
    ):
        assert message in refusal(read_words, write(tmp_path / "a.txt", content))


def test_vocabulary_keeps_the_order_and_if_small_the_frequent_words():
    def learn(words, size=None):
        return learn_vocabulary(words, TokenOptions("words", size))

    # heterofl-facts: `<ukn>` is an extra symbol, not the corpus's own `<unk>`.
    words = ["the", "<unk>", "<eos>", "cat", "the", "<eos>"]
    assert learn(words) == ("<ukn>", "<eos>", "the", "<unk>", "cat")
    assert encode(["cat", "dog", "<eos>"], learn(words)).tolist() == [4, 0, 1]
    assert encode([], learn(words)).dtype == np.int32
    words = ["rare", "b", "a", "a", "b", "c", "c", "c", "<eos>"]
    for size, known in {6: ("rare", "b", "a", "c"), 5: ("b", "a", "c"), 4: ("b", "c"), 99: learn(words)[2:]}.items():
        assert learn(words, size) == ("<ukn>", "<eos>", *known)


def test_rows_are_contiguous_and_use_the_training_vocabulary(tmp_path):
    write(tmp_path / "a.txt", b"a b\nc d\n")
    write(tmp_path / "b.txt", b"b z q\n")
    dataset = text.load(tmp_path, train="a.txt", test="b.txt", rows=2, test_rows=3)
    assert dataset.codec.vocabulary == ("<ukn>", "<eos>", "a", "b", "c", "d") and dataset.classes == 6
    assert dataset.train.x.tolist() == [[2, 3, 1], [4, 5, 1]]
    # The fourth word is cut off.
    assert dataset.test.x.tolist() == [[3], [0], [0]]
    message = "`rows` must not exceed the 6 words of the text. Received: rows=7"
    assert refusal(text.load, tmp_path, train="a.txt", test="b.txt", rows=7) == message
    # The end of the text is the default test split.
    write(tmp_path / "a.txt", b"a b c d\ne f g h\n")
    dataset = text.load(tmp_path, train="a.txt", rows=1, test_rows=1, test_share=0.3)
    assert (dataset.train.x.tolist(), dataset.test.x.tolist()) == ([[2, 3, 4, 5, 1, 6, 7]], [[0, 0, 1]])


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
