"""Loads text files of the user, with the preprocessing of WikiText-2."""

from pathlib import Path

from hetero_tf.base.constraints import Count, TestShare, Tokenizer, Vocabulary
from hetero_tf.data.data_files import find
from hetero_tf.data.dataset import Dataset
from hetero_tf.data.words import read_words, split_end, text_dataset


def load(
    data_dir: Path | None,
    *,
    train: str,
    test: str | None = None,
    test_share: TestShare = 0.1,
    rows: Count = 100,
    test_rows: Count = 10,
    tokenizer: Tokenizer = "words",
    vocabulary: Vocabulary | None = None,
) -> Dataset:
    """Loads text files as rows of words or characters.

    Args:
        train: training text, plain or .gz, UTF-8
        test: test text; null: the last part of the training text
        test_share: size of that part, as a share of all words
        rows: equal parts of the training text; each is one example to the partition
        test_rows: equal parts of the test text
        tokenizer: words (separated by white space) or characters (`▁` for white space), for languages without spaces
            such as Chinese, Japanese and Thai
        vocabulary: largest vocabulary size, including `<ukn>` and `<eos>`; null: all words
    """
    path = find(data_dir, train, "train")
    words = read_words(path)
    if test is not None:
        held_out = read_words(find(data_dir, test, "test"))
    else:
        words, held_out = split_end(words, test_share)
    return text_dataset(
        words, held_out, f"text ({path})", rows=rows, test_rows=test_rows, tokenizer=tokenizer, vocabulary=vocabulary
    )
