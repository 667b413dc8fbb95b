"""Subwords: byte-pair encoding, longest match, vocabulary files, and their use by the loaders."""

import numpy as np
import pytest
from refusals import refusal

from hetero_tf.data import labelled_text, text
from hetero_tf.data.tokenizers import build_splitter, find_tokens, learn_pieces, read_tokens


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


def test_pieces_are_limited():
    assert learn_pieces(["aab", "aab"], 3) == ("a", "▁", "b")
    pieces = learn_pieces(["x" * 40, "x" * 40, "end.", "end."], 99)
    assert max(map(len, pieces)) == 16 and "▁end" in pieces and not any("d." in piece for piece in pieces)


def test_words_become_their_longest_pieces():
    split = build_splitter(["▁", "▁un", "▁under", "de", "r", "stand", "n"])
    assert split(["understand", "unde", "<eos>", "q"]) == ["▁under", "stand", "▁un", "de", "<eos>", "▁", "q"]


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
        ("a b\n", "words", "in each line. Received: 'a b'"),
        ("ab\n", "characters", "of at most 1 characters in each line. Received: 'ab'"),
        ("▁a▁\n", "subwords", "of at most 32 characters in each line. Received: '▁a▁'"),
        ("a" * 33, "subwords", f"of at most 32 characters in each line. Received: '{'a' * 33}'"),
        ("<pad>\n", "words", "in each line. Received: none"),
    ],
)
def test_wrong_files_are_rejected(tmp_path, content, tokenizer, sentence):
    (tmp_path / "v").write_text(content, "utf-8")
    message = refusal(read_tokens, tmp_path / "v", tokenizer)
    assert message.startswith(f"{tmp_path}/v: expected a token of `tokenizer: {tokenizer}`") and sentence in message
