"""Time series: a table whose rows have different times, from which windows forecast the next values."""

import re
from dataclasses import replace

import numpy as np

from hetero_tf.base.errors import InputError
from hetero_tf.data.column_types import convert_numbers, parse_numbers
from hetero_tf.data.columns import RawTable, TextColumn, to_names
from hetero_tf.data.inspection import TIME_OF_DAY
from hetero_tf.data.series import Series, divide_series
from hetero_tf.starter.choices import Choice, DataDraft, Options, Request, Summaries
from hetero_tf.starter.tables import LABEL_NAMES, choose_label, choose_notation, find_owner, note_sentinels

# Rows of the longest window, which is a quarter of the shortest series, of the shortest one that no gap interrupts, and
# of the shortest table and series.
LONGEST_WINDOW, SHORTEST_WINDOW, LEAST_ROWS, LEAST_ROWS_OF_A_SERIES = 24, 4, 48, 16
# Deviations of a series below which the changes from row to row are small.
SMALL_CHANGE = 0.25
# Words in the names of columns whose numbers or texts may be times.
_TIMES = {"date", "datetime", "datum", "ds", "day", "hour", "minute", "month", "period", "quarter", "time"}
_TIMES |= {"epoch", "timestamp", "ts", "unix", "utc", "year", "zeit"}
_PARTS = {*_TIMES, "hr", "hours", "week", "weekday"}


# Column of times, column of the names of the series (None for a single one), and the rows of each series.
TimeColumns = tuple[str, str | None, list[Series]]


def find_times(table: RawTable, summaries: Summaries, request: Request) -> TimeColumns | str | None:
    """Return the columns of times and series if all other columns have numbers.

    The times of a series must differ and be in order, as they are in files of measurements.

    Returns:
        The columns; the reason why a column of times is not used; None for other tables.
    """
    if request.task not in (None, "regression"):
        return None
    texts = [name for name, each in summaries.items() if each.type not in ("number", "id") or not each.low]
    reason = None
    for time, summary in summaries.items():
        words, is_date = re.findall("[a-z]+", time.lower()), summary.type == "date"
        if not is_date and (summary.missing or _TIMES.isdisjoint(words)):
            continue
        names = [name for name in texts if name != time]
        # Series have common times; columns of texts beside unique times are features.
        is_repeated = 2 * summary.distinct <= table.rows
        series = (names[0] if names else _find_series(table, time, summaries, request.label)) if is_repeated else None
        is_label = series in (*request.label, *LABEL_NAMES) or (series in names and summaries[series].type == "date")
        if is_date and names == [series] and all(map(TIME_OF_DAY.fullmatch, table.columns[names[0]].texts)):
            raise InputError(
                f"{table.source}: {time} and {series} are parts of one time; join them in one column, or remove {time}"
            )
        if is_date and (is_repeated or summary.has_times) and len(names) > is_repeated:
            reason = f"column {time!r} is not used as time, since other columns have texts: {', '.join(names)}"
        if len(names) > is_repeated or is_label or len(summaries) < 2 + (series is not None):
            continue
        if is_date and table.rows < LEAST_ROWS:
            raise InputError(
                f"{table.source}: {table.rows} rows with different {time} are too few for forecasts; at least "
                f"{LEAST_ROWS} rows are needed. Add rows, or remove the column {time} to train on single rows"
            )
        try:
            parts = divide_series(table, time, series)
        except InputError as error:
            if is_date and not names and len(summary.date_orders) > 1:
                raise
            reason = str(error)
            continue
        steps = np.concatenate([np.diff(part.rows) for part in parts])
        is_long = table.rows >= LEAST_ROWS and min(len(part.rows) for part in parts) >= LEAST_ROWS_OF_A_SERIES
        if is_long and (is_date or (steps > 0).all() or (steps < 0).all()):
            return time, series, parts
        reason = f"column {time!r} is not used as time, since " + ("it is unordered" if is_long else "series are short")
    return reason


