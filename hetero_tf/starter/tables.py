"""Tables: the use of each column, missing values and the notation of numbers, with a note on each doubtful decision."""

import itertools
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hetero_tf.base import registry
from hetero_tf.base.errors import InputError
from hetero_tf.data.column_types import INDEX, MAX_CATEGORIES, ColumnRoles, build_column
from hetero_tf.data.columns import Notation, is_missing
from hetero_tf.data.inspection import FEW_TEXTS, ColumnSummary, inspect_table
from hetero_tf.data.raw_table import RawTable, TextColumn
from hetero_tf.data.table_dataset import convert_notation, drop_rows, find_currencies
from hetero_tf.starter.choices import Choice, DataDraft, Request
from hetero_tf.starter.labels import LabelChoice, choose_label, has_flags

# Names of columns with the natural client of a row.
_OWNER = re.compile(
    "(user|client|customer|patient|person|participant|subject|player|student|member|author|writer|speaker|device|"
    "sensor|machine|phone|station|hospital|clinic|site|owner|household|account)(id|name|number|no|index|key)?s?"
)
# An owner has at least this many rows on average, and a group at least the second number.
LEAST_ROWS_OF_AN_OWNER, LEAST_ROWS_OF_A_GROUP = 4, 1.5
# Texts among numbers are missing values up to this share of the rows and this number of distinct texts.
MOST_ODD_ROWS, MOST_ODD_TEXTS = 0.2, 10
LONGEST_REASON = 100
# Words for missing values among the numbers of a label, whose other texts are classes.
_UNKNOWN = ["unknown", "missing", "undefined", "unspecified", "unbekannt", "k.a.", "*"]
# First words of the last row of a table that adds up the others.
_TOTAL = re.compile(
    r"(grand )?(total|sum|summe|gesamt|insgesamt|average|mean|mittelwert|durchschnitt)\b.*", re.IGNORECASE
)
_AMOUNT = re.compile(r"[+-]?[\d.,]*\d\s*([^\W\d_]+|°\w?)")
_TIME_OF_DAY = re.compile(r"\d\d?:\d\d(:\d\d(\.\d+)?)?( ?[AaPp]\.?[Mm]\.?)?")


@dataclass(frozen=True)
class _Columns:
    """A table with the summaries of its columns, its label, and its columns of owners and groups or None."""

    table: RawTable
    summaries: Mapping[str, ColumnSummary]
    label: LabelChoice
    owner: str | None
    group: str | None

    @property
    def features(self):
        """Summaries of all columns that are neither label nor owner."""
        roles = (*self.label.names, self.owner, self.group)
        return [summary for name, summary in self.summaries.items() if name not in roles]


def summarize(table: RawTable) -> dict[str, ColumnSummary]:
    """Return the summaries of the columns of a table by name."""
    return {summary.name: summary for summary in inspect_table(table)}


