"""Chooses the label columns and the task of a table from the summaries of its columns."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from hetero_tf.base.errors import InputError
from hetero_tf.data.column_targets import FLAGS, find_separators, split_labels
from hetero_tf.data.inspection import ColumnSummary
from hetero_tf.data.raw_table import RawTable, TextColumn
from hetero_tf.starter.choices import LABEL_TASKS, Choice, Request, requested_task

# Usual names of label columns, the most specific first.
CERTAIN_NAMES = ("label", "labels", "target", "targets", "y", "outcome", "class")
LABEL_NAMES = (
    *(*CERTAIN_NAMES[:6], "output", "response", "tags"),
    *("species", "diagnosis", "survived", "churn", "default", "quality", "sentiment", "topic", "income"),
    *("class", "classes", "category"),
    *("price", "medv", "medhousevalue", "median_house_value", "value", "score", "rating"),
)
TASKS = (*LABEL_TASKS, "regression", "multi_label")
# More distinct numbers, with fewer rows for each of them, are amounts.
MOST_CLASSES_OF_NUMBERS, LEAST_ROWS_OF_A_NUMBER = 5, 3
# Share of rows with several labels from which a column has lists of labels.
LEAST_LISTS = 0.05
# Names of columns whose numbers are ranks, and first words of names of columns with 0 and 1 for each label.
RANKS = ("stars", "rating", "grade", "score", "quality", "rank", "level", "satisfaction")
FLAG_WORDS = ("is", "has", "label", "tag", "genre", "class", "topic")


@dataclass(frozen=True)
class LabelChoice:
    """Label of a table.

    Attributes:
        columns: The label column or columns.
        task: The task.
    """

    columns: Choice
    task: Choice

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns."""
        value = self.columns.value
        return (value,) if isinstance(value, str) else tuple(value)


def choose_label(table: RawTable, summaries: Mapping[str, ColumnSummary], request: Request) -> LabelChoice:
    """Choose the label and the task of a table.

    Raises:
        InputError: A requested column is missing, no column can be a label, or the task does not fit.
    """
    requested_task(request, TASKS)
    for name in request.label:
        table.check_column("--label", name)
    columns = _requested_columns(request) or _group_of_targets(table, summaries, request.task)
    columns = columns or _single_column(table, summaries, request)
    names = (columns.value,) if isinstance(columns.value, str) else tuple(columns.value)
    if len(names) == 1:
        return LabelChoice(columns, _task_of_column(table, summaries[names[0]], request.task))
    if request.task not in (None, "regression", "multi_label"):
        raise InputError(f"--label: the task {request.task} needs one column. Received: {', '.join(names)}")
    are_flags = all(has_flags(table, name) for name in names)
    likely = Choice("multi_label", f"{len(names)} columns of 0 and 1, one for each label")
    if not are_flags:
        likely = Choice("regression", f"{len(names)} columns of numbers")
    return LabelChoice(columns, Choice(request.task, "set by --task") if request.task else likely)


def _requested_columns(request):
    if not request.label:
        return None
    value = request.label[0] if len(request.label) == 1 else list(request.label)
    return Choice(value, "set by --label")


def _group_of_targets(table, summaries, task):
    """Return the last columns, if several have names such as `label_1` or `is_new` and are targets; else None."""
    stem = _stem(list(summaries)[-1])
    group = [name for name in summaries if _stem(name) == stem]
    is_named = stem.lower() in LABEL_NAMES
    has_label = not is_named and any(_rank(name) is not None for name in summaries)
    if has_label or len(group) < 2 or len(group) == len(summaries) or task in LABEL_TASKS:
        return None
    is_half = len(group) <= len(summaries) // 2
    if (is_half or stem.lower() in FLAG_WORDS) and all(has_flags(table, name) for name in group):
        return Choice(group, f"the last {len(group)} columns have 0 and 1 and similar names", not is_named)
    are_numbers = is_half and all(summaries[name].type in ("number", "id") for name in group)
    return Choice(group, f"{len(group)} columns of numbers named {stem}") if is_named and are_numbers else None


def _stem(name):
    """Return the name of a column without its number, `label` for `label_2`, or its first word, `is` for `is_new`."""
    word = re.match(r"([A-Za-z]+)[ _.-]", name)
    return word[1] if word and word[1].lower() in FLAG_WORDS else re.sub(r"[ _.-]?\d+$", "", name)


def has_flags(table: RawTable, name: str) -> bool:
    """Return whether a column has 0 and 1, or other texts for false and true."""
    column = table.columns[name]
    texts = column if isinstance(column, TextColumn) else TextColumn.from_numbers(column)
    return all(text.strip().lower() in FLAGS for text in texts.texts)