def _find_series(table, time, summaries, label):
    """Return the first column of whole numbers of which a time has all and none twice, else the owner."""
    others = {name for name in summaries if _PARTS.isdisjoint(re.findall("[a-z]+", name.lower()))} - {time, *label}
    times = TextColumn.of(table.columns[time]).codes
    most = np.bincount(times).max()
    for name in (name for name in summaries if name in others):
        ids = TextColumn.of(table.columns[name]).codes
        if summaries[name].is_whole and ids.max() + 1 == most and len(np.unique(most * times + ids)) == table.rows:
            return name
    return find_owner(summaries, label)


def draft_series(
    table: RawTable, times: TimeColumns, summaries: Summaries, request: Request, loader: Options
) -> DataDraft:
    """Draft how a recipe reads a table as time series; `loader` has the options of `data` that name the file."""
    time, series, parts = times
    others = {name: summary for name, summary in summaries.items() if name not in (time, series)}
    label, _ = choose_label(table, others, replace(request, task="regression"))
    reason = f"rows with different {time}: windows of rows forecast the next one; csv trains single rows"
    options = {"name": Choice("series", reason, True), **loader, "label": label, "time": Choice(time)}
    shortest = min(len(part.rows) for part in parts)
    if series is not None:
        reason = f"{len(parts):,} series with different {time}, at least {shortest:,} rows each: clients"
        options["series"] = Choice(series, reason, True)
    options |= _choose_window(parts, min(LONGEST_WINDOW, shortest // 4))
    if (numbers := choose_notation(others.values())) is not None:
        options["numbers"] = numbers
        table = convert_numbers(table, others, numbers.value)
    if odd := sorted({text for each in others.values() for text, _ in each.odd}):
        options["missing_values"] = Choice(odd, "texts among the numbers", True)
        table = table.mark_missing(odd)
    if counts := [f"{name} ({count:,})" for name in others if (count := int(table.missing_rows(name).sum()))]:
        reason = f"missing values of {', '.join(counts)} become the value before"
        options["missing"] = Choice("previous", reason, True)
    if following := [name for name in to_names(label.value) if _follows_last_value(table, name, parts)]:
        reason = f"{', '.join(following)} stays near its last value: models see the changes from that of a window"
        options["relative"] = Choice(True, reason)
    notes = [f"column {each.name} has a single value, {each.low}" for each in others.values() if each.distinct == 1]
    notes += note_sentinels(others.values())
    if any((np.diff(part.rows) < 0).any() for part in parts):
        notes.append(f"rows are sorted by {time}, the oldest first")
    return DataDraft(options, Choice("regression", "a forecast of the next value"), tuple(notes))


def _choose_window(parts, longest):
    """Return the window and, if gaps are too frequent, the option to join the rows before and after them."""
    window = Choice(longest, "rows of an input; as many as matter for the next one", True)
    windows = sum(max(len(part.rows) - longest, 0) for part in parts)
    if 2 * sum(len(part.starts((longest, 1, 1))) for part in parts) >= windows:
        return {"window": window}
    runs = [np.diff(np.flatnonzero([True, *part.gaps[1:], True])) for part in parts]
    usual = int(np.median(np.concatenate(runs)))
    if usual > SHORTEST_WINDOW:
        reason = f"times are missing, usually after {usual} rows; `gaps: join` allows longer windows across gaps"
        return {"window": Choice(min(usual - 1, longest), reason, True)}
    reason = "times are missing so often that windows contain gaps: rows before and after a gap are neighbours"
    return {"window": window, "gaps": Choice("join", reason, True)}


def _follows_last_value(table, name, parts):
    """Return whether most series grow, or change little from row to row.

    The mean of a growing series moves by more than its deviation from the first to the last quarter. Changes are little
    if their quadratic mean is below `SMALL_CHANGE` deviations.
    """
    is_present, values = ~table.missing_rows(name), np.full(table.rows, np.nan)
    values[is_present] = parse_numbers(table.select(np.flatnonzero(is_present)).columns[name])
    follows = []
    for part in parts:
        series = values[part.rows][is_present[part.rows]]
        quarter, changes = max(len(series) // 4, 1), np.diff(series)
        grows = len(series) > 0 and abs(series[-quarter:].mean() - series[:quarter].mean()) > series.std()
        follows.append(grows or len(changes) > 0 and np.sqrt(np.mean(changes**2)) < SMALL_CHANGE * series.std())
    return 2 * sum(follows) > len(follows)
