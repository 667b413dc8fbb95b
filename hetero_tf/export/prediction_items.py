"""Reads the inputs of `predict`, with the readers of the data loaders; an item with an invalid value has its error."""

import csv
import itertools
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from hetero_tf.base.errors import InputError, UserError, did_you_mean
from hetero_tf.base.files import read_bytes, read_errors
from hetero_tf.data.arrow_files import ENDINGS as ARROW
from hetero_tf.data.codecs import Field, series, words
from hetero_tf.data.columns import parse_number
from hetero_tf.data.folder import iterate_files
from hetero_tf.data.picture_files import LARGEST_FILE
from hetero_tf.data.raw_table import TextColumn
from hetero_tf.data.table_files import EXCEL, JSON_LINES, TABLE_ENDINGS, read_table, read_text, table_ending
from hetero_tf.data.targets import LABEL, find

# Endings of tables; a file with another one has a text in each line. A missing file with one of them is an error.
ROW_FORMATS = (*TABLE_ENDINGS, *JSON_LINES, *EXCEL, *ARROW)
ROW_FILES = (*ROW_FORMATS, ".txt")
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
    """Read the inputs, and return an iterator over their items in order.

    Args:
        inputs: For images and audio: files, and folders whose files are read with those of their subfolders. For
            series: tables with a column for each channel, whose last positions are read. For a table: files that
            `data: csv` reads, and rows in the form of `parse_row`. For text: such files, files with one text per
            line, and texts.
        form: Form of the items.
        on_note: Receives a note about each file with columns that are ignored.
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
    return next(filter(None, map(form.to_label, file.parts[:-1])), None)


def _read_file(path, label, form):
    try:
        content = read_bytes(path, LARGEST_FILE, follow=True)
        value, size = form.codec.read(content), form.codec.size_of(content)
    except UserError as error:
        return Item(path, error=str(error).removeprefix(f"{path}: "), label=label)
    return Item(path, (value,), label=label, size=size)


def _read_series(path, form):
    """Return the item of the last positions of a table with a column for each channel."""
    time, count = form.codec.shape
    try:
        table = read_table(Path(path))
        columns = _columns(table, form.codec.channels or ())
        columns = {name: columns[name] for name in form.codec.channels or columns}
        if len(columns) != count or table.rows < time:
            raise InputError(
                f"must have {count} columns of numbers and at least {time} rows, the oldest first. "
                f"Received: {len(columns)} columns, {table.rows} rows"
            )
        numbers = [
            [parse_number(column.texts[code], name) for code in column.codes[-time:]]
            for name, column in columns.items()
        ]
    except UserError as error:
        return Item(path, error=str(error).removeprefix(f"{path}: "))
    return Item(path, (np.transpose(numbers),))


def _open_rows(text, form, on_note):
    if not os.path.isfile(text):
        if text.lower().endswith(ROW_FILES) and "\n" not in text:
            raise InputError(f"{text}: no such file")
        return (_parse_item(text, form) for text in [text])
    path = Path(text)
    if form.is_text and table_ending(path) not in ROW_FORMATS:
        return _read_lines(path, form)
    table = read_table(path, form.header)
    if not form.header and len(table.columns) == len(form.required):
        table = replace(table, columns=dict(zip(form.required, table.columns.values())))
    columns = _columns(table, form.required)
    ignored = [name for name in columns if name not in (*form.required, *form.labels)]
    if ignored:
        more = f" and {len(ignored) - MAX_LISTED} more" if len(ignored) > MAX_LISTED else ""
        on_note(f"{path}: ignored columns: {', '.join(ignored[:MAX_LISTED])}{more}")
    return (
        _encode(table.locate(row), {name: column.texts[column.codes[row]] for name, column in columns.items()}, form)
        for row in range(table.rows)
    )


def _columns(table, required):
    """Return the columns of a table as texts; `InputError` if a required one is missing."""
    if missing := [name for name in required if name not in table.columns]:
        raise InputError(f"{table.source}: has no column {missing[0]!r}{did_you_mean(missing[0], table.columns)}")
    return {name: TextColumn.of(column) for name, column in table.columns.items()}


def _read_lines(path, form):
    """Return the items of a file with one text per line."""
    lines = [(number, line.strip()) for number, line in enumerate(read_text(path).split("\n"), 1) if line.strip()]
    if not lines:
        raise InputError(f"{path}: expected at least one row. Received: none")
    return (_encode(f"{path}:{number}", {form.required[0]: line}, form) for number, line in lines)


def _parse_item(text, form):
    try:
        row = {form.required[0]: text} if form.is_text else parse_row(text, form.required)
    except InputError as error:
        return Item(text, error=str(error))
    return _encode(text, row, form)


def _encode(source, row, form):
    try:
        value = tuple(field.codec.parse(field.name, row[field.name]) for field in form.fields)
    except InputError as error:
        return Item(source, error=str(error), fields=row)
    texts = [row[name].strip() for name in form.labels if name in row]
    return Item(source, value, label=form.to_label(texts[0]) if texts else None, fields=row)


def parse_row(row: str, names: Sequence[str]) -> dict[str, str]:
    """Return the values of a row written as text by column name.

    Args:
        row: Comma-separated values in column order, `5.1,red`, or named values in any order, `size=5.1,colour=red`.
        names: Names of the columns.
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
