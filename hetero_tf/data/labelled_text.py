"""Load labelled texts of the user: CSV, TSV, JSON Lines, Parquet, Arrow, Hugging Face and folders of text files."""

from pathlib import Path
from typing import Literal

import numpy as np

from hetero_tf.base.constraints import Count, TestShare, Tokenizer, Vocabulary
from hetero_tf.data.codecs import Field, words
from hetero_tf.data.column_types import read_targets
from hetero_tf.data.columns import RawTable, TextColumn
from hetero_tf.data.data_files import find
from hetero_tf.data.dataset import Dataset, Split, held_out
from hetero_tf.data.folder import FileKind, iterate_files, list_class_folders, list_folders, split_folders
from hetero_tf.data.table_files import read_tables, read_text
from hetero_tf.data.tokenizers import PADDING, UNKNOWN, check_spaces, find_tokens
from hetero_tf.data.words import TokenOptions, build_tokenizer, encode_sentences, learn_vocabulary, split_text


def load(
    data_dir: Path | None,
    *,
    path: str,
    text: str = "text",
    label: str = "label",
    test: str | None = None,
    test_share: TestShare = 0.2,
    owner: str | None = None,
    missing: Literal["error", "drop"] = "error",
    header: bool = True,
    encoding: str | None = None,
    tokenizer: Tokenizer = "words",
    length: Count = 64,
    vocabulary: Vocabulary | None = 10000,
    vocabulary_file: str | None = None,
    learned=None,
    validation=None,
) -> Dataset:
    """Load the texts and labels of a file or folder.

    A file is a table of any format that `data: csv` reads. A folder is one that `data: parquet` reads, such as Hugging
    Face's, or has a folder of text files for each class: FOLDER/CLASS/*.txt, or FOLDER/train/CLASS/*.txt and
    FOLDER/test/CLASS/*.txt.

    Texts are made lower-case and split into tokens. Token 0 is `<pad>`, which pads a row after its text. Token 1 is
    `<ukn>`, which replaces every token outside the vocabulary of the training texts.

    Args:
        path: the file or folder
        text: the column of texts
        label: the column of labels; its distinct values, or the names in Hugging Face metadata, are the class names
        test: file or folder of the test rows, with the same columns; null: the test split of a folder, else a share of
            the rows of each label
        test_share: size of that share
        owner: column with the natural client of each row, for the partition natural; null: none
        missing: treatment of rows without a text or a label: error, or drop (the row)
        header: whether the first row of a file contains the column names, else they are column_0, column_1 and so on
        encoding: encoding of text, such as cp1252; null: UTF-8, or UTF-16 with a byte order mark
        tokenizer: words (and punctuation marks), characters (`▁` for white space) or subwords (pieces of words that
            byte-pair encoding learns from the training texts); without spaces, as in Chinese, Japanese and Thai,
            characters or subwords
        length: tokens per row; longer texts are truncated
        vocabulary: largest vocabulary size, including `<pad>` and `<ukn>`; the most frequent ones are used; null: all
        vocabulary_file: file with a token in each line (SentencePiece, WordPiece, or of an export); null: the tokens of
            the training texts
        learned, validation: Vocabulary of a started run, and texts of which no words are learned, see `data.load`.
    """
    columns = {"text": text, "label": label, "owner": owner}
    tables, names = _read_tables(data_dir, path, test, columns, {"header": header, "encoding": encoding})
    if missing == "drop":
        tables = [table.drop_missing((text, label)) for table in tables]
    texts = [_split_texts(table, text, tokenizer) for table in tables]
    names, targets = read_targets(tables, (label,), owner, names)
    is_test = held_out(targets[0][0], test_share, tables[0].source) if len(tables) == 1 else None
    training = np.arange(len(texts[0])) if is_test is None else np.flatnonzero(~is_test)
    training = training if validation is None else np.delete(training, validation)
    source, training_words = f"labelled text ({tables[0].source})", [word for row in training for word in texts[0][row]]
    if tokenizer == "words":
        check_spaces(source, training_words)
    options = TokenOptions(tokenizer, vocabulary, find_tokens(data_dir, vocabulary_file, tokenizer), learned)
    # Running text has two special tokens as well.
    known = (PADDING, UNKNOWN, *learn_vocabulary(training_words, options)[2:])
    tokenize = build_tokenizer(tokenizer, known)
    encoded = [encode_sentences([tokenize(one) for one in each], known, length) for each in texts]
    splits = [Split(ids, *target) for ids, target in zip(encoded, targets)]
    train, tests = splits if is_test is None else (splits[0].select(~is_test), splits[0].select(is_test))
    fields = (Field("text", words.Codec(length, known, tokenizer)),)
    return Dataset(train, tests, fields, len(names), source, class_names=names)


def _read_tables(data_dir, path, test, columns, layout):
    """Return the tables of the training rows and, if present, of the test rows, and the class names or None."""
    source, text, label = find(data_dir, path, "path"), columns["text"], columns["label"]
    if not source.is_dir() or not has_text_folders(source):
        tables, names = read_tables(data_dir, path, test, [*columns.values()], label, **layout)
        for table in tables:
            table.check_columns(text=text, label=label)
        return tables, names
    tables = read_text_folders(source, text, label, layout["encoding"])
    if test is not None:
        folder = find(data_dir, test, "test", is_folder=True)
        tables[1:] = read_text_folders(folder, text, label, layout["encoding"])[:1]
    return tables, None


def _split_texts(table: RawTable, name: str, tokenizer: str) -> list[list[str]]:
    """Split the text of each row into words; `InputError` for a text without words."""
    column = table.text_column("text", name)
    words = {text: split_text(text, tokenizer) for text in column.texts}
    if empty := column.find(lambda text: not words[text]):
        raise table.value_error(empty[0], name, "has no words; fill it in or remove the row")
    return [words[column.texts[code]] for code in column.codes]


TEXTS = FileKind("labelled_text", "text files", ".txt", (".txt", ".text"), (".pdf", ".doc", ".docx", ".odt", ".rtf"))


def has_text_folders(folder: Path) -> bool:
    """Return whether a folder, or the one of its training split, has folders with text files."""
    train, _ = split_folders(folder)
    return any(
        file.suffix.lower() in TEXTS.endings for name in list_folders(train) for file in iterate_files(train / name)
    )


def read_text_folders(folder: Path, text: str, label: str, encoding: str | None = None) -> list[RawTable]:
    """Read the tables of the training and, if present, of the test split.

    Args:
        folder: FOLDER/CLASS/*.txt, or FOLDER/train/CLASS/*.txt and FOLDER/test/CLASS/*.txt.
        text, label: Names of the columns.
        encoding: See `read_text`.

    Raises:
        InputError: See `list_class_folders`; or a file has another encoding.
    """
    names, *splits = list_class_folders(folder, TEXTS)
    tables = []
    for split in filter(None, splits):
        contents = TextColumn.from_values([read_text(Path(file), encoding) for file in split.files])
        labels = TextColumn.from_values(names[number] for number in split.labels)
        tables.append(RawTable(str(split.folder), {text: contents, label: labels}, split.files.__getitem__))
    return tables
