"""Reads the inputs of `predict` one at a time: pictures, clips, rows and texts. An invalid item has its error."""

import contextlib
import csv
import io
import itertools
import json
import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from hetero_tf.base.errors import InputError, UserError, did_you_mean, shorten_repr
from hetero_tf.base.files import open_file, read_bytes, read_errors
from hetero_tf.data.codecs import Field, series, words
from hetero_tf.data.columns import parse_number
from hetero_tf.data.folder import iterate_files
from hetero_tf.data.picture_files import LARGEST_FILE
from hetero_tf.data.table_files import DELIMITERS, JSON_LINES, TAB_ENDINGS, TABLE_ENDINGS
from hetero_tf.data.targets import LABEL, find

# A missing file with one of these endings is never a sentence.
ROW_FILES = (*TABLE_ENDINGS, *JSON_LINES, ".txt")
# A first line by which some spreadsheets declare the delimiter.
SEPARATOR = re.compile(r'"?sep=(.)"?', re.IGNORECASE)
# Ignored columns in a note.
MAX_LISTED = 10


@dataclass(frozen=True)
class ItemForm:
    """Form of the items that a model predicts.

    Attributes:
        targets: Form of the targets, see `data.targets`.
        classes: Number of classes, targets or words.
        class_names: Names of the classes or targets; empty for words.
        fields: Fields of an item; a text has the name of its column in a file with several.
        labels: Columns of the targets; a single label is compared with the prediction.
        header: Whether the first line of a table contains the column names.
    """

    targets: str
    classes: int
    class_names: tuple[str, ...]
    fields: tuple[Field, ...]
    labels: tuple[str, ...]
    header: bool

    @property
    def codec(self) -> Any:
        """The codec of the first field."""
        return self.fields[0].codec

    @property
    def is_text(self) -> bool:
        """True if the items are texts."""
        return isinstance(self.codec, words.Codec)

    def to_label(self, name: str) -> str | None:
        """Return a name if it is the label of an example with one label, else None."""
        return name if self.targets == LABEL and name in self.class_names else None

    def names(self, top: int) -> tuple[str, ...]:
        """Return the names of the fields of a prediction with at most `top` classes or words."""
        return find(self.targets).names(self.class_names, self.classes, top)

    @property
    def required(self) -> list[str]:
        """Columns that a file of rows or texts must have."""
        return [field.name for field in self.fields]


@dataclass(frozen=True)
class Item:
    """An input of `predict`.

    Attributes:
        source: Path of a picture or clip, FILE:LINE of a row or text in a file, or the row or text of the command line.
        value: Value of each field: pixels of a picture in 0..1, samples of a clip in -1..1, numbers [time, channels] of
            a series, numbers and texts of a row, or a UTF-8 text; None if the item is invalid.
        error: Reason why the item cannot be read; None if it is valid.
        label: Name of its class; None if unknown.
        fields: Texts of a row by column name.
        size: Width and height of a picture file, upright.
    """

    source: str
    value: tuple | None = None
    error: str | None = None
    label: str | None = None
    fields: dict[str, str] = field(default_factory=dict)
    size: tuple[int, int] | None = None


def open_items(inputs: Sequence[str], form: ItemForm, on_note: Callable[[str], object]) -> Iterator[Item]:
    """Check the inputs, and return an iterator over their items in order.

    Args:
        inputs: For images and audio: files, and folders whose files are read with those of their subfolders. For
            series: CSV files with a column for each channel, whose last positions are read. For tables: files of rows,
            and rows in the form of `parse_row`. For text: files, and texts. The ending of a file selects its
            format: .csv, .tsv or .tab with column names, .jsonl, .json or .ndjson with one object per line, otherwise
            one text per line. A table may have any ending and delimiter.
        form: Form of the items.
        on_note: Receives a note about each file with columns that are ignored.

    Raises:
        InputError: A file or folder is missing or empty, or a table lacks a column.
    """
    if hasattr(form.codec, "FILES"):
        return itertools.chain.from_iterable([_open_files(path, form) for path in inputs])
    if isinstance(form.codec, series.Codec):
        return (_read_series(path, form) for path in inputs)
    return itertools.chain.from_iterable([_open_rows(text, form, on_note) for text in inputs])


