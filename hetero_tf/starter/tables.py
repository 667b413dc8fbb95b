"""Tables: the type of each column, the label, owners, missing values and the notation of numbers."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from hetero_tf.base import registry
from hetero_tf.base.errors import InputError
from hetero_tf.data.column_types import MAX_CATEGORIES, ColumnRoles, build_column
from hetero_tf.data.columns import Notation, has_leading_zero
from hetero_tf.data.inspection import ColumnSummary, inspect_table
from hetero_tf.data.raw_table import RawTable, TextColumn
from hetero_tf.data.table_dataset import convert_notation, drop_rows
from hetero_tf.starter.choices import Choice, DataDraft, Request
from hetero_tf.starter.labels import LabelChoice, choose_label, continuous_label_types

# Names of columns with the natural client of a row.
_OWNER = re.compile(
    "(user|client|customer|patient|person|participant|subject|player|student|member|author|writer|speaker|device|"
    "sensor|machine|phone|station|hospital|clinic|site|owner|household|account)(id|name|number|no|index|key)?s?"
)
_INDEX = re.compile(r"Unnamed: \d+|__index_level_\d+__")
# An owner has at least this many rows on average.
LEAST_ROWS_OF_AN_OWNER = 4
LONGEST_REASON = 100


@dataclass(frozen=True)
class _Columns:
    """A table with the summaries of its columns, its label and its owner column or None."""

    table: RawTable
    summaries: Mapping[str, ColumnSummary]
    label: LabelChoice
    owner: str | None

    @property
    def features(self):
        """Summaries of all columns that are neither label nor owner."""
        roles = (*self.label.names, self.owner)
        return [summary for name, summary in self.summaries.items() if name not in roles]


def draft_table(table: RawTable, request: Request, loader: Mapping[str, Choice]) -> DataDraft:
    """Draft how a recipe reads a table.

    Args:
        table: The table as read.
        request: Choices of the user.
        loader: Options of `data` that name the loader and the file.

    Raises:
        InputError: No column can be the label.
    """
    summaries = {summary.name: summary for summary in inspect_table(table)}
    label = choose_label(table, summaries, request)
    columns = _Columns(table, summaries, label, find_owner(summaries, label.names))
    ignored = _unusable_columns(columns)
    types = _column_types(columns, ignored)
    numbers, missing = _choose_notation(columns, ignored, types), _choose_missing(columns, ignored)
    roles = _roles(columns, ignored, types, numbers, missing)
    ignored |= _rejected_columns(columns, ignored, types, roles)
    if len(ignored) == len(columns.features):
        raise InputError(
            f"{table.source}: no column can be a feature of the label {', '.join(label.names)}; "
            + "; ".join(f"{name}: {reason}" for name, reason in list(ignored.items())[:3])
        )
    types = {name: kind for name, kind in types.items() if name not in ignored}
    options = {**loader, "label": label.columns}
    if columns.owner is not None:
        options["owner"] = _owner_choice(summaries[columns.owner])
    if ignored:
        reasons = "; ".join(f"{name}: {reason}" for name, reason in ignored.items())
        options["ignore"] = Choice(list(ignored), reasons, True)
    if types:
        options["columns"] = Choice(types, _reason_of_types(columns, types))
    if numbers is not None:
        options["numbers"] = numbers
    if missing is not None:
        options["missing"] = missing
    return DataDraft(options, label.task)


def find_owner(summaries: Mapping[str, ColumnSummary], label: tuple[str, ...]) -> str | None:
    """Return the column whose name and repeated values suggest the natural client of each row; None: there is none."""
    for name, summary in summaries.items():
        is_repeated = 2 <= summary.distinct <= (summary.rows - summary.missing) / LEAST_ROWS_OF_AN_OWNER
        simple = re.sub(r"[^a-z]", "", name.lower())
        if name not in label and _OWNER.fullmatch(simple) and is_repeated and not summary.missing:
            return name
    return None


def _owner_choice(summary):
    rows = summary.rows / summary.distinct
    return Choice(summary.name, f"{summary.distinct:,} distinct values, about {rows:.0f} rows each: clients", True)


def _unusable_columns(columns):
    """Return the reason for each column that cannot be a feature."""
    reasons = {summary.name: _fault(columns.table, summary) for summary in columns.features}
    return {name: reason for name, reason in reasons.items() if reason}


def _fault(table, summary):
    """Return the reason why a column cannot be a feature; "" for no reason."""
    if _INDEX.fullmatch(summary.name):
        return "an index written by pandas"
    if not summary.distinct:
        return "has no values"
    if summary.type == "id":
        return "row numbers or ids"
    if summary.type == "text":
        return f"names or free text, {summary.distinct:,} distinct in {summary.rows:,} rows"
    if summary.type == "category" and summary.distinct > MAX_CATEGORIES:
        return f"{summary.distinct:,} categories, at most {MAX_CATEGORIES:,} are possible"
    texts = table.columns[summary.name].texts if summary.type == "date" else []
    if len(summary.date_orders) > 1 and not all("." in text for text in texts):
        return "ambiguous dates: day or month first"
    if _has_leading_zeros(table, summary.name) and summary.distinct > max(summary.rows // 2, 2):
        return "ids with leading zeros"
    return ""


def _has_leading_zeros(table, name):
    column = table.columns[name]
    return isinstance(column, TextColumn) and any(map(has_leading_zero, column.texts))


def _column_types(columns, ignored):
    """Return the types that the option `columns` must set."""
    types = continuous_label_types(columns.label.names, columns.summaries, columns.label.task.value)
    for summary in columns.features:
        if summary.name in ignored:
            continue
        if summary.type == "date":
            types[summary.name] = "date"
        elif _has_leading_zeros(columns.table, summary.name):
            types[summary.name] = "category"
    return types


def _reason_of_types(columns, types):
    reasons = []
    if "date" in types.values():
        reasons.append("dates become year, month, day and weekday")
    if any(name not in columns.label.names for name, kind in types.items() if kind == "category"):
        reasons.append("numbers with leading zeros are codes")
    if any(name in columns.label.names for name in types):
        reasons.append("the numbers of the label are names of classes")
    return "; ".join(reasons)


def _choose_notation(columns, ignored, types):
    """Return the notation of the numbers of the features and of targets of a regression; None if it is plain."""
    has_numbers = columns.label.task.value == "regression"
    targets = [columns.summaries[name] for name in columns.label.names] if has_numbers else []
    features = [each for each in columns.features if each.name not in ignored and each.name not in types]
    names: dict[Notation, list[ColumnSummary]] = {"point": [], "comma": []}
    for summary in (*features, *targets):
        if summary.type == "number" and summary.notation != "plain":
            names[summary.notation].append(summary)
    if not any(names.values()):
        return None
    notation = max(names, key=lambda name: len(names[name]))
    first = names[notation][0]
    return Choice(notation, f"{first.name} has numbers such as {first.frequent[0][0]}", True)


def _choose_missing(columns, ignored):
    """Return the treatment of missing values; None if there are none."""
    labels = [name for name in columns.label.names if columns.summaries[name].missing]
    features = [each for each in columns.features if each.missing and each.name not in ignored]
    if labels and columns.label.task.value != "multi_label":
        count = columns.summaries[labels[0]].missing
        return Choice("drop", f"the label {labels[0]} has no value in {count:,} rows, which are left out", True)
    if not features:
        return None
    counts = ", ".join(f"{each.name} ({each.missing:,})" for each in features[:5])
    others = ", ..." if len(features) > 5 else ""
    return Choice("median", f"missing values of {counts}{others}; numbers become the median", True)


def _roles(columns, ignored, types, numbers, missing):
    form = registry.constant("tasks", columns.label.task.value, "TARGETS")
    notation: Notation = "plain" if numbers is None else numbers.value
    missing = "error" if missing is None else missing.value
    owner, names = columns.owner, columns.label.names
    return ColumnRoles(names, owner, tuple(ignored), (), types, True, notation, missing, {}, form)


def _rejected_columns(columns, ignored, types, roles):
    """Return the reason for each further column that the loader rejects."""
    names = [each.name for each in columns.features if each.name not in ignored]
    table = drop_rows(convert_notation(columns.table, roles), names, roles)
    reasons, is_training = {}, np.ones(table.rows, bool)
    for name in names:
        try:
            build_column(table, name, roles, is_training)
        except InputError as error:
            reason = re.sub(r"^.*?: column .*? (?=[a-z])", "", str(error), count=1)
            reasons[name] = reason[:LONGEST_REASON]
    return reasons
