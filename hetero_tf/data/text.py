"""Load running text of the user from text, Parquet or Arrow files, with the preprocessing of WikiText-2."""

from pathlib import Path

from hetero_tf.base.constraints import Count, TestShare, Tokenizer, Vocabulary
from hetero_tf.base.errors import InputError
from hetero_tf.data.data_files import find
from hetero_tf.data.dataset import Dataset
from hetero_tf.data.table_files import is_typed, read_tables
from hetero_tf.data.tokenizers import END, find_tokens
from hetero_tf.data.words import TokenOptions, read_words, split_end, split_lines, text_dataset


def load(
    data_dir: Path | None,
    *,
    train: str,
    column: str = "text",
    test: str | None = None,
    test_share: TestShare = 0.1,
    rows: Count = 100,
    test_rows: Count = 10,
    encoding: str | None = None,
    tokenizer: Tokenizer = "words",
    vocabulary: Vocabulary | None = None,
    vocabulary_file: str | None = None,
    learned=None,
    validation=None,
) -> Dataset:
    """Load text files as rows of tokens.

    Args:
        train: training text: a file, plain or .gz; or a `.parquet` or `.arrow` file or folder, as for `parquet`
        column: the column of texts of a `.parquet` or `.arrow` file or folder; each row is one or more lines
        test: test text; null: the test split of a folder, else the last part of the training text
        test_share: size of that part, as a share of all words
        rows: equal parts of the training text; each is one example to the partition
        test_rows: equal parts of the test text
        encoding: encoding of text files, such as cp1252; null: UTF-8, or UTF-16 with a byte order mark
        tokenizer: words (separated by white space), characters (`▁` for white space) or subwords (pieces of words that
            byte-pair encoding learns from the training texts); without spaces, as in Chinese, Japanese and Thai,
            characters or subwords
        vocabulary: largest vocabulary size, including `<ukn>` and `<eos>`; null: all words
        vocabulary_file: file with a token in each line (SentencePiece, WordPiece, or of an export); null: the tokens of
            the training texts
        learned, validation: Vocabulary of a started run, and rows of which no words are learned, see `data.load`.
    """
    path = find(data_dir, train, "train")
    if is_typed(path):
        tables, _ = read_tables(data_dir, train, test, [column], None)
        columns = [table.text_column("column", column) for table in tables]
        texts = [split_lines(each.texts[code] for code in each.codes) for each in columns]
        for table, words in zip(tables, texts):
            if set(words) <= {END}:
                raise InputError(f"{table.source}: column {column!r} must have words. Received: none")
    else:
        paths = [path, *([] if test is None else [find(data_dir, test, "test")])]
        texts = [read_words(each, encoding) for each in paths]
    words, test_words = texts if len(texts) == 2 else split_end(texts[0], test_share)
    tokens = find_tokens(data_dir, vocabulary_file, tokenizer)
    options = TokenOptions(tokenizer, vocabulary, tokens, learned, validation)
    return text_dataset(words, test_words, f"text ({path})", options, rows=rows, test_rows=test_rows)