def _single_column(table, summaries, request):
    """Choose one column: by its name, else the last usable one."""
    for summary in summaries.values():
        if summary.distinct == 1 and summary.name.strip().lower() in CERTAIN_NAMES and request.task is None:
            raise InputError(
                f"{table.source}: the label {summary.name!r} has the single value {summary.frequent[0][0]}; add rows "
                "of another class, or name another label with --label"
            )
    likely = [name for name, summary in summaries.items() if _is_usable(table, summary, request.task)]
    if not likely:
        raise InputError(
            f"{table.source}: no column can be the label of {request.task or 'a task'}; a label has at least two "
            f"different values. Name it with --label. Columns: {', '.join(summaries)}"
        )
    named = sorted((name for name in likely if _rank(name) is not None), key=_rank)
    default = named[0] if named else likely[-1]
    if len(named) == 1:
        return Choice(default, f"the column named {default}")
    if len(likely) == 1:
        return Choice(default, "the only column that can be a label")
    chosen = request.choose_label(named or likely, default)
    if chosen != default:
        return Choice(chosen, "your choice")
    others = [name for name in (named or reversed(likely)) if name != default][:3]
    reason = "its name is usual for a label" if named else "the last column that can be a label"
    return Choice(default, f"{reason}; other columns with --label, such as {', '.join(others)}", True)


def _rank(name):
    """Return the position of a name among the usual names of labels; None for other names."""
    lower = name.strip().lower()
    return LABEL_NAMES.index(lower) if lower in LABEL_NAMES else None


def _is_usable(table, summary, task):
    if summary.distinct < 2 or summary.type in ("date", "id"):
        return False
    if task == "regression":
        return summary.type == "number"
    if task == "multi_label" or summary.type == "text":
        return _share_of_lists(table, summary.name) > LEAST_LISTS
    return task is None or not summary.is_continuous


def _task_of_column(table, summary, task):
    if task is not None:
        return Choice(task, "set by --task")
    if summary.distinct < 2:
        raise InputError(f"{table.source}: the label {summary.name!r} must have at least two different values")
    if _share_of_lists(table, summary.name) > LEAST_LISTS:
        return Choice("multi_label", f"{summary.name} has lists such as {_example_of_list(table, summary.name)}")
    if summary.type not in ("number", "id"):
        return Choice("classification", f"{summary.distinct:,} distinct texts in {summary.rows:,} rows")
    return task_of_numbers(summary)


def task_of_numbers(summary: ColumnSummary) -> Choice:
    """Return the task of a column of numbers: classes, or amounts that a regression predicts."""
    reason = f"{summary.distinct:,} distinct numbers in {summary.rows:,} rows"
    rows_of_a_number = (summary.rows - summary.missing) / summary.distinct
    has_few_rows = summary.distinct > MOST_CLASSES_OF_NUMBERS and rows_of_a_number < LEAST_ROWS_OF_A_NUMBER
    if summary.is_continuous or has_few_rows:
        return Choice("regression", reason)
    if not summary.is_whole:
        return Choice("regression", f"{reason}, some with decimals; classification if they are codes", True)
    first, last = float(summary.low), float(summary.high)
    are_codes = first in (0, 1) and last - first + 1 == summary.distinct
    if are_codes and summary.distinct > 2 and summary.name.lower() in RANKS:
        return Choice("classification", f"{reason}; ordinal if they are ranks, regression if they are amounts", True)
    is_doubtful = not are_codes or summary.distinct > 2 * MOST_CLASSES_OF_NUMBERS
    return Choice("classification", reason + "; regression if they are amounts" * is_doubtful, is_doubtful)


def _share_of_lists(table: RawTable, name: str) -> float:
    """Return the share of rows with a list of labels such as `red; large`, `red|large` or `['red', 'large']`."""
    column = table.columns[name]
    if not isinstance(column, TextColumn):
        return 0.0
    signs = find_separators([text for text in column.texts if text])
    labels = [split_labels(text, signs or ";|,") for text in column.texts]
    # Sentences with a comma have more parts than there are rows.
    if len({label for each in labels for label in each}) > max(len(column) // 4, 2):
        return 0.0
    is_list = np.array([len(each) > 1 or text[:1] == "[" for each, text in zip(labels, column.texts)])
    return float(is_list[column.codes].mean())


def _example_of_list(table, name):
    return max(table.columns[name].texts[:20], key=len)
