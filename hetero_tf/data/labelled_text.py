"""Loads labelled texts of the user: CSV, TSV, JSON Lines, Parquet, Arrow, Hugging Face and folders of text files."""

import itertools
import json
from pathlib import Path

from hetero_tf.base.constraints import Count, TestShare, Tokenizer, Vocabulary
from hetero_tf.base.errors import InputError, shorten_repr
from hetero_tf.base.files import open_file
from hetero_tf.data.arrow_files import ColumnSelection
from hetero_tf.data.column_targets import read_targets
from hetero_tf.data.csv import read_table
from hetero_tf.data.data_files import find, find_file, find_folder
from hetero_tf.data.dataset import Dataset, Split
from hetero_tf.data.held_out import held_out
from hetero_tf.data.parquet import is_arrow, read_splits
from hetero_tf.data.raw_table import RawTable, TextColumn
from hetero_tf.data.sentences import build_sentence_vocabulary, encode_sentences, split_text
from hetero_tf.data.text_folders import has_text_folders, read_text_folders
from hetero_tf.data.tokenizers import check_spaces
from hetero_tf.data.vocabulary_file import find_tokens
from hetero_tf.data.words import LONGEST_LINE, TokenOptions, build_tokenizer

# Delimiter by file extension; every other extension means commas.
DELIMITERS = {".tsv": "\t", ".tab": "\t"}
JSON_LINES = (".jsonl", ".json", ".ndjson")


def load(
    data_dir: Path | None,
    *,
    path: str,
    text: str = "text",
    label: str = "label",
    test: str | None = None,
    test_share: TestShare = 0.2,
    owner: str | None = None,
    tokenizer: Tokenizer = "words",
    length: Count = 64,
    vocabulary: Vocabulary | None = 10000,
    vocabulary_file: str | None = None,
    learned=None,
) -> Dataset:
    """Loads the texts and labels of a file or folder.

    A file is a table in `.tsv`, `.jsonl` (one object per line), `.parquet` or `.arrow`, otherwise CSV. A folder is one
    that `data: parquet` reads, such as Hugging Face's, or has a folder of text files for each class:
    FOLDER/CLASS/*.txt, or FOLDER/train/CLASS/*.txt and FOLDER/test/CLASS/*.txt. Text files are UTF-8.

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
        tokenizer: words (and punctuation marks), characters (`▁` for white space) or subwords (pieces of words that
            byte-pair encoding learns from the training texts); without spaces, as in Chinese, Japanese and Thai,
            characters or subwords
        length: tokens per row; longer texts are truncated
        vocabulary: largest vocabulary size, including `<pad>` and `<ukn>`; the most frequent ones are used; null: all
        vocabulary_file: file with a token in each line (SentencePiece, WordPiece, or of an export), or `tokenizer.json`
            of `tokenizers` (WordLevel for words, else WordPiece, BPE or Unigram, applied by longest match); null: the
            tokens of the training texts
        learned: Vocabulary of a started run, see `data.load`.
    """
    tables, names = _read_tables(data_dir, path, test, (text, label, owner))
    texts = [_split_texts(table, text, tokenizer) for table in tables]
    names, targets = read_targets(tables, (label,), owner, names)
    is_test = held_out(targets[0][0], test_share, tables[0].source) if len(tables) == 1 else None
    training_texts = texts[0] if is_test is None else [words for words, out in zip(texts[0], is_test) if not out]
    source = f"labelled text ({tables[0].source})"
    if tokenizer == "words":
        check_spaces(source, [word for words in training_texts for word in words])
    options = TokenOptions(tokenizer, vocabulary, find_tokens(data_dir, vocabulary_file, tokenizer), learned)
    known = build_sentence_vocabulary(training_texts, options)
    tokenize = build_tokenizer(tokenizer, known)
    encoded = [encode_sentences([tokenize(words) for words in each], known, length) for each in texts]
    splits = [Split(ids, *target) for ids, target in zip(encoded, targets)]
    train, tests = splits if is_test is None else (splits[0].select(~is_test), splits[0].select(is_test))
    return Dataset(train, tests, len(names), source, vocabulary=known, class_names=names, tokenizer=tokenizer)


def _read_tables(data_dir, path, test, columns):
    """Returns the tables of the training rows and, if present, of the test rows, and the class names or None."""
    source, (text, label, owner) = find(data_dir, path, "path"), columns
    if source.is_dir() and has_text_folders(source):
        tables = read_text_folders(source, text, label)
        if test is not None:
            tables[1:] = read_text_folders(find_folder(data_dir, test, "test"), text, label)[:1]
        return tables, None
    if is_arrow(source):
        names = [text, label] if owner is None else [text, label, owner]
        return read_splits(data_dir, path, test, ColumnSelection(names, (), None), label)
    files = [find_file(data_dir, name, option) for option, name in (("path", path), ("test", test)) if name is not None]
    return [read_rows(file) for file in files], None


def _split_texts(table: RawTable, name: str, tokenizer: str) -> list[list[str]]:
    """Splits the text of each row into words; `InputError` for a text without words."""
    column = table.text_column("text", name)
    words = {text: split_text(text, tokenizer) for text in column.texts}
    if empty := column.find(lambda text: not words[text]):
        raise table.value_error(empty[0], name, "has no words; fill it in or remove the row")
    return [words[column.texts[code]] for code in column.codes]


def read_rows(path: Path) -> RawTable:
    """Reads the `RawTable` of a CSV, TSV or JSON Lines file."""
    if path.suffix.lower() in JSON_LINES:
        return _read_json_lines(path)
    return read_table(path, True, DELIMITERS.get(path.suffix.lower(), ","))


def _read_json_lines(path):
    """Reads the `RawTable` of a JSON Lines file; all objects must have the keys of the first."""
    rows: dict[int, dict] = {}
    with open_file(path) as file:
        for number in itertools.count(1):
            line = file.readline(LONGEST_LINE + 1)
            if not line:
                break
            if (row := _parse_object(f"{path}:{number}", line)) is None:
                continue
            first = next(iter(rows.values()), row)
            if row.keys() != first.keys():
                odd = sorted(row.keys() ^ first.keys())
                raise InputError(
                    f"{path}:{number}: must have the keys of the first line. Received: {odd} in only one of them"
                )
            rows[number] = row
    if not rows:
        raise InputError(f"{path}: expected at least one row. Received: none")
    columns = {name: TextColumn.from_values(row[name] for row in rows.values()) for name in first}
    lines = list(rows)
    return RawTable(str(path), columns, lambda row: f"{path}:{lines[row]}")


def _parse_object(position: str, line: bytes) -> dict[str, str] | None:
    """Parses the texts and numbers of a line as texts; None for a blank line."""
    if len(line) > LONGEST_LINE:
        raise InputError(f"{position}: a line may have at most {LONGEST_LINE} bytes")
    try:
        decoded = line.decode("utf-8-sig").strip()
        content = json.loads(decoded) if decoded else None
    except UnicodeDecodeError as error:
        raise InputError(f"{position}: is not UTF-8 text; save it as UTF-8") from error
    except (ValueError, RecursionError) as error:
        raise InputError(
            f"{position}: is not valid JSON: {shorten_repr(error)}; each line must be an object"
        ) from error
    if content is None and not decoded:
        return None
    if not isinstance(content, dict) or any(not isinstance(value, str | int | float) for value in content.values()):
        raise InputError(f"{position}: must be an object of texts and numbers. Received: {shorten_repr(decoded, 80)}")
    return {name: str(value) for name, value in content.items()}