def draft_table(table: RawTable, request: Request, loader: Mapping[str, Choice]) -> DataDraft:
    """Draft how a recipe reads a table.

    Args:
        table: The table as read.
        request: Choices of the user.
        loader: Options of `data` that name the loader and the file.

    Raises:
        InputError: No column can be the label.
    """
    literal = frozenset(name for name, column in table.columns.items() if _has_literal_none(column))
    table = replace(table, literal=literal)
    summaries = summarize(table)
    label = choose_label(table, summaries, request)
    owner = find_owner(summaries, label.names)
    group = find_owner(summaries, label.names, LEAST_ROWS_OF_A_GROUP, LEAST_ROWS_OF_AN_OWNER)
    columns = _Columns(table, summaries, label, owner, group)
    ignored = {summary.name: fault for summary in columns.features if (fault := _fault(table, summary))}
    types = _column_types(columns, ignored)
    odd = {text: None for each in _used(columns, ignored) for text, _ in each.odd} | _odd_labels(columns, ignored)
    targets = [summaries[name] for name in label.names if label.task.value == "regression"]
    numbers = choose_notation([*(each for each in _used(columns, ignored) if each.name not in types), *targets])
    choices = {"numbers": numbers, "missing": _choose_missing(columns, ignored, odd)}
    choices["missing_values"] = _choose_odd(columns, ignored, odd)
    options = {name: choice for name, choice in choices.items() if choice is not None}
    roles = _roles(columns, ignored, types, {name: choice.value for name, choice in options.items()})
    ignored |= _rejected_columns(columns, ignored, roles)
    if len(ignored) == len(columns.features):
        raise InputError(
            f"{table.source}: no column can be a feature of the label {', '.join(label.names)}; "
            + "; ".join(f"{name}: {reason}" for name, reason in list(ignored.items())[:3])
        )
    types = {name: kind for name, kind in types.items() if name not in ignored}
    chosen = {"label": label.columns}
    if owner is not None:
        count, rows = summaries[owner].distinct, table.rows / summaries[owner].distinct
        reason = (
            f"{count:,} distinct values, about {rows:.0f} rows each: clients; their rows are in training and test, "
        )
        chosen["owner"] = Choice(owner, reason + "unless `group` names the column", True)
    if group is not None:
        reason = f"rows of one {group} stay together in training or test; check whether they belong together"
        chosen["group"] = Choice(group, reason, True)
    if ignored:
        reasons = "; ".join(f"{name}: {reason}" for name, reason in ignored.items())
        chosen["ignore"] = Choice(list(ignored), reasons, True)
    if types:
        chosen["columns"] = Choice(types, _reason_of_types(columns, types), "category" in types.values())
    return DataDraft({**loader, **chosen, **options}, label.task, tuple(_notes(columns, ignored, types)))


def _has_literal_none(column):
    """Return whether `None` beside words, or NA beside codes of two letters, is a category and not a missing value."""
    if not isinstance(column, TextColumn):
        return False
    texts = [text for text in column.texts if text]
    empty = {text for text in texts if is_missing(text)}
    words = [text for text in texts if text not in empty]
    if not words or len(texts) > MAX_CATEGORIES or any(any(map(str.isdigit, text)) for text in words):
        return False
    has_codes = empty == {"NA"} and len(words) > 2 and all(len(text) == 2 and text.isupper() for text in words)
    return has_codes or bool(empty) and {text.lower() for text in empty} == {"none"}


def find_owner(
    summaries: Mapping[str, ColumnSummary],
    label: tuple[str, ...],
    least: float = LEAST_ROWS_OF_AN_OWNER,
    most: float = np.inf,
) -> str | None:
    """Return the column whose name and repeated values suggest the natural client of each row; None: there is none."""
    for name, summary in summaries.items():
        rows = (summary.rows - summary.missing) / max(summary.distinct, 1)
        is_owner = _OWNER.fullmatch(re.sub(r"[^a-z]", "", name.lower()))
        if name not in label and is_owner and summary.distinct > 1 and least <= rows < most and not summary.missing:
            return name
    return None


def _fault(table, summary):
    """Return the reason why a column cannot be a feature; "" for no reason."""
    checks = {
        "an index written by pandas": INDEX.fullmatch(summary.name),
        "has no values": not summary.distinct,
        f"all values are {summary.frequent[0][0] if summary.frequent else ''}": summary.distinct == 1
        and not summary.missing,
        "times of day, which are neither dates nor numbers; a column of hours is a number": summary.distinct > FEW_TEXTS
        and _all_match(table.columns[summary.name], _TIME_OF_DAY),
        f"numbers with a unit such as {summary.frequent[0][0] if summary.frequent else ''}; remove the unit": (
            summary.distinct > FEW_TEXTS and _has_unit(table.columns[summary.name])
        ),
        "numbers beyond the range of float32": summary.type == "number"
        and max(abs(float(summary.low)), abs(float(summary.high))) > float(np.finfo(np.float32).max),
        "row numbers or ids": summary.type == "id",
        f"names or free text, {summary.distinct:,} distinct in {summary.rows:,} rows": summary.type == "text",
        "numbers whose differences are too small for float32": summary.are_coarse,
        "amounts in several currencies": len(find_currencies(table.columns[summary.name])) > 1,
        "ambiguous dates: day or month first": len(summary.date_orders) > 1,
    }
    return next((reason for reason, is_fault in checks.items() if is_fault), "") or _fault_of_odd(table, summary)


def _all_match(column, pattern):
    return isinstance(column, TextColumn) and all(map(pattern.fullmatch, filter(None, column.texts)))


