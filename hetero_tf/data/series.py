"""Load windows of time series from a text file with a row for each time."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from hetero_tf.base.constraints import CountOrZero, Names, SmallCount, TestShare
from hetero_tf.base.errors import InputError
from hetero_tf.base.hardware import check_memory
from hetero_tf.data import column_types
from hetero_tf.data.codecs import Field
from hetero_tf.data.codecs.series import Codec
from hetero_tf.data.columns import RawTable, TextColumn, sort_categories, to_names
from hetero_tf.data.data_files import find
from hetero_tf.data.dataset import Dataset, Split, held_out
from hetero_tf.data.dates import date_orders, to_seconds
from hetero_tf.data.inspection import ColumnUse, TableSummary, inspect_table
from hetero_tf.data.table_files import read_table
from hetero_tf.data.targets import LABEL, NUMBERS

# Copies of the windows at peak (series, splits, checks), seconds of a day, largest step without a gap in usual steps.
COPIES, DAY, LARGEST_STEP = 3, 86400, 1.5


@dataclass(frozen=True)
class Series:
    """The values of one series in the order of time.

    Attributes:
        rows: Rows of the table, int `[n]`.
        times: Their times, numbers `[n]`.
        gaps: Whether a time is missing before each row, bool `[n]`.
    """

    rows: np.ndarray
    times: np.ndarray
    gaps: np.ndarray

    def starts(self, sizes: tuple[int, int, int]) -> np.ndarray:
        """Return the first position of each window without a gap.

        Args:
            sizes: Positions of a window, after it, and between two windows.
        """
        window, horizon, stride = sizes
        starts = np.arange(0, len(self.rows) - window - horizon + 1, stride)
        part = np.cumsum(self.gaps)
        return starts[part[starts] == part[starts + window + horizon - 1]]


def load(
    data_dir: Path | None,
    *,
    path: str,
    label: Names,
    time: str,
    window: SmallCount,
    horizon: SmallCount | None = None,
    series: str | None = None,
    channels: Names | None = None,
    stride: SmallCount | None = None,
    test_share: TestShare = 0.2,
    missing: Literal["error", "previous"] = "error",
    missing_values: tuple[str, ...] = (),
    gaps: Literal["split", "join"] = "split",
    relative: bool = False,
    numbers: Literal["plain", "point", "comma"] = "plain",
    delimiter: Literal["comma", "semicolon", "tab", "pipe", "space"] | None = None,
    skip: CountOrZero = 0,
    encoding: str | None = None,
    targets=LABEL,
) -> Dataset:
    """Load a table with a row for each time of each series, such as each month of each station.

    The file has any format that `data: csv` reads. Rows are sorted by time, with the offsets of time zones. A time more
    than 1.5 usual steps after the one before it follows a gap; days without weekends have none. A series is an owner,
    for the partition natural.

    For the task regression, models forecast the values after a window. Test windows predict the last times of the file;
    training windows contain none of these times. For the task classification, a series has one class. All windows of a
    series are in the same split; a share of the series of each class is the test split.

    Args:
        path: the file
        label: column of the class of a series; for regression, the columns to forecast
        time: column of the times, numbers or dates
        window: positions of an input
        horizon: positions after a window that are forecast; null: 1, or none in classification
        series: column of the names of the series; null: the file has one series
        channels: columns of the inputs; null: all others, and the columns to forecast
        stride: positions between the starts of two windows; null: 1 for forecasts, else window
        test_share: share of the rows, or of the series of each class, for the test split
        missing: treatment of missing values of channels: error, or previous (the value before in the series;
            at its start the first one)
        missing_values: further texts or numbers that denote a missing value, such as ["-999"]
        gaps: windows where times are missing: split (no window contains a gap) or join (rows before and after a gap are
            neighbours)
        relative: for series that grow: subtract the last values of a window from the window and its forecast. Exports
            take and return values; R2 is the share of the variance of the changes
        numbers: number format of texts: plain (1234.5), point (1,234.5 and 12 %) or comma (1.234,5 and 12 %)
        delimiter: separator of values; null: detected from the first rows
        skip: lines above the names of the columns
        encoding: encoding of text, such as cp1252; null: UTF-8, or UTF-16 with a byte order mark
    """
    label, is_forecast = to_names(label), targets == NUMBERS
    for key, value in {"horizon": horizon, "relative": relative}.items():
        if value and not is_forecast:
            raise InputError(f"`{key}` needs `task: regression`, which forecasts numbers. Received: {key}={value}")
    sizes = (window, horizon or 1, stride or 1) if is_forecast else (window, 0, stride or window)
    file = find(data_dir, path, "path", is_folder=False)
    table = read_table(file, True, delimiter, skip, encoding).mark_missing(missing_values)
    names = _channel_names(table, label, time, series, to_names(channels or ()), is_forecast)
    table = column_types.convert_numbers(table, {*names, *(label if is_forecast else ())}, numbers)
    parts, notes = _apply_gaps(table, time, divide_series(table, time, series), gaps)
    base = _base_channels(table, names, label) * sizes[1] if relative else None
    (x, y, owners), y_names, splits = _read_windows(table, parts, (names, label), sizes, missing, test_share)
    if base is not None:
        x, y = x - x[:, -1:], y - x[:, -1, base]
    windows, fields = Split(x, y, owners if series else None), (Field("series", Codec(x.shape[1:], names, base)),)
    about: dict[str, Any] = {"summary": _summarize(table, names, time, series, label), "notes": notes}
    train, test = map(windows.select, splits)
    return Dataset(train, test, fields, len(y_names), f"series ({table.source})", class_names=y_names, **about)


def _read_windows(table, parts, columns, sizes, missing, test_share):
    """Return inputs, targets and series of all windows, the names of the targets, and the windows of both splits."""
    channels, label = columns
    values, (rows, owners) = _read_channels(table, channels, parts, missing), _find_windows(table, parts, sizes)
    check_memory(table.source, COPIES * rows[:, : sizes[0]].size * len(channels) * np.dtype(np.float32).itemsize)
    if sizes[1]:
        names, y, splits = _read_forecasts(table, parts, label, rows, sizes[0], test_share, missing)
    else:
        names, y, splits = _read_classes(table, parts, label, owners, test_share)
    return (values[rows[:, : sizes[0]]].astype(np.float32), y, owners), names, splits


def _base_channels(table, channels, label):
    """Return the channel whose last value each target is relative to."""
    if unknown := [name for name in label if name not in channels]:
        raise InputError(
            f"{table.source}: `relative` needs the columns to forecast among `channels`. "
            f"Received: label={unknown[0]!r}, channels={', '.join(channels)}"
        )
    return tuple(map(channels.index, label))


def _summarize(table, channels, time, series, label):
    uses: dict[str, ColumnUse] = dict.fromkeys(label, "label") | dict.fromkeys(channels, "feature")
    uses |= {series: "owner", time: "time"}
    columns = inspect_table(table).values()
    return TableSummary(tuple(replace(each, role=uses.get(each.name, "ignored")) for each in columns))


def _channel_names(table, label, time, series, names, is_forecast):
    """Return the names of the columns of the inputs; `InputError` for a column that does not exist."""
    table.check_columns(label=label, time=time, series=series, channels=names)
    if not is_forecast and set(label) & set(names):
        raise InputError(f"{table.source}: `channels` must not name the label. Received: channels={', '.join(names)}")
    others = {time, series, *(() if is_forecast else label)}
    names = names or tuple(name for name in table.columns if name not in others)
    if not names:
        raise InputError(f"{table.source}: expected at least one column of a channel. Received: only time and label")
    return names


def divide_series(table: RawTable, time: str, series: str | None) -> list[Series]:
    """Divide the rows of a table into series, each in the order of its times.

    Raises:
        InputError: A time is missing, repeated in a series, or neither a number nor a date.
    """
    times, codes = _read_times(table, time), np.zeros(table.rows, np.int32)
    if series is not None:
        codes = column_types.look_up(
            table, series, sort_categories(set(table.read_texts(series).texts)), "not a series"
        )
    order = np.lexsort((times, codes))
    groups = np.split(order, np.flatnonzero(np.diff(codes[order])) + 1)
    gaps = _find_gaps([times[rows] for rows in groups])
    parts = [Series(rows, times[rows], each) for rows, each in zip(groups, gaps)]
    for part in parts:
        repeated = np.flatnonzero(part.times[1:] == part.times[:-1])
        if len(repeated):
            column = "the column of its name" if series is None else "another column, or remove the row"
            row = int(part.rows[repeated[0] + 1])
            raise table.value_error(row, time, f"repeats a time of the same series; set `series` to {column}")
    return parts


def _find_gaps(groups):
    """Return for the times of each series whether a time is missing before each of them, bool `[n]`."""
    days = [times / DAY for times in groups]
    if all((day == np.floor(day)).all() and ((day.astype(int) + 3) % 7 < 5).all() for day in days):
        # Whole days without weekends, the first of which is a Thursday; Fridays and Mondays are neighbours.
        groups = [np.floor(day / 7 + 3 / 7) * 5 + (day + 3) % 7 for day in days]
    steps = [np.diff(times) for times in groups]
    usual = np.median(np.concatenate(steps)) if any(map(len, steps)) else 0.0
    return [np.concatenate([[False], step > LARGEST_STEP * usual]) for step in steps]


def _apply_gaps(table, time, parts, gaps):
    """Return the series with the gaps that no window contains, and a sentence about all gaps, if there are some."""
    rows = [int(part.rows[index]) for part in parts for index in np.flatnonzero(part.gaps)]
    use = "no window contains one" if gaps == "split" else "windows join the rows before and after them"
    if gaps == "join":
        parts = [replace(part, gaps=np.zeros_like(part.gaps)) for part in parts]
    first = table.locate(min(rows)) if rows else ""
    note = f"{len(rows):,} gaps where times of {time} are missing, such as before {first}; {use}"
    return parts, (note,) if rows else ()


def _read_times(table, name):
    """Return a column of numbers or dates as numbers `[rows]` in the same order, of dates their seconds since 1970."""
    table.check_complete(name)
    values = table.columns[name]
    orders = date_orders(values.texts) if isinstance(values, TextColumn) else ()
    numbers = None if orders else column_types.parse_numbers(values)
    if numbers is not None:
        return numbers
    column = table.read_texts(name)
    seconds = to_seconds(column.texts, column_types.find_date_order(table, name)) if orders else None
    if seconds is None:
        problem = "times with and without a time zone" if orders else repr(column.texts[0])
        raise InputError(
            f"{table.source}: `time` must name a column of numbers or of dates such as 2024-12-31 or "
            f"2024-12-31 23:59. Received: time={name!r} with {problem}"
        )
    return seconds[column.codes]


def _find_windows(table, parts, sizes):
    """Return the rows of each window and its horizon, int `[windows, rows]`, and the number of its series."""
    window, horizon, stride = sizes
    required = window + horizon
    shortest = min(parts, key=lambda part: len(part.rows))
    if len(shortest.rows) < required:
        raise InputError(
            f"{table.locate(int(shortest.rows[0]))}: the series of this row has {len(shortest.rows)} rows, but a "
            f"window and its horizon need {required}; remove the series, or choose a smaller `window` or `horizon`"
        )
    if not any(len(part.starts((window, horizon, 1))) for part in parts):
        raise InputError(
            f"{table.source}: no window of {required} rows is without a gap; choose a smaller one, or set `gaps: join`"
        )
    starts = [part.starts(sizes) for part in parts]
    rows = np.concatenate([part.rows[first[:, None] + np.arange(required)] for part, first in zip(parts, starts)])
    return rows, np.repeat(np.arange(len(parts), dtype=np.int32), list(map(len, starts)))


def _read_channels(table: RawTable, names: Sequence[str], parts: Sequence[Series], missing: str) -> np.ndarray:
    """Return the numbers of columns, float64 `[rows, columns]`, with missing ones filled by the previous ones."""
    values = np.empty((table.rows, len(names)))
    for index, name in enumerate(names):
        is_missing = table.missing_rows(name)
        sources = np.arange(table.rows)
        for part in parts if missing == "previous" else ():
            is_present = ~is_missing[part.rows]
            last = np.maximum.accumulate(np.where(is_present, np.arange(len(part.rows)), 0))
            sources[part.rows] = part.rows[np.maximum(last, is_present.argmax())]
        if is_missing[sources].any():
            advice = "fill it in" if missing == "previous" else "fill it in, or set `missing: previous`"
            raise table.value_error(int(is_missing[sources].argmax()), name, f"has no value here; {advice}")
        values[:, index] = column_types.read_numbers(table.select(sources), name)
    return values


def _read_forecasts(table, parts, columns, rows, window, test_share, missing):
    """Return names of the targets, those of each window, and both splits; all that trains is before tested times."""
    times, horizon = np.empty(table.rows), rows.shape[1] - window
    for part in parts:
        times[part.rows] = part.times
    first_test_time = np.sort(times)[len(times) - max(round(test_share * len(times)), 1)]
    splits = times[rows[:, -1]] < first_test_time, times[rows[:, window]] >= first_test_time
    for name, is_in_split in zip(("training", "test"), splits):
        if not is_in_split.any():
            raise InputError(
                f"{table.source}: no {name} window fits before or after the first time of the test split; choose a "
                f"smaller `window` or `horizon`, or another `test_share`. Received: window={window}, "
                f"horizon={horizon}, test_share={test_share}"
            )
    y = _read_channels(table, columns, parts, missing)[rows[:, window:]]
    names = tuple(f"{name} +{step + 1}" for step in range(horizon) for name in columns)
    return names, y.astype(np.float32).reshape(len(y), -1), splits


def _read_classes(table, parts, columns, owners, test_share):
    """Return the class names, the class of each window, and the windows of both splits, which share no series."""
    names, [(labels, _)] = column_types.read_targets([table], columns, None)
    for part in parts:
        other = np.flatnonzero(labels[part.rows] != labels[part.rows[0]])
        if len(other):
            problem = "has another class than the first row of its series; set `series`, or `task: regression`"
            raise table.value_error(int(part.rows[other[0]]), columns[0], problem)
    classes = labels[[part.rows[0] for part in parts]]
    is_test = held_out(classes, test_share, table.source)[owners]
    return names, classes[owners], (~is_test, is_test)
