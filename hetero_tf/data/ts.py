"""Load series from `.ts` files, the format of the UCR and UEA archives and of sktime and aeon."""

from pathlib import Path
from typing import Literal

import numpy as np

from hetero_tf.base.constraints import TestShare
from hetero_tf.base.errors import InputError, shorten_repr
from hetero_tf.base.hardware import check_memory
from hetero_tf.data.data_files import find_files
from hetero_tf.data.dataset import Dataset, held_out
from hetero_tf.data.in_memory import from_arrays
from hetero_tf.data.table_files import read_text
from hetero_tf.data.targets import LABEL, NUMBERS, strata

ENDINGS = (".ts",)
# Characters of a number in memory while a file is read.
GROWTH = 4


def load(
    data_dir: Path | None,
    *,
    path: str,
    test: str | None = None,
    test_share: TestShare = 0.2,
    missing: Literal["error", "previous"] = "error",
    targets=LABEL,
) -> Dataset:
    """Load the series of a file: a line for each series, with a colon between channels and before the class or number.

    All series have equal lengths. `@classLabel true` in the header names the classes, for the task classification;
    `@targetLabel true` is for the task regression.

    Args:
        path: the file of the training series, such as GunPoint_TRAIN.ts
        test: the file of the test series; null: a share of the series of each class
        test_share: size of that share
        missing: treatment of missing values, `?`: error, or previous (the value before in the series; at its start the
            first one)
    """
    files = find_files(data_dir, path=path, test=test)
    headers, parts = zip(*(_read_file(file, missing, targets) for file in files))
    if len(parts) == 1:
        x, y = parts[0]
        classes = strata(np.unique(y, return_inverse=True)[1].astype(np.int32) if y.ndim == 1 else y)[0]
        is_test = held_out(classes, test_share, str(files[0]))
        parts = (x[~is_test], y[~is_test]), (x[is_test], y[is_test])
    names, source = headers[0].get("classlabel", "").split()[1:] or None, f"series ({files[0]})"
    return from_arrays(*parts[0], *parts[1], class_names=names, source=source, targets=targets, kind="series")


def possible_tasks(path: Path) -> tuple[tuple[str, ...], str]:
    """Return the tasks of a file, the likely one first, and the reason."""
    header, _ = _split(path)
    if header.get("targetlabel", "").lower().startswith("true"):
        return ("regression",), "the header has @targetLabel true"
    names = header.get("classlabel", "").split()[1:]
    return ("classification", "binary", "ordinal"), f"the header has {len(names)} classes"


def _split(path):
    """Return the header, `{name: value}` with names in lower case, and the numbered lines of the series."""
    header, lines = {}, []
    for number, line in enumerate(map(str.strip, read_text(path).splitlines()), 1):
        if line.startswith("@") and "data" not in header:
            name, _, value = line[1:].partition(" ")
            header[name.lower()] = value.strip()
        elif line and not line.startswith(("#", "%")):
            lines.append((number, line))
    if "data" not in header or not lines:
        raise InputError(f"{path}: expected a header that ends with @data, and a line for each series")
    if header.get("timestamps", "").lower() == "true":
        raise InputError(f"{path}: series with @timeStamps true are not supported; save their values alone")
    return header, lines


def _read_file(path, missing, targets):
    """Return the header, and the series float64 [n, time, channels] with their labels [n] or numbers float32 [n, 1]."""
    header, lines = _split(path)
    check_memory(path, GROWTH * 8 * sum(line.count(",") + 1 for _, line in lines))
    series, labels = [], []
    for number, line in lines:
        *channels, label = line.split(":")
        series.append([_read_numbers(f"{path}:{number}", channel, missing) for channel in channels])
        labels.append(_read_numbers(f"{path}:{number}", label, "error") if targets == NUMBERS else label.strip())
        count, length = len(series[0]), len(series[0][0]) if series[0] else 0
        if not channels or [len(channel) for channel in series[-1]] != [length] * count:
            raise InputError(
                f"{path}:{number}: every series must have {count} channels of {length} values, as the first one, and a "
                f"class or number at its end. Received: {shorten_repr(line, 80)}"
            )
    y = np.array(labels, np.float32) if targets == NUMBERS else np.array(labels)
    return header, (np.moveaxis(np.array(series), 1, 2), y)


def _read_numbers(location, text, missing):
    """Return the numbers of a channel, of which missing ones are those before them."""
    try:
        values = np.array([np.nan if value.strip() in ("?", "NaN") else float(value) for value in text.split(",")])
    except ValueError as error:
        raise InputError(f"{location}: {error}") from error
    is_missing = np.isnan(values)
    if is_missing.any() and (missing == "error" or is_missing.all()):
        raise InputError(f"{location}: has a missing value; fill it in, or set `missing: previous`")
    last = np.maximum.accumulate(np.where(is_missing, 0, np.arange(len(values))))
    return values[np.maximum(last, (~is_missing).argmax())]
