"""Writes a comparison as text, Markdown, LaTeX, CSV or JSON."""

import json
import math
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hetero_tf.base.console import format_table
from hetero_tf.base.escaping import escape_line, escape_markdown
from hetero_tf.base.metrics import find_metric
from hetero_tf.base.units import MB, TIME_UNITS, time_unit
from hetero_tf.reports.summaries import Moment, compare, default_metrics, direction, known_metrics, level_prefixes
from hetero_tf.runs.history import Run, differing_values, shown
from hetero_tf.runs.published import PublishedValue

# Header and divisor of the values, by row key or suffix of metric names.
COLUMNS: dict[str, tuple[str, float]] = {
    "device_seconds": ("device", 1),
    "energy": ("Wh", 3600),
    "epsilon": ("epsilon", 1),
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
    """Format the rows of `summaries.compare` as a text table.

    Args:
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
            texts = (f"{each['metric']} {each['value']:g}" if isinstance(each, dict) else str(each) for each in value)
            flat[key] = "; ".join(texts)
        else:
            flat[key] = escape_line(value) if isinstance(value, str) else value
    return flat


FORMATS: dict[str, Callable[[Sequence[dict], Sequence[PublishedValue]], str]] = {
    "markdown": lambda rows, requested: markdown(to_table(rows, requested)),
    "csv": lambda rows, requested: to_csv(rows),
    "latex": lambda rows, requested: latex(to_table(rows, requested)),
    "json": lambda rows, requested: json.dumps(rows, indent=1, allow_nan=False),
}


# Columns in addition to the metric.
TEXT_COLUMNS = ("rounds", "bytes", "budget_share", "device_seconds", "epsilon", "published")
MOST_VALUES, MOST_KEYS = 6, 12
# Width of output that is not a terminal.
UNLIMITED = 10_000


def to_text(
    groups: dict[str, list[Run]],
    metrics: Sequence[str] = (),
    goals: Sequence[float] = (),
    at: Sequence[Moment] = (),
    published: tuple[Sequence[PublishedValue], Sequence[PublishedValue]] = ((), ()),
    width: int | None = None,
) -> str:
    """Return the tables of a comparison as text.

    Args:
        groups, goals, at: See `summaries.compare`.
        metrics: Metrics, each with a table for each task that has it. Empty: the first default metric of each task.
        published: Output of `published.select_published`.
        width: Columns of the terminal; None: unlimited.
    """
    tables: dict[tuple[str, str], dict[str, list[Run]]] = {}
    for name, group in groups.items():
        # A run that is not evaluated yet has the loss of its training.
        known, default = known_metrics(group), (default_metrics(group) or ["loss"])[0]
        # The task of texts with a word at each position is named by their input.
        task = shown(group[0].keys["input.name" if default == "global_perplexity" else "task.name"])
        for metric in [metric for metric in metrics if metric in known] if metrics else [default]:
            tables.setdefault((task, metric), {})[name] = group
    parts = []
    for (task, metric), runs in tables.items():
        rows = compare(runs, [metric], goals, at, published[0])
        requested = [value for value in published[1] if value.metric == metric]
        lines = _metric_tables(f"{task}: {metric}", metric, rows, goals, at, requested, width)
        parts.append(lines + _list_differences(runs, width))
    return "\n\n".join(map("\n".join, parts))


def _metric_tables(name, metric, rows, goals, at, requested, width):
    """Return the lines of the tables of one metric: results, values at rounds and times, and costs to reach values."""
    known, sign = find_metric(metric), direction(metric)
    unit = known.unit if known else ""
    best = f"{metric} best"
    rows = sorted(rows, key=lambda row: (row[best]["mean"] is None, -sign * (row[best]["mean"] or 0)))

    def is_shown(key):
        is_seeds = key == "seeds" and any(len(row["seeds"]) > 1 for row in rows)
        return is_seeds or key in TEXT_COLUMNS or key in (f"{metric} last", best)

    title = f"{name}{f' in {unit}' * bool(unit)}, {'higher' if sign > 0 else 'lower'} is better"
    lines = _block(title, to_table(rows, requested, is_shown), f"{metric} ", width)
    if at:
        table = to_table(rows, [], _beginning(f"{metric} at "))
        lines += _block("at a round or device time:", table, f"{metric} at ", width)
    for goal in goals:
        title, prefix = f"to reach {goal:g}{f' {unit}' * bool(unit)}:", f"{metric} reach {goal:g} "
        order = f"{prefix}device_seconds" if f"{prefix}device_seconds" in rows[0] else f"{prefix}round"
        fastest_first = sorted(rows, key=lambda row: (len(row["seeds"]) - row[order]["of"], row[order]["mean"] or 0))
        table = to_table(fastest_first, [], _beginning(prefix))
        lines += _block(title, table, f"{metric} to {goal:g}: ", width)
    return lines


def _beginning(prefix):
    return lambda key: key.startswith(prefix)


def _block(title, table, prefix, width):
    """Return the lines of a table with its title and notes; its heads are without `prefix`."""
    rows = [[head.removeprefix(prefix) for head in table.heads], *table.rows]
    return [*_wrap([title], width), format_table(rows, table.words, width), *_wrap(table.notes, width)]


def _list_differences(groups, width):
    """Return lines with the keys in which the recipes differ, and their values."""
    by_key, lines = differing_values([group[0] for group in groups.values()], ("name", "seed")), []
    keys = list(by_key)
    if any(key.startswith("model.layers") for key in keys):
        keys = ["model.layers", *(key for key in keys if not key.startswith(("model.layers", "model.settings")))]
        lines.append("  model.layers and its settings")
    for key in keys[len(lines) : MOST_KEYS]:
        values = list(dict.fromkeys("-" if value is None else value for value in by_key[key]))
        more = [f"and {len(values) - MOST_VALUES} more"] if len(values) > MOST_VALUES else []
        lines.append(f"  {key}: {', '.join(values[:MOST_VALUES] + more)}")
    lines += [f"  and {len(keys) - MOST_KEYS} more keys"] if len(keys) > MOST_KEYS else []
    return _wrap(["the recipes differ in", *lines], width) if lines else []


def _wrap(lines, width):
    """Return lines that fit into `width` columns, without control characters."""
    return [
        part
        for line in map(escape_line, lines)
        for part in textwrap.wrap(line, width or UNLIMITED, subsequent_indent="    ")
    ]
