"""Tables: the label, the task and the use of each column, missing values and notations, each with its reason."""

import itertools
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from hetero_tf.base import registry
from hetero_tf.base.errors import InputError
from hetero_tf.data.column_types import FLAGS, MAX_CATEGORIES, ColumnRoles, build_column, find_separators, split_labels
from hetero_tf.data.columns import RawTable, TextColumn, is_missing, is_number, to_names, to_plain_number
from hetero_tf.data.dataset import different_cases
from hetero_tf.data.inspection import ColumnSummary, inspect_column, inspect_table
from hetero_tf.starter.choices import LABEL_TASKS, Choice, DataDraft, Options, Request, Summaries, requested_task

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


def choose_label(table: RawTable, summaries: Summaries, request: Request) -> tuple[Choice, Choice]:
    """Choose the label columns and the task of a table."""
    task = requested_task(request, TASKS)
    table.check_columns(**{"--label": request.label})
    if request.label:
        label = Choice(request.label[0] if len(request.label) == 1 else list(request.label), "set by --label")
    else:
        label = _group_of_targets(table, summaries, request.task) or _single_column(table, summaries, request)
    names = to_names(label.value)
    if len(names) == 1:
        return label, task or _task_of_column(table, summaries[names[0]])
    if request.task not in (None, "regression", "multi_label"):
        raise InputError(f"--label: the task {request.task} needs one column. Received: {', '.join(names)}")
    likely = Choice("regression", f"{len(names)} columns of numbers")
    if all(has_flags(table, name) for name in names):
        columns = [TextColumn.of(table.columns[name]) for name in names]
        flags = [np.array([FLAGS[text.strip().lower()] for text in each.texts])[each.codes] for each in columns]
        is_class, reason = bool((np.sum(flags, 0) == 1).all()), f"{len(names)} columns of 0 and 1, one for each label"
        hint = "; each row has exactly one 1: if these are classes, join the columns to one of their names"
        likely = Choice("multi_label", reason + hint * is_class, is_class)
    return label, task or likely


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
    return all(text.strip().lower() in FLAGS for text in TextColumn.of(table.columns[name]).texts)


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
            f"{table.source}: no column can be the label of {request.task or 'a task'}; a label has two or more "
            f"values, but few beside a text. Name it with --label. Columns: {', '.join(summaries)}"
        )
    named = sorted((name for name in likely if _rank(name) is not None), key=_rank)
    default = named[0] if named else likely[-1]
    if "column_0" in summaries:
        # Without names, the label is the last column, or the first one, perhaps after an id, if only that has classes.
        ends = [summaries[name] for name in (likely[-1], *likely[:2])]
        default = next((each.name for each in ends if each.type == "category" or each.are_codes), default)
    if len(named) == 1:
        return Choice(default, f"the column named {default}")
    if len(likely) == 1:
        return Choice(default, "the only column that can be a label")
    others = [name for name in (named or reversed(likely)) if name != default][:3]
    position = "last" if default == likely[-1] else "first"
    reason = "its name is usual for a label" if named else f"the {position} column that can be a label"
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


def _task_of_column(table, summary):
    if summary.distinct < 2:
        raise InputError(f"{table.source}: the label {summary.name!r} must have at least two different values")
    if _share_of_lists(table, summary.name) > LEAST_LISTS:
        example = max(table.columns[summary.name].texts[:20], key=len)
        return Choice("multi_label", f"{summary.name} has lists such as {example}")
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
    if summary.are_codes and summary.distinct > 2 and summary.name.lower() in RANKS:
        return Choice("classification", f"{reason}; ordinal if they are ranks, regression if they are amounts", True)
    is_doubtful = not summary.are_codes or summary.distinct > 2 * MOST_CLASSES_OF_NUMBERS
    return Choice("classification", reason + "; regression if they are amounts" * is_doubtful, is_doubtful)


