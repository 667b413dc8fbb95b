"""The packed rows of sweeps that take days, `benchmarks/NAME.tar.gz`, for the pictures and tables of RESULTS.md."""

import functools
import json
import tarfile
import tempfile

import checkout

from hetero_tf.reports.summaries import direction, paired_difference
from hetero_tf.runs import history, published


def packed_rows(name):
    """Rows of the runs in `benchmarks/NAME.tar.gz`: {folder: list of rows}."""
    with tarfile.open(checkout.ROOT / "benchmarks" / f"{name}.tar.gz") as archive:
        files = {member: archive.extractfile(member) for member in archive.getnames()}
        lines = {member: file.readlines() for member, file in files.items() if member.endswith("/metrics.jsonl")}
    return {member.split("/")[0]: [json.loads(line) for line in rows] for member, rows in lines.items()}


def last_by_seed(runs, name, metric):
    """The last value of a metric in each run `NAME-seed=N` that has it."""
    return [rows[-1][metric] for run, rows in runs.items() if run.startswith(f"{name}-seed=") and metric in rows[-1]]


@functools.cache
def narrow_runs():
    """The runs of the sweep heterofl_narrow, from the rows that the repository has."""
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(checkout.ROOT / "benchmarks" / "heterofl_narrow.tar.gz") as archive:
            archive.extractall(folder, filter="data")
        return history.gather([folder])[0]


def best_row(run, metric):
    """The row of the best evaluated round, which the paper reports; the first one of equals."""
    return max((row for row in run.rows if metric in row), key=lambda row: direction(metric) * row[metric])


@functools.cache
def values_of(table):
    """The values of a published table."""
    return [value for value in published.read_published() if value.table == table]


def cells_of(table, settings, metric):
    """`{(setting, row): (published value, best values of the matching runs)}` of a table of a paper."""
    runs, cells = narrow_runs(), {}
    for value in values_of(table):
        if value.setting in settings and value.metric == metric:
            matching = [best_row(run, metric)[metric] for run in runs if published.matching_values([value], run.keys)]
            cells[value.setting, value.name.split("/")[1]] = value.value, matching
    return cells


def mixes_of(table, setting, metric):
    """`{mix: (published value, best values of the runs)}`, without the rows of other methods."""
    cells = {row: cell for (_, row), cell in cells_of(table, [setting], metric).items()}
    return {row: cell for row, cell in cells.items() if {*"abcde"} >= {*row.split("-")}}


def markdown(heads, rows):
    """A table of texts."""
    return "\n".join("| " + " | ".join(cells) + " |" for cells in (heads, ["---"] * len(heads), *rows))


def describe_difference(values, others):
    """The mean of paired differences and its interval; bold if the interval excludes zero."""
    test = paired_difference([value - other for value, other in zip(values, others, strict=True)])
    text = f"{test['mean']:+.1f} ({test['low']:+.1f} to {test['high']:+.1f})"
    return f"**{text}**" if test["low"] * test["high"] > 0 else text
