"""Writes the rows of a comparison as a table in Markdown, LaTeX, CSV or JSON."""

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hetero_tf.base.escaping import escape_line, escape_markdown
from hetero_tf.base.units import MB, TIME_UNITS, time_unit
from hetero_tf.reports.summaries import level_prefixes
from hetero_tf.runs.published import PublishedValue

# Header and divisor of the values, by row key or suffix of metric names.
COLUMNS: dict[str, tuple[str, float]] = {
    "device_seconds": ("device", 1),
    "energy": ("Wh", 3600),
    "bytes": ("total MB", MB),
    "client_bytes": ("MB per client and round", MB),
    "train_flops": ("TFLOP", 1e12),
    "client_seconds": ("seconds per client and round", 1),
    "parameters": ("parameters (thousands)", 1e3),
    "paper_flops": ("MFLOPs", 1e6),
    "ratio": ("size vs. global", 1),
    "budget_share": ("% of budget", 0.01),
}
# Headers of "METRIC reach GOAL KEY", which differ.
REACH_HEADS = {"round": "rounds", "bytes": "MB"}
# Only in CSV and JSON.
HIDDEN_COLUMNS = ("best_round", "multiply_adds")
FIRST = ("run", "levels", "seeds", "rounds")
# Headers of text columns, which are left-aligned; numbers are right-aligned.
WORDS = ("run", "runs", "level", "levels", "differs in")


@dataclass(frozen=True)
class Table:
    """A text table: headers, rows of cells, and notes."""

    heads: list[str]
    rows: list[list[str]]
    notes: list[str]

    @property
    def words(self) -> list[int]:
        """Indices of the columns of text."""
        return [index for index, head in enumerate(self.heads) if head in WORDS]


def to_table(rows: Sequence[dict], requested: Sequence[PublishedValue], shown: Callable[[str], bool] = bool) -> Table:
    """Format the rows of `comparison.compare` as a text table.

    Args:
        rows: At least one row.
        requested: Published values that get separate rows.
        shown: Predicate that selects the keys to show as columns; all by default.
    """
    keys = [key for key in rows[0] if _is_column(key, rows) and shown(key)]
    sources: dict[str, int] = {}
    has_published = any(row["published"] for row in rows) and shown("published")
    first = [name for name in FIRST if name == "run" or shown(name)]
    columns = {key: _column(key, rows) for key in keys}
    heads = [*first, *(head for head, _ in columns.values()), *(["published"] if has_published else [])]
    lines = []
    for row in rows:
        first_cells = {**row, "run": row["name"], "seeds": str(len(row["seeds"])), "rounds": _rounds(row)}
        cells = [first_cells[name] for name in first] + [
            _cell(key, row[key], columns[key][1], len(row["seeds"])) for key in keys
        ]
        lines.append(cells + ([_published(row["published"], sources)] if has_published else []))
    for name, source, setting in dict.fromkeys((value.name, value.source, value.setting) for value in requested):
        number = sources.setdefault(f"{source}: {setting}", len(sources) + 1)
        row = {
            f"{value.metric} last": f"{value.value:g}"
            for value in requested
            if (value.name, value.setting) == (name, setting)
        }
        row["run"] = f"{name} [{number}]"
        lines.append([row.get(key, "-") for key in (*first, *keys, *(["published"] if has_published else []))])
    notes = [f"[{number}] {text}" for text, number in sources.items()]
    if any(value["difference"] is not None for row in rows for value in row["published"]) and has_published:
        notes.append("published, in brackets: best value of the run minus the published one")
    return Table(heads, lines, notes)


def _rounds(row):
    """Format the rounds of a row."""
    if row["done"] >= row["rounds"]:
        return str(row["rounds"])
    return f"{row['done']} (stopped early)" if row["finished"] else f"{row['done']} of {row['rounds']}"


def is_cost(key: str) -> bool:
    """Return True for the cost columns."""
    return key in COLUMNS


def is_of_level(key: str) -> bool:
    """Return True for the metric columns of level models."""
    return key.startswith(level_prefixes())


def _is_column(key, rows):
    value = rows[0][key]
    if key in HIDDEN_COLUMNS:
        return False
    if key in COLUMNS and not isinstance(value, dict):
        return any(row[key] is not None for row in rows)
    return isinstance(value, dict) and key.rpartition(" ")[2] not in HIDDEN_COLUMNS


def _column(key, rows):
    """Return the whole header and the divisor of a key; durations have the unit that suits the longest one."""
    prefix, _, name = key.rpartition(" ")
    reached, (head, unit) = _reached(key), COLUMNS.get(name, (name, 1))
    head = f"{reached}: {REACH_HEADS.get(name, head)}" if reached else f"{prefix} {head}".strip()
    if name != "device_seconds":
        return head, unit
    time = time_unit(max((row[key]["mean"] or 0 for row in rows), default=0))
    return f"{head} {time}", TIME_UNITS[time]


