"""Read the targets and owners of the rows of a table."""

import ast
import re
from collections.abc import Sequence

import numpy as np

from hetero_tf.base.errors import InputError, find_nearest, shorten_repr
from hetero_tf.data.column_types import require_numbers
from hetero_tf.data.columns import is_missing, normalize, sort_categories
from hetero_tf.data.inspection import are_coarse, inspect_column
from hetero_tf.data.raw_table import RawTable, TextColumn
from hetero_tf.data.targets import LABEL, LABEL_SET, NUMBERS

# Texts of the columns of label sets.
FLAGS = {"0": False, "1": True, "0.0": False, "1.0": True, "false": False, "true": True, "no": False, "yes": True}


def read_targets(
    tables: Sequence[RawTable],
    label: tuple[str, ...],
    owner: str | None,
    class_names: tuple[str, ...] | None = None,
    numbers_are_classes: bool = False,
    targets: str = LABEL,
) -> tuple[tuple[str, ...], list[tuple[np.ndarray, np.ndarray | None]]]:
    """Read the targets and owners of the rows.

    Args:
        tables: Tables with the same columns, the training rows first.
        label: The column of labels, or the columns of targets.
        owner: The column of owners; None: no owners.
        class_names: Class names in order; None: the distinct labels of the training rows.
        numbers_are_classes: Whether to accept labels that look like a continuous target.
        targets: "label", "numbers" or "label_set", see `targets`.

    Returns:
        The names of the classes or targets, and of each table the targets and the owners int32 `[n]` or None. Owners
        are numbered in sorted order.
    """
    for table in tables:
        for option, names in (("label", label), ("owner", () if owner is None else (owner,))):
            for name in names:
                table.check_column(option, name)
        if not table.rows:
            raise InputError(f"{table.source}: expected at least one row. Received: none")
        if len(set(label)) < len(label):
            raise InputError(f"{table.source}: `label` must name each column once. Received: {', '.join(label)}")
        if targets == LABEL and len(label) > 1:
            raise InputError(
                f"{table.source}: `label` must name one column of classes; several columns are targets of the tasks "
                f"regression and multi_label. Received: {', '.join(label)}"
            )
    if targets == NUMBERS:
        names = label
        values = [np.stack([read_numbers(table, name) for name in label], 1).astype(np.float32) for table in tables]
    elif targets == LABEL_SET and len(label) > 1:
        names, values = label, [np.stack([_read_flags(table, name) for name in label], 1) for table in tables]
    elif targets == LABEL_SET:
        names, values = _read_label_sets(tables, label[0], class_names)
    else:
        names = class_names or _find_classes(tables[0], label[0], numbers_are_classes)
        values = [look_up(table, label[0], names, "not a class of the training rows") for table in tables]
    if owner is None:
        return names, [(each, None) for each in values]
    owners = sort_categories({text for table in tables for text in table.read_texts(owner).texts})
    return names, [(each, look_up(table, owner, owners, "not an owner")) for table, each in zip(tables, values)]