def _open_files(path, form):
    kind = form.codec.FILES
    if not os.path.isdir(path):
        return (_read_file(file, None, form) for file in [path])
    endings = (*kind.endings, *kind.unsupported)
    with read_errors(path):
        files = sorted(file for file in iterate_files(Path(path)) if file.suffix.lower() in endings)
    if not files:
        raise InputError(f"{path}: expected {', '.join(kind.endings)} files. Received: none")
    return (_read_file(str(file), _label_of(file.relative_to(path), form), form) for file in files)


def _label_of(file, form):
    """Return the name of the class whose folder contains a file."""
    return next(filter(None, map(form.to_label, file.parts[:-1])), None)


def _read_file(path, label, form):
    try:
        content = read_bytes(path, LARGEST_FILE, follow=True)
        value, size = form.codec.read(content), form.codec.size_of(content)
    except UserError as error:
        return Item(path, error=str(error).removeprefix(f"{path}: "), label=label)
    return Item(path, (value,), label=label, size=size)


def _read_series(path, form):
    """Return the item of the last positions of a CSV file with a column for each channel."""
    time, channels = form.codec.shape
    try:
        names, delimiter = _read_layout(path, form.codec.channels or (), True)
        rows = [_valid(row) for _, row in _iterate_table(path, names, delimiter, True)]
        names = list(form.codec.channels or names)
        if len(names) != channels or len(rows) < time:
            raise InputError(
                f"must have {channels} columns of numbers and at least {time} rows, the oldest first. "
                f"Received: {len(names)} columns, {len(rows)} rows"
            )
        numbers = [[parse_number(row[name].strip(), name) for name in names] for row in rows[-time:]]
    except UserError as error:
        return Item(path, error=str(error).removeprefix(f"{path}: "))
    return Item(path, (np.array(numbers),))


def _valid(row):
    if isinstance(row, InputError):
        raise row
    return row


def _open_rows(text, form, on_note):
    if not os.path.isfile(text):
        if text.lower().endswith(ROW_FILES) and "\n" not in text:
            raise InputError(f"{text}: no such file")
        return (_parse_item(text, form) for text in [text])
    suffix = Path(text).suffix.lower()
    if suffix in JSON_LINES:
        return _read_rows(text, form, form.required, _iterate_lines(text, _parse_object))
    if form.is_text and suffix not in TABLE_ENDINGS:
        return _read_rows(text, form, form.required, _iterate_lines(text, lambda line: {form.required[0]: line}))
    names, delimiter = _read_layout(text, form.required, form.header)
    ignored = [name for name in names if name not in (*form.required, *form.labels)]
    if ignored:
        more = f" and {len(ignored) - MAX_LISTED} more" if len(ignored) > MAX_LISTED else ""
        on_note(f"{text}: ignored columns: {', '.join(ignored[:MAX_LISTED])}{more}")
    return _read_rows(text, form, names, _iterate_table(text, names, delimiter, form.header))


def _parse_item(text, form):
    """Return the item of a row or text of the command line."""
    try:
        row = {form.required[0]: text} if form.is_text else parse_row(text, form.required)
    except InputError as error:
        return Item(text, error=str(error))
    return _encode(text, row, form)


def _read_rows(path, form, names, rows):
    """Yield the items of a file.

    Args:
        path: The file.
        form: Form of the items.
        names: Columns of the file.
        rows: Iterator of (line number, texts by column or the error).
    """
    is_empty = True
    for number, row in rows:
        is_empty = False
        source = f"{path}:{number}"
        if isinstance(row, InputError):
            yield Item(source, error=str(row), fields=dict.fromkeys(names, ""))
        else:
            yield _encode(source, row, form)
    if is_empty:
        raise InputError(f"{path}: expected at least one row. Received: none")


def _encode(source, row, form):
    """Return the item of a row: texts by column."""
    try:
        value = tuple(_parse(row, field) for field in form.fields)
    except InputError as error:
        return Item(source, error=str(error), fields=row)
    texts = [row[name].strip() for name in form.labels if name in row]
    return Item(source, value, label=form.to_label(texts[0]) if texts else None, fields=row)


def _parse(row, field):
    if field.name not in row:
        raise InputError(f"has no value for column {field.name!r}")
    if any("\ud800" <= letter <= "\udfff" for letter in row[field.name]):
        raise InputError("is not UTF-8 text; save it as UTF-8")
    return field.codec.parse(field.name, row[field.name])


