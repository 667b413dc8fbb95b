"""A person's own texts with one label each: a CSV or TSV file, or JSON lines."""

import json
from collections.abc import Iterable
from pathlib import Path

from hetero_tf.base.constraints import Count, TestShare, Vocabulary
from hetero_tf.base.errors import InputError, did_you_mean, short
from hetero_tf.base.files import opened
from hetero_tf.data.csv import read_sheet
from hetero_tf.data.data_files import find_file
from hetero_tf.data.dataset import Dataset, Split
from hetero_tf.data.held_out import held_out
from hetero_tf.data.sentences import encode_sentences, vocabulary_of_sentences, words_of
from hetero_tf.data.table_dataset import RawTable, classes_of, labels_of, owner_numbers, owners_of
from hetero_tf.data.words import LONGEST_LINE

# By the ending of a file: what stands between two values. Every other ending stands for commas.
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
    length: Count = 64,
    vocabulary: Vocabulary | None = 10000,
) -> Dataset:
    """Loads a UTF-8 file with a text and its label in each row: `.tsv`, `.jsonl` (an object a line), others are CSV.

    Texts are split into lower-cased words and single signs. Word 0 is `<pad>`, which fills a row behind its text; word
    1 is `<ukn>`, which stands for every word that is not in the vocabulary of the training texts.

    Args:
        data_dir: Folder in which a relative path is looked for first, then the working folder; None: only the latter.
        path: the file
        text: the column of texts
        label: the column of labels; its different values are the class names
        test: file of the test rows, with the same columns; null: a share of the rows of each label
        test_share: size of that share
        owner: column that says from which natural client a row is, for the partition natural; null: none
        length: words of a row; the rest of a longer text is left out
        vocabulary: largest number of words known, `<pad>` and `<ukn>` included, the most frequent ones; null: all

    Raises:
        NotAvailable: A file is missing.
        InputError: A file is no such table, or a text or label is missing.
        MemoryProblem: The table does not fit into memory.
    """
    sheets = [_sheet(find_file(data_dir, path, "path"))]
    if test is not None:
        sheets.append(_sheet(find_file(data_dir, test, "test")))
    texts = [_words(sheet, text) for sheet in sheets]
    names, owners = _classes(sheets[0], label), owner_numbers(sheets, owner)
    labels = [labels_of(sheet, label, names) for sheet in sheets]
    owned = [owners_of(sheet, owner, owners) for sheet in sheets]
    tested = held_out(labels[0], test_share, sheets[0].source) if test is None else None
    trained = texts[0] if tested is None else [words for words, out in zip(texts[0], tested) if not out]
    known = vocabulary_of_sentences(trained, vocabulary)
    splits = [
        Split(encode_sentences(of_sheet, known, length), y, whose) for of_sheet, y, whose in zip(texts, labels, owned)
    ]
    if tested is not None:
        splits = [splits[0].of(~tested), splits[0].of(tested)]
    source = f"labelled text ({sheets[0].source})"
    train, tests = splits
    return Dataset(train, tests, len(names), source, vocabulary=known, class_names=names)


def _classes(sheet, label):
    _check_column(sheet, "label", label)
    return classes_of(sheet, label)


def _check_column(sheet, option, name):
    if name not in sheet.columns:
        raise InputError(
            f"{sheet.source}: `{option}` must name a column. Received: {option}={name!r}"
            f"{did_you_mean(name, sheet.columns)}"
        )


def _words(sheet: RawTable, text: str) -> list[list[str]]:
    """The words of each text of a sheet; a text without any is refused."""
    _check_column(sheet, "text", text)
    found = [words_of(one) for one in sheet.columns[text]]
    for row, words in enumerate(found):
        if not words:
            raise InputError(f"{sheet.place(row)}: column {text!r} has no word here; fill it in or remove the row")
    return found


def _sheet(path):
    if path.suffix.lower() in JSON_LINES:
        return _json_lines(path)
    return read_sheet(path, True, DELIMITERS.get(path.suffix.lower(), ","))


def _json_lines(path):
    """The `RawTable` of a file with a JSON object on each line, all with the keys of the first."""
    rows, lines = [], []
    with opened(path) as file:
        while line := file.readline(LONGEST_LINE + 1):
            lines.append(len(lines) + 1)
            rows.append(_object(f"{path}:{len(lines)}", line, rows))
    kept = [(row, line) for row, line in zip(rows, lines) if row is not None]
    if not kept:
        raise InputError(f"{path}: expected rows. Received: none")
    columns = {name: [row[name] for row, _ in kept] for name in kept[0][0]}
    return RawTable(str(path), columns, lambda row: f"{path}:{kept[row][1]}", path.stat().st_size)


def _object(place: str, line: bytes, before: Iterable[dict | None]) -> dict[str, str] | None:
    """The texts and numbers of a line as texts; None for a blank line."""
    if len(line) > LONGEST_LINE:
        raise InputError(f"{place}: a line may have up to {LONGEST_LINE} bytes")
    try:
        decoded = line.decode("utf-8-sig").strip()
        found = json.loads(decoded) if decoded else None
    except UnicodeDecodeError as error:
        raise InputError(f"{place}: is not UTF-8 text; save it as UTF-8") from error
    except (ValueError, RecursionError) as error:
        raise InputError(f"{place}: is no JSON: {short(error)}; each line must hold an object") from error
    if found is None and not decoded:
        return None
    if not isinstance(found, dict) or any(not isinstance(value, str | int | float) for value in found.values()):
        raise InputError(f"{place}: must hold an object of texts and numbers. Received: {short(decoded, 80)}")
    first = next((row for row in before if row is not None), found)
    if found.keys() != first.keys():
        odd = sorted(found.keys() ^ first.keys())
        raise InputError(f"{place}: must have the keys of the first line. Received: {odd} in one of them only")
    return {name: str(value) for name, value in found.items()}