def _find_classes(table, label, numbers_are_classes):
    column = table.read_texts(label)
    names, is_continuous = sort_categories(set(column.texts)), inspect_column(label, column).is_continuous
    if (is_continuous and not numbers_are_classes) or len(names) > max(2, table.rows // 2):
        raise InputError(
            f"{table.source}: `label` must name a column of classes; to predict its numbers, set `task: regression`, "
            f"or `columns: {{{label!r}: category}}` if they are names of classes. Received: label={label!r} with "
            f"{len(names)} distinct values in {table.rows} rows, such as {names[0]!r}"
        )
    return names


def _read_label_sets(tables, name, class_names):
    """Return the labels and the sets bool [n, labels] of each table, of a column with lists."""
    # An empty list is a set without labels.
    columns = [
        TextColumn.of(table.columns[name]).map(lambda text: "" if is_missing(text) and text != "none" else text)
        for table in tables
    ]
    signs = find_separators(columns[0].texts)
    if signs is None:
        raise InputError(
            f"{tables[0].source}: column {name!r} separates labels by different signs; use `;` in all of its lists. "
            f"Received: {shorten_repr(next(text for text in columns[0].texts if ',' in text))}"
        )
    names = class_names or sort_categories({each for text in columns[0].texts for each in split_labels(text, signs)})
    if len(names) < 2:
        raise InputError(
            f"{tables[0].source}: `label` must name one column with lists such as `red;large`, or several columns with "
            f"0 and 1. Received: label={name!r} with {len(names)} distinct labels"
        )
    sets = []
    for table, column in zip(tables, columns):
        labels = [split_labels(text, signs) for text in column.texts]
        for text, each in zip(column.texts, labels):
            for label in each:
                if label not in names:
                    problem = f"has the label {label!r}, which no training row has"
                    raise table.value_error(column.row_of(text), name, problem)
        sets.append(np.array([[label in each for label in names] for each in labels], bool)[column.codes])
    return names, sets


def find_separators(texts: Sequence[str]) -> str | None:
    """Return the signs that separate the labels of lists; "" for a single label each; None if signs are mixed.

    Semicolons, bars and commas always separate labels. A slash, a new line or a space does so if all parts also occur
    alone, as in "red large" beside "red" and "large". Lists in brackets have their own notation.
    """
    texts = [text for text in texts if not _is_bracketed(text)]
    if signs := [sign for sign in ";|," if any(sign in text for text in texts)]:
        return None if "," in signs and len(signs) > 1 else "".join(signs)
    for sign in "\n/ ":
        lists = [text for text in texts if sign in text.strip()]
        if lists and {part.strip() for text in lists for part in text.split(sign)} <= {*texts, ""}:
            return sign
    return ""


def _is_bracketed(text):
    return text[:1] + text[-1:] in ("[]", "{}", "()")


def split_labels(text: str, signs: str) -> list[str]:
    """Return the labels of a list such as `red; large` or `['red', 'large']`."""
    if _is_bracketed(text):
        try:
            parts = [str(part) for part in ast.literal_eval(text)]
        except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
            parts = [part.strip(" '\"") for part in text[1:-1].split(",")]
    else:
        parts = re.split(f"[{re.escape(signs)}]", text) if signs else [text]
    return [normalize(part) for part in parts if part.strip()]


def _read_flags(table, name):
    """Return a column of 0 and 1, or false and true, as bool [n]."""
    column = table.read_texts(name)
    if unknown := column.find(lambda text: text.strip().lower() not in FLAGS):
        raise table.value_error(unknown[0], name, f"must be 0 or 1. Received: {unknown[1]!r}")
    return np.array([FLAGS[text.strip().lower()] for text in column.texts], bool)[column.codes]


def look_up(table, name, known, problem):
    """Return the index of each row's text in `known`, int32 `[n]`."""
    column, index = table.read_texts(name), {text: number for number, text in enumerate(known)}
    if unknown := column.find(lambda text: text not in index):
        near = find_nearest(unknown[1], index)
        hint = f"; did you mean {near!r}?" if near else ""
        raise table.value_error(unknown[0], name, f"has the value {unknown[1]!r}, which is {problem}{hint}")
    return np.array([index[text] for text in column.texts], np.int32)[column.codes]


def read_numbers(table, name):
    """Return a numeric column as float64 `[n]` in the range of float32."""
    table.check_complete(name)
    values = require_numbers(table, name)
    invalid = np.flatnonzero(~(np.abs(values) <= np.finfo(np.float32).max))
    if len(invalid):
        raise table.value_error(
            int(invalid[0]),
            name,
            f"must be finite numbers in the range of float32. Received: {values[invalid[0]]}; correct it, remove the "
            "row, set `missing_values`, or add the column to `ignore`",
        )
    if are_coarse(values):
        raise InputError(
            f"{table.source}: column {name!r} has numbers such as {values[0]:.17g}, whose differences are too small "
            "for float32; subtract a constant, use times as `time` of `data: series`, or add the column to `ignore`"
        )
    return values