def parse_row(row: str, names: Sequence[str]) -> dict[str, str]:
    """Return the values of a row written as text by column name.

    Args:
        row: Comma-separated values in column order, `5.1,red`, or named values in any order, `size=5.1,colour=red`.
        names: Names of the columns.

    Raises:
        InputError: A column has no value or two values.
    """
    values = next(csv.reader([row], skipinitialspace=True), [])
    fields = [value.partition("=") for value in values]
    if any(sign and name.strip() in names for name, sign, _ in fields):
        named = {name.strip(): value for name, _, value in fields}
    else:
        named = dict(zip(names, values))
    if len(values) != len(names) or set(named) != set(names):
        raise InputError(
            f"a row must have a value for each column, {', '.join(names[:20])}{', ...' if len(names) > 20 else ''}, "
            f"separated by commas: `1,2`, or `NAME=1,NAME=2` in any order. Received: {row!r}"
        )
    return named


@contextlib.contextmanager
def _open_text(path):
    """Open a text file; bytes that are not UTF-8 become surrogates, which `_parse` rejects."""
    with open_file(path) as file:
        yield io.TextIOWrapper(file, "utf-8-sig", "surrogateescape", newline="")


def _iterate_lines(path, parse):
    """Yield (number, row or its error) of each line that is not blank."""
    with _open_text(path) as lines:
        for number, line in enumerate(lines, 1):
            if line.strip():
                try:
                    yield number, parse(line.rstrip("\r\n"))
                except InputError as error:
                    yield number, error


def _parse_object(line):
    try:
        content = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise InputError(f"is not valid JSON: {shorten_repr(error)}; each line must be an object") from error
    if not isinstance(content, dict):
        raise InputError(f"must be a JSON object. Received: {shorten_repr(line.strip(), 80)}")
    # Texts and numbers become the texts that the loader of JSON lines reads.
    return {
        name: "" if value is None else str(value) if isinstance(value, str | int | float) else json.dumps(value)
        for name, value in content.items()
    }


def _iterate_table(path, names, delimiter, header):
    """Yield (number, row or its error) of each row of a table that is not blank."""
    with _open_text(path) as lines:
        reader = csv.reader(lines, delimiter=delimiter, skipinitialspace=True, strict=True)
        is_header = header
        while True:
            try:
                values = next(reader)
            except StopIteration:
                return
            except csv.Error as error:
                yield reader.line_num, InputError(f"cannot be parsed as CSV: {error}")
                continue
            is_declaration = reader.line_num == 1 and SEPARATOR.fullmatch(delimiter.join(values))
            if is_declaration or not any(value.strip() for value in values):
                continue
            if is_header:
                is_header = False
            elif len(values) == len(names):
                yield reader.line_num, dict(zip(names, values))
            else:
                yield (
                    reader.line_num,
                    InputError(
                        f"must have {len(names)} values separated by {delimiter!r}, like the first line. "
                        f"Received: {len(values)}, {shorten_repr(values, 80)}"
                    ),
                )


def _read_layout(path, required, header):
    """Return the names of the columns of a table and its delimiter, the one that separates most required columns."""
    with _open_text(path) as lines:
        head = [line for line in itertools.islice(lines, 10) if line.strip()]
    declared = SEPARATOR.fullmatch(head[0].rstrip("\r\n")) if head else None
    if not (head := head[declared is not None :]):
        raise InputError(f"{path}: expected at least one row. Received: none")
    if "\x00" in head[0]:
        raise InputError(f"{path}: is not UTF-8 text; save it as UTF-8")
    first = "\t" if Path(path).suffix.lower() in TAB_ENDINGS else ","
    layouts = []
    for delimiter in [declared[1]] if declared else dict.fromkeys([first, *DELIMITERS.values()]):
        names = [name.strip() for name in next(csv.reader(head[:1], delimiter=delimiter, skipinitialspace=True))]
        if not header:
            names = list(required) if len(names) == len(required) else [f"column_{i}" for i in range(len(names))]
        layouts.append((names, delimiter))
    names, delimiter = max(layouts, key=lambda layout: len({*required} & {*layout[0]}))
    if missing := [name for name in required if name not in names]:
        raise InputError(f"{path}: has no column {missing[0]!r}{did_you_mean(missing[0], names)}")
    if twice := [name for name in required if names.count(name) > 1]:
        raise InputError(f"{path}: column names must be unique. Received: {twice[0]!r} twice")
    return names, delimiter