def _has_unit(column):
    """Return whether all texts are numbers with one unit."""
    matches = [_AMOUNT.fullmatch(text) for text in column.texts if text] if isinstance(column, TextColumn) else []
    return all(matches) and len({match[1] for match in matches if match}) == 1


def _fault_of_odd(table, summary):
    """Return the reason why texts among numbers are not missing values."""
    rows = sum(count for _, count in summary.odd)
    if rows <= MOST_ODD_ROWS * summary.rows and len(summary.odd) <= MOST_ODD_TEXTS:
        return ""
    return f"numbers and {rows:,} texts such as {summary.odd[0][0]}"


def _used(columns, ignored):
    """Return the summaries of the features that are not ignored."""
    return [each for each in columns.features if each.name not in ignored]


def _column_types(columns, ignored):
    """Return the types that the option `columns` must set."""
    label, literal = columns.label, columns.table.literal
    is_class = label.task.value == "classification"
    continuous = [name for name in label.names if is_class and columns.summaries[name].is_continuous]
    types = dict.fromkeys([*continuous, *(name for name in label.names if name in literal)], "category")
    for summary in _used(columns, ignored):
        if summary.type == "date":
            types[summary.name] = "date"
        elif summary.leading_zeros or summary.name in literal:
            types[summary.name] = "category"
    return types


def _reason_of_types(columns, types):
    names, literal = columns.label.names, [name for name in types if name in columns.table.literal]
    reasons = []
    if "date" in types.values():
        reasons.append("dates become year, month, day and weekday; `data: series` uses the order of time")
    if any(columns.summaries[name].leading_zeros for name in types):
        reasons.append("numbers with leading zeros are codes")
    if literal:
        reasons.append(f"None or NA is a category of {', '.join(literal)}")
    if any(name in names and name not in literal for name in types):
        reasons.append("the numbers of the label are names of classes")
    return "; ".join(reasons)


def choose_notation(summaries: list[ColumnSummary]) -> Choice | None:
    """Return the notation of most columns of numbers that are not plain; None if all are plain."""
    names: dict[Notation, list[ColumnSummary]] = {"point": [], "comma": []}
    for summary in summaries:
        if summary.type == "number" and summary.notation != "plain":
            names[summary.notation].append(summary)
    if not any(names.values()):
        return None
    notation = max(names, key=lambda name: len(names[name]))
    first = names[notation][0]
    return Choice(notation, f"{first.name} has numbers such as {first.frequent[0][0]}", True)


def _odd_labels(columns, ignored):
    """Return the texts of labels that denote missing values: words among numbers, and the unit below the name."""
    texts: dict[str, None] = {}
    units = [each for each in _used(columns, ignored) if each.odd]
    are_units = units and all(
        len(each.odd) == 1 and each.odd[0][1] == 1 and find_row(columns.table.columns[each.name], each.odd[0][0]) == 0
        for each in units
    )
    for name in columns.label.names:
        column, summary = columns.table.columns[name], columns.summaries[name]
        is_number = columns.label.task.value == "regression"
        texts |= {text: None for text, _ in summary.odd if is_number or text.lower() in _UNKNOWN}
        if are_units and isinstance(column, TextColumn) and np.count_nonzero(column.codes == column.codes[0]) == 1:
            texts[column.texts[column.codes[0]]] = None
    return {text: None for text in texts if text}


def _choose_missing(columns, ignored, odd):
    """Return the treatment of missing values; None if there are none."""
    table = columns.table.mark_missing(odd)
    labels = {name: int(table.missing_rows(name).sum()) for name in columns.label.names}
    labels = {name: count for name, count in labels.items() if count}
    if labels and columns.label.task.value != "multi_label":
        name, count = next(iter(labels.items()))
        return Choice("drop", f"the label {name} has no value in {count:,} rows, which are left out", True)
    features = [(each, each.missing + sum(count for _, count in each.odd)) for each in _used(columns, ignored)]
    counts = [f"{each.name} ({count:,})" for each, count in features if count]
    if not counts:
        return None
    listed = ", ".join(counts[:5]) + ", ..." * (len(counts) > 5)
    return Choice("median", f"missing values of {listed}; numbers become the median, texts the most frequent", True)