def _reached(key):
    """Return "METRIC to GOAL" for a key "METRIC reach GOAL KEY", else ""."""
    metric, reach, goal = key.rpartition(" ")[0].partition(" reach ")
    return f"{metric} to {goal}" if reach else ""


def _cell(key, value, unit, seeds):
    if not isinstance(value, dict):
        return "-" if value is None else f"{value / unit:,.4g}"
    ended = value.get("ended")
    if ended and not value["of"]:
        return f"{_cell(key, ended | {'ended': None}, unit, seeds)} ({_ended(ended)})"
    if value["mean"] is None:
        return "-"
    if _reached(key) and value["of"] < seeds:
        return f"not by all seeds ({value['of']} of {seeds})" if key.endswith(" round") else "-"
    text = _with_spread(value["mean"] / unit, None if value["spread"] is None else value["spread"] / unit)
    count = f"{value['of']} of {seeds}" + (f"; {ended['of']} {_ended(ended)}" if ended else "")
    return text if value["of"] == seeds else f"{text} ({count})"


def _ended(ended):
    """Format the first and the last end of the runs that ended before a device time."""
    first, last = ended["seconds"]
    unit = time_unit(last)
    ends = dict.fromkeys(f"{seconds / TIME_UNITS[unit]:.3g}" for seconds in (first, last))
    return f"ended at {' to '.join(ends)} {unit}"


def _with_spread(mean, spread):
    """Format a mean with up to four digits and its spread with up to two; both end at the same decimal."""
    if not mean or not spread:
        return f"{mean:,.4g}" + ("" if spread is None else f" ± {spread:.2g}")
    decimals = max(0, min(3 - math.floor(math.log10(abs(mean))), 1 - math.floor(math.log10(spread))))
    return f"{mean:,.{decimals}f} ± {spread:,.{decimals}f}"


def _published(values, sources):
    """Format the published values of a row, each with the number of its note."""
    has_several_metrics = len({value["metric"] for value in values}) > 1
    texts = []
    for value in values:
        number = sources.setdefault(f"{value['source']}: {value['setting']}", len(sources) + 1)
        spread = "" if value["spread"] is None else f" ± {value['spread']:g}"
        difference = "" if value["difference"] is None else f" ({value['difference']:+.2f})"
        metric = f" {value['metric']}" if has_several_metrics else ""
        texts.append(f"{value['value']:g}{spread}{difference}{metric} [{number}]")
    return ", ".join(texts) or "-"


def markdown(table: Table) -> str:
    """Write a table in GitHub Markdown."""
    text = _layout(table, "pipe", escape_markdown)
    return "\n".join([text, *([""] + [f"{escape_markdown(note)}  " for note in table.notes] if table.notes else [])])


def latex(table: Table) -> str:
    """Write a `tabular` with the rules of the package booktabs; notes follow as comments."""
    # tabulate escapes the special characters of LaTeX; this one needs no encoding of the document.
    text = _layout(table, "latex_booktabs", escape_line).replace("±", r"$\pm$")
    return "\n".join([text, *(f"% {escape_line(note)}" for note in table.notes)])


def _layout(table: Table, layout: str, escape: Callable[[str], str]) -> str:
    from tabulate import tabulate

    lines = [list(map(escape, line)) for line in (table.heads, *table.rows)]
    align = ["left" if index in table.words else "right" for index in range(len(table.heads))]
    return tabulate(lines, "firstrow", layout, disable_numparse=True, colalign=align)


def to_csv(rows: Sequence[dict]) -> str:
    """Write unrounded numbers as CSV: "KEY" is a mean, "KEY spread" the standard deviation, "KEY runs" the count."""
    import pandas

    # As objects, whole numbers stay whole beside missing ones.
    return pandas.DataFrame(map(_flat, rows), dtype=object).to_csv(index=False).rstrip("\n")


def _flat(row):
    flat: dict[str, object] = {}
    for key, value in row.items():
        if isinstance(value, dict):
            flat |= {key: value["mean"], f"{key} spread": value["spread"], f"{key} runs": value["of"]}
        elif isinstance(value, list):
            flat[key] = "; ".join(map(_format_item, value))
        else:
            flat[key] = escape_line(value) if isinstance(value, str) else value
    return flat


def _format_item(item):
    """Format a seed or a published value."""
    return f"{item['metric']} {item['value']:g}" if isinstance(item, dict) else str(item)


def to_json(rows: Sequence[dict]) -> str:
    """Write the rows as one JSON list."""
    return json.dumps(rows, indent=1, allow_nan=False)


FORMATS: dict[str, Callable[[Sequence[dict], Sequence[PublishedValue]], str]] = {
    "markdown": lambda rows, requested: markdown(to_table(rows, requested)),
    "csv": lambda rows, requested: to_csv(rows),
    "latex": lambda rows, requested: latex(to_table(rows, requested)),
    "json": lambda rows, requested: to_json(rows),
}
