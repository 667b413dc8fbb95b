"""Classes of devices as columns of numbers: from the recipe, or from a CSV file with a row for each client."""

import functools
import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from hetero_tf.base.constraints import keys
from hetero_tf.base.errors import InputError, did_you_mean
from hetero_tf.base.files import decode, open_file, read_bytes, sha256_of
from hetero_tf.base.formatting import MIB
from hetero_tf.data.columns import is_number
from hetero_tf.recipe.check import convert
from hetero_tf.recipe.nodes import InvalidValue
from hetero_tf.recipe.schema import Device, Fleet, is_window

# Bytes per second of 1 Mbit/s.
MBIT = 1e6 / 8
LARGEST_TRACE = 2**28
_UNITS = {"gflops": ("speed", 1e9), "down_mbit": ("down", MBIT), "up_mbit": ("up", MBIT)}
_PLAIN = ("seconds_per_step", "train_watts", "radio_watts", "dropout", "charging")


@dataclass(frozen=True)
class DeviceTable:
    """Classes of devices.

    Attributes:
        columns: {name: float64 [classes]}, in the units of `Devices`.
        windows: Hours of each class; no hours are the whole day.
        shares: float64 [classes], shares of the clients.
        kinds: int32 [clients], class of each client of a trace. If None, clients draw their class.
    """

    columns: dict[str, np.ndarray]
    windows: tuple[tuple[tuple[float, ...], ...], ...]
    shares: np.ndarray
    kinds: np.ndarray | None = None


def device_table(fleet: Fleet) -> DeviceTable:
    """Return the classes of a fleet.

    Raises:
        InputError: The trace cannot be read or has invalid values; with file, line and column.
    """
    if fleet.trace is not None:
        return read_trace(fleet.trace)
    return _to_table({name: [getattr(device, name) for device in fleet.devices.values()] for name in keys(Device)})


def check_trace(trace: str, clients: int) -> None:
    """Raise `InvalidValue` if the file of `fleet.trace` is invalid or has fewer rows than there are clients."""
    try:
        kinds = read_trace(trace).kinds
    except InputError as problem:
        raise InvalidValue(("fleet", "trace"), str(problem)) from problem
    rows = 0 if kinds is None else len(kinds)
    if rows < clients:
        text = f"{trace} has rows for {rows} clients, but {clients} are registered; add rows"
        raise InvalidValue(("fleet", "trace"), f"{text}. Received: {trace!r}")


def _to_table(values: Mapping[str, Sequence], kinds: np.ndarray | None = None) -> DeviceTable:
    """Return the table of the values of a device's keys, each a list by class."""
    columns = {name: values[name] for name in _PLAIN}
    columns["memory"] = [memory_bytes(text) for text in values["memory"]]
    for key, (name, unit) in _UNITS.items():
        columns[name] = [scale(value, unit) for value in values[key]]
    arrays = {name: np.asarray(column, float) for name, column in columns.items()}
    return DeviceTable(arrays, tuple(values["hours"]), np.asarray(values["share"], float), kinds)


def scale(value: float | None, unit: float) -> float:
    """Return a value in units; None is infinite."""
    return math.inf if value is None else value * unit


def memory_bytes(text: str | None) -> float:
    """Return the bytes of a text such as "400 MiB" or "2 GiB"; None is infinite."""
    if text is None:
        return math.inf
    number = text.rstrip("iB")
    return float(number[:-1]) * MIB * {"M": 1, "G": 1024}[number[-1]]


@functools.lru_cache(maxsize=1)
def read_trace(path: str) -> DeviceTable:
    """Read the devices of a trace: a CSV file whose columns are keys of a device, and optionally `client`.

    An empty cell has the default of its key. Hours are written as `22-7;12-13.5`. Without the column `client` the rows
    are those of clients 0, 1, and so on. Equal rows are one class.

    Raises:
        InputError: See `device_table`.
    """
    import pandas as pd

    text = decode(read_bytes(path, LARGEST_TRACE, follow=True), path)
    try:
        rows = pd.read_csv(io.StringIO(text), dtype=str, na_filter=False, index_col=False)
    except ValueError as problem:
        raise InputError(f"{path}: cannot be parsed as CSV: {str(problem).strip()}") from None
    options = {name: option for name, option in keys(Device).items() if name != "share"}
    known = ["client", *options]
    if unknown := [name for name in rows if name not in known]:
        raise InputError(f"{path}:1: {unknown[0]}: unknown column{did_you_mean(unknown[0], known)}")
    order = _order(path, rows["client"].tolist() if "client" in rows else list(map(str, rows.index)))
    rows = rows.reindex(columns=list(options), fill_value="")
    classes = rows.drop_duplicates()
    values = {name: _column(path, option, classes[name]) for name, option in options.items()}
    for row, seconds, gflops in zip(classes.index, values["seconds_per_step"], values["gflops"]):
        if not seconds and gflops is None:
            raise InputError(f"{path}:{row + 2}: local steps need a time; fill in seconds_per_step, gflops or both")
    values["share"] = [1.0] * len(classes)
    kinds = rows.groupby(list(options), sort=False).ngroup().to_numpy(np.int32)
    return _to_table(values, kinds[order])


def trace_digest(path: str) -> str:
    """Return the sha256 of a trace."""
    with open_file(path) as file:
        return sha256_of(file)


def _column(path, option, texts):
    """Return the values of a column of distinct rows."""
    values: dict = {"": option.default}
    for row, text in texts.items():
        if text not in values:
            try:
                values[text] = convert(_cell(option, text), option.constraint, (option.name,))
            except InvalidValue as problem:
                raise InputError(f"{path}:{row + 2}: {problem}") from None
    return [values[text] for text in texts]


def _cell(option, text):
    """Return the value of a cell as in a recipe.

    Raises:
        InvalidValue: It is not a time window or not finite.
    """
    if option.name == "memory":
        return text.strip()
    if option.name != "hours":
        return _number(text)
    hours = [[_number(hour) for hour in window.split("-")] for window in text.split(";")]
    if not all(map(is_window, hours)):
        text = f"must be times of two different hours from 0 to 24, such as 22-7;12-13.5. Received: {text!r}"
        raise InvalidValue((option.name,), text)
    return hours


def _number(text):
    """Return the number of a text, or the text if it is not a finite number in plain notation."""
    return float(text) if is_number(text) else text


def _order(path, clients):
    """Return the row of each client: int [clients]."""
    rows = {client: row for row, client in enumerate(clients)}
    missing = next((client for client in range(len(clients)) if str(client) not in rows), None)
    if missing is not None or not clients:
        text = f"must have a row for each client from 0 to {max(len(clients) - 1, 0)}; client {missing or 0} is missing"
        raise InputError(f"{path}: {text}")
    return [rows[str(client)] for client in range(len(clients))]