def _choose_odd(columns, ignored, odd):
    """Return the texts among numbers that denote missing values, with the first row of each; None if there are none."""
    if not odd:
        return None
    reasons, summaries = [], [*_used(columns, ignored), *(columns.summaries[name] for name in columns.label.names)]
    for summary in summaries:
        for text, count in summary.odd[:3]:
            row = find_row(columns.table.columns[summary.name], text)
            where = re.sub(r"^.*/", "", columns.table.locate(row))
            reasons.append(f"{summary.name} is {text} in {count:,} rows, first in {where}")
    are_dates = {each.type for each in summaries if each.odd} == {"date"}
    return Choice(list(odd), f"no {'dates' if are_dates else 'numbers'}: {'; '.join(reasons[:5])}", True)


def find_row(column: TextColumn | np.ndarray, text: str) -> int:
    """Return the first row of a text, or of a number written so."""
    if isinstance(column, TextColumn):
        return int(np.flatnonzero(column.codes == column.texts.index(text))[0])
    return int(np.flatnonzero(column == float(text))[0])


def _notes(columns, ignored, types):
    """Yield sentences about sentinels, repeated rows and mixed letter cases."""
    is_number = columns.label.task.value == "regression"
    targets = [columns.summaries[name] for name in columns.label.names if is_number]
    yield from note_sentinels([*_used(columns, ignored), *targets])
    last = list(columns.table.columns)[::-1]
    flags = list(itertools.takewhile(lambda name: has_flags(columns.table, name), last))[::-1]
    if len(flags) > 2 and set(columns.label.names) < set(flags):
        yield f"columns {', '.join(flags)} have 0 and 1; `--label {','.join(flags)}` trains all as labels"
    for summary in _used(columns, ignored):
        column = columns.table.columns[summary.name]
        spellings = {text.lower(): text for text in column.texts} if summary.type == "category" else {}
        for text in column.texts if spellings else ():
            if (other := spellings[text.lower()]) != text:
                yield f"{summary.name}: {text} and {other} differ only in case; are they the same?"
    last_row = [each.texts[each.codes[-1]] for each in columns.table.columns.values() if isinstance(each, TextColumn)]
    if totals := list(filter(_TOTAL.fullmatch, last_row)):
        yield f"the last row, {totals[0]}, looks like a total of the others; remove it"
    used = [name for name in columns.table.columns if name not in ignored]
    codes = [_codes(columns.table.columns[name]) for name in used]
    repeated = columns.table.rows - len(np.unique(np.stack(codes, 1), axis=0))
    if repeated:
        yield f"{repeated:,} of {columns.table.rows:,} rows repeat another row; copies may be in training and test"


def _codes(column):
    return column.codes if isinstance(column, TextColumn) else np.unique(column, return_inverse=True)[1]


def note_sentinels(summaries: list[ColumnSummary]) -> list[str]:
    """Return a sentence about each number such as -999 that looks like a missing value."""
    return [
        f"{each.name}: {each.sentinel[0]} in {each.sentinel[1]:,} of {each.rows:,} rows looks like a missing value; "
        f'set `missing_values: ["{each.sentinel[0]}"]` and `missing`'
        for each in summaries
        if each.sentinel is not None
    ]


def _roles(columns, ignored, types, options: dict[str, Any]):
    label, form = columns.label, registry.constant("tasks", columns.label.task.value, "TARGETS")
    return ColumnRoles(
        *(label.names, columns.owner, tuple(ignored), (), types, True, options.get("numbers", "plain")),
        *(options.get("missing", "error"), {}, form, tuple(options.get("missing_values", ())), columns.group),
    )


def _rejected_columns(columns, ignored, roles):
    """Return the reason for each further column that the loader rejects."""
    names = [each.name for each in _used(columns, ignored)]
    table = drop_rows(convert_notation(roles.mark_missing(columns.table), roles), names, roles)
    reasons, is_training = {}, np.ones(table.rows, bool)
    for name in names:
        try:
            build_column(table, name, roles, is_training)
        except InputError as error:
            reason = re.sub(r"^.*?: column .*? (?=[a-z])", "", str(error), count=1)
            reasons[name] = reason[:LONGEST_REASON]
    return reasons