def _share_of_lists(table, name):
    """Return the share of rows with a list of labels such as `red; large`, `red|large` or `['red', 'large']`."""
    column = table.columns[name]
    if not isinstance(column, TextColumn):
        return 0.0
    signs = find_separators(list(filter(None, column.texts)))
    labels = [split_labels(text, signs or ";|,") for text in column.texts]
    # Sentences with a comma have more parts than there are rows.
    if len({label for each in labels for label in each}) > max(len(column) // 4, 2):
        return 0.0
    is_list = np.array([len(each) > 1 or text[:1] == "[" for each, text in zip(labels, column.texts)])
    return float(is_list[column.codes].mean())


# Names of columns with the natural client of a row.
_OWNER = re.compile(
    "(user|client|customer|patient|person|participant|subject|player|student|member|author|writer|speaker|device|"
    "sensor|machine|phone|station|hospital|clinic|site|owner|household|account)(id|name|number|no|index|key)?s?"
)
# Mean rows of an owner, and of a group: at least the first number, and fewer than the second one.
OWNER_ROWS, GROUP_ROWS = (4.0, np.inf), (1.5, 4.0)
LONGEST_REASON = 100
# Words for missing values among the numbers of a label, whose other texts are classes.
_UNKNOWN = ["unknown", "missing", "undefined", "unspecified", "unbekannt", "k.a.", "*"]
# First words of the last row of a table that adds up the others.
_TOTAL = re.compile(
    r"(grand )?(total|sum|summe|gesamt|insgesamt|average|mean|mittelwert|durchschnitt)\b.*", re.IGNORECASE
)


@dataclass(frozen=True)
class _Columns:
    """A table with the summaries of its features and of its label columns, and its task."""

    table: RawTable
    features: list[ColumnSummary]
    label: list[ColumnSummary]
    task: str

    @property
    def numbers(self):
        """Summaries of the features, and of the label columns with numbers."""
        return [*self.features, *(self.label if self.task == "regression" else ())]

    def without(self, names):
        """Return the columns without some features."""
        return replace(self, features=[each for each in self.features if each.name not in names])


def draft_table(table: RawTable, summaries: Summaries, request: Request, loader: Options) -> DataDraft:
    """Draft how a recipe reads a table; `loader` has the options of `data` that name the loader and the file."""
    table = replace(table, literal=frozenset(name for name in table.columns if _has_literal_none(table.columns[name])))
    summaries = {**summaries, **{name: inspect_column(name, table.columns[name], True) for name in table.literal}}
    label, task = choose_label(table, summaries, request)
    names = to_names(label.value)
    owner = find_owner(summaries, names)
    group = find_owner(summaries, names, GROUP_ROWS)
    features = [summary for name, summary in summaries.items() if name not in (*names, owner, group)]
    decisions = {each.name: each.decisions[0] for each in features if each.decisions}
    ignored = {name: first.reason for name, first in decisions.items() if first.value == "ignore"}
    columns = _Columns(table, features, [summaries[name] for name in names], task.value).without(ignored)
    types = _choose_types(columns)
    values = _choose_values(columns, types)
    roles = ColumnRoles(names, owner, group, tuple(ignored), targets=registry.constant("tasks", task.value, "TARGETS"))
    ignored |= _rejected_columns(columns, roles, types, values)
    if len(ignored) == len(features):
        reasons = "; ".join(f"{name}: {reason}" for name, reason in list(ignored.items())[:3])
        raise InputError(f"{table.source}: no column can be a feature of the label {', '.join(names)}; {reasons}")
    columns, options = columns.without(ignored), {**loader, "label": label}
    if owner is not None:
        each, rows = summaries[owner], summaries[owner].rows / summaries[owner].distinct
        reason = f"{each.distinct:,} distinct values, about {rows:.0f} rows each: clients; their rows are in training "
        options["owner"] = Choice(owner, f"{reason}and test, unless `group` names the column", True)
    if group is not None:
        reason = f"rows of one {group} stay together in training or test; check whether they belong together"
        options["group"] = Choice(group, reason, True)
    if ignored:
        options["ignore"] = Choice(list(ignored), "; ".join(f"{name}: {why}" for name, why in ignored.items()), True)
    if kinds := {name: kind for name, (kind, _) in types.items() if name not in ignored}:
        hint = "; `data: series` uses the order of time" * ("date" in kinds.values())
        reasons = "; ".join(f"{name}: {types[name][1]}" for name in kinds) + hint
        options["columns"] = Choice(kinds, reasons, "category" in kinds.values())
    used = [name for name in table.columns if name not in ignored]
    return DataDraft({**options, **values}, task, (*note_sentinels(columns.numbers), *_notes(columns, used)))


def _has_literal_none(column):
    """Return whether `None` beside words, or NA beside codes of two letters, is a category and not a missing value."""
    texts = [text for text in column.texts if text] if isinstance(column, TextColumn) else []
    empty = set(filter(is_missing, texts))
    words = [text for text in texts if text not in empty]
    if not words or not empty or len(texts) > MAX_CATEGORIES or any(re.search(r"\d", text) for text in words):
        return False
    has_codes = empty == {"NA"} and len(words) > 2 and all(len(text) == 2 and text.isupper() for text in words)
    return has_codes or {text.lower() for text in empty} == {"none"}


def find_owner(summaries: Summaries, label: tuple[str, ...], rows: tuple[float, float] = OWNER_ROWS) -> str | None:
    """Return the column whose name and repeated values suggest the natural client of each row; None: there is none."""
    for name, summary in summaries.items():
        is_owner = _OWNER.fullmatch(re.sub(r"[^a-z]", "", name.lower())) and name not in label
        is_complete = summary.distinct > 1 and not summary.missing
        if is_owner and is_complete and rows[0] <= summary.rows / summary.distinct < rows[1]:
            return name
    return None


def _choose_types(columns):
    """Return the type that the option `columns` must set, and the reason, of each column that needs it."""
    label, reason = columns.label if columns.task == "classification" else [], "its numbers are names of classes"
    types = {each.name: ("category", reason) for each in label if each.is_continuous}
    decisions = [(each.name, decision) for each in columns.features for decision in each.decisions]
    types |= {name: (each.value, each.reason) for name, each in decisions if each.option == "columns"}
    literal = [each.name for each in (*columns.features, *columns.label) if each.name in columns.table.literal]
    return {**types, **dict.fromkeys(literal, ("category", "None or NA is a category"))}


def _choose_values(columns, types):
    """Return the choices of `numbers`, `missing` and `missing_values` that differ from their defaults."""
    numbers = columns.without([name for name, (kind, _) in types.items() if kind == "category"])
    odd = _find_odd(numbers)
    notation = choose_notation([each for each in columns.numbers if each.name not in types])
    choices = {"numbers": notation, "missing": _choose_missing(columns, odd)}
    if odd:
        every, reasons = (*numbers.features, *columns.label), []
        for summary in every:
            for text, count in summary.odd[:3]:
                row = TextColumn.of(columns.table.columns[summary.name]).row_of(text)
                where = re.sub(r"^.*/", "", columns.table.locate(row))
                reasons.append(f"{summary.name} is {text} in {count:,} rows, first in {where}")
        kind = "dates" if {each.type for each in every if each.odd} == {"date"} else "numbers"
        choices["missing_values"] = Choice(list(odd), f"no {kind}: {'; '.join(reasons[:5])}", True)
    return {name: choice for name, choice in choices.items() if choice is not None}


def choose_notation(summaries: Iterable[ColumnSummary]) -> Choice | None:
    """Return the notation of most columns of numbers that are not plain; None if all are plain."""
    odd = [each for each in summaries if each.type == "number" and each.notation != "plain"]
    if not odd:
        return None

    # Numbers such as 5 % and 1,234 are numbers in both notations. Of equally frequent notations, point is first.
    def count(notation):
        texts = [{*each.frequent} - {*each.odd} for each in odd]
        return sum(all(is_number(to_plain_number(text, notation)) for text, _ in each) for each in texts)

    notation = max(("point", "comma"), key=count)
    first = next((each for each in odd if each.notation == notation), odd[0])
    return Choice(notation, f"{first.name} has numbers such as {first.frequent[0][0]}", True)


def _find_odd(columns):
    """Return the texts that denote missing values: words among numbers, and the unit below the name of a column."""
    odd = [text for each in columns.features for text, _ in each.odd]
    texts = [(each.name, columns.table.columns[each.name]) for each in (*columns.features, *columns.label)]
    texts = [(name, column) for name, column in texts if isinstance(column, TextColumn)]
    first = {name: each.texts[each.codes[0]] for name, each in texts if (each.codes == each.codes[0]).sum() == 1}
    units = [each for each in columns.features if each.odd]
    are_units = units and all(each.odd == ((first.get(each.name), 1),) for each in units)
    for each in columns.label:
        is_number = columns.task == "regression"
        odd += [text for text, _ in each.odd if is_number or text.lower() in _UNKNOWN]
        if are_units and each.name in first:
            odd.append(first[each.name])
    return [text for text in dict.fromkeys(odd) if text]


def _choose_missing(columns, odd):
    """Return the treatment of missing values; None if there are none."""
    table = columns.table.mark_missing(odd)
    features = [(each.missing + sum(n for text, n in each.odd if text in odd), each.name) for each in columns.features]
    for each in columns.label if columns.task != "multi_label" else ():
        if count := int(table.missing_rows(each.name).sum()):
            most, name = max(features, default=(0, ""))
            hint = f", {most:,} by {name}; `ignore` it to keep them" if most > count else ""
            reason = f"the label {each.name} has no value in {count:,} rows; rows with any missing value are left out"
            return Choice("drop", reason + hint, True)
    counts = [f"{name} ({count:,})" for count, name in features if count]
    listed = ", ".join(counts[:5]) + ", ..." * (len(counts) > 5)
    reason = f"missing values of {listed}; numbers become the median, texts the most frequent"
    return Choice("median", reason, True) if counts else None


def _notes(columns, used):
    """Yield sentences about further labels, mixed letter cases, totals and repeated rows of the used columns."""
    table, names = columns.table, {each.name for each in columns.label}
    flags = list(itertools.takewhile(lambda name: has_flags(table, name), [*table.columns][::-1]))[::-1]
    if len(flags) > 2 and names < set(flags):
        yield f"columns {', '.join(flags)} have 0 and 1; `--label {','.join(flags)}` trains all as labels"
    for summary in columns.features:
        texts = table.columns[summary.name].texts if summary.type == "category" else []
        yield from (f"{summary.name}: {sentence}" for sentence in different_cases(texts))
    last_row = [each.texts[each.codes[-1]] for each in table.columns.values() if isinstance(each, TextColumn)]
    if totals := list(filter(_TOTAL.fullmatch, last_row)):
        yield f"the last row, {totals[0]}, looks like a total of the others; remove it"
    codes = [getattr(each, "codes", each) for each in map(table.columns.__getitem__, used)]
    codes = [np.unique(each, return_inverse=True)[1] for each in codes]
    if repeated := table.rows - len(np.unique(np.stack(codes, 1), axis=0)):
        yield f"{repeated:,} of {table.rows:,} rows repeat another row; copies may be in training and test"


def note_sentinels(summaries: Iterable[ColumnSummary]) -> list[str]:
    """Return a sentence about each number such as -999 that looks like a missing value."""
    return [
        f"{each.name}: {each.sentinel[0]} in {each.sentinel[1]:,} of {each.rows:,} rows looks like a missing value; "
        f'set `missing_values: ["{each.sentinel[0]}"]` and `missing`'
        for each in summaries
        if each.sentinel is not None
    ]


def _rejected_columns(columns, roles, types, values):
    """Return the reason for each further column that the loader rejects."""
    options = {name: choice.value for name, choice in values.items()}
    roles = replace(roles, types={name: kind for name, (kind, _) in types.items()}, **options)
    names = [each.name for each in columns.features]
    table = roles.prepare(columns.table)
    summaries = inspect_table(table)
    if roles.missing == "drop":
        table = table.drop_missing([*names, *roles.label, roles.owner])
    reasons = {}
    for name in names:
        try:
            build_column(table, name, roles, np.ones(table.rows, bool), summaries[name])
        except InputError as error:
            reasons[name] = re.sub(r"^.*?: column .*? (?=[a-z])", "", str(error), count=1)[:LONGEST_REASON]
    return reasons
