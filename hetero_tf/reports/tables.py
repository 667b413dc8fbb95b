"""Writes a comparison as text, Markdown, LaTeX, CSV or JSON."""

import dataclasses
import json
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hetero_tf.base.console import format_table
from hetero_tf.base.errors import InputError
from hetero_tf.base.formatting import MB, TIME_UNITS, escape_line, escape_markdown, time_unit
from hetero_tf.base.metrics import find_metric
from hetero_tf.reports.figures import metric_label
from hetero_tf.reports.summaries import TEST, Moment, compare, default_metrics, direction, known_metrics, level_prefixes
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
    """A text table.

    Attributes:
        best: (row, column) of the best values of metrics.
    """

    heads: list[str]
    rows: list[list[str]]
    notes: list[str]
    best: frozenset[tuple[int, int]] = frozenset()

    @property
    def footer(self) -> list[str]:
        """The notes, after the meaning of ± if a cell has one."""
        has_spread = any("±" in cell for row in self.rows for cell in row)
        return ["±: standard deviation over seeds"] * has_spread + self.notes

    @property
    def words(self) -> list[int]:
        """Indices of the columns of text."""
        return [index for index, head in enumerate(self.heads) if head in WORDS]


def column_name(key: str) -> str:
    """Return the name in `compare --columns` of a key of `summaries.compare`: "last" of "global_accuracy last"."""
    return key.split(" ")[1] if " " in key else key


def check_columns(columns: Sequence[str], row: dict) -> None:
    """Refuse names of `columns` that a row of `summaries.compare` lacks."""
    known = dict.fromkeys((*FIRST[1:], *(column_name(key) for key in row if _is_column(key, [row])), "published"))
    for name in columns:
        if name not in known:
            hint = "; difference needs --baseline NAME" if name == "difference" else ""
            raise InputError(f"unknown column{hint}; known: {', '.join(known)}. Received: --columns={name}")


def to_table(
    rows: Sequence[dict],
    requested: Sequence[PublishedValue],
    shown: Callable[[str], bool] = bool,
    columns: Sequence[str] = (),
) -> Table:
    """Format the rows of `summaries.compare` as a text table.

    Args:
        requested: Published values that get separate rows.
        shown: Predicate that selects the keys to show as columns; all by default.
        columns: Names of the columns in their order, see `column_name`; empty: all that are `shown`.
    """
    keys = [
        key
        for key in dict.fromkeys((*FIRST[1:], *rows[0]))
        if _is_column(key, rows) and shown(key) and (not columns or column_name(key) in columns)
    ]
    keys.sort(key=lambda key: columns.index(column_name(key)) if columns else 0)
    sources: dict[str, int] = {}
    formats = {key: _column(key, rows) for key in keys}

    def cell(key, row):
        if key == "published":
            return _published(row[key], sources)
        texts = {"levels": row["levels"], "seeds": str(len(row["seeds"])), "rounds": _rounds(row)}
        return texts.get(key) or _cell(key, row[key], formats[key][1], len(row["seeds"]))

    lines = [[row["name"], *(cell(key, row) for key in keys)] for row in rows]
    numbers = [{key: row[key]["mean"] for key in keys if key.endswith((" last", " best"))} for row in rows]
    for name, source, setting in dict.fromkeys((value.name, value.source, value.setting) for value in requested):
        number = sources.setdefault(f"{source}: {setting}", len(sources) + 1)
        values = {
            f"{value.metric} last": value.value for value in requested if (value.name, value.setting) == (name, setting)
        }
        numbers.append(values)
        lines.append([f"{name} [{number}]", *(f"{values[key]:g}" if key in values else "-" for key in keys)])
    notes = [*(f"[{number}] {text}" for text, number in sources.items()), *_notes_of_differences(rows, keys)]
    best = frozenset(
        (row, column)
        for column, key in enumerate(keys, 1)
        for row in _best_rows(key, [values.get(key) for values in numbers])
    )
    return Table(["run", *(formats[key][0] for key in keys)], lines, notes, best)


def _notes_of_differences(rows, keys):
    """Yield what the differences from published values and from a baseline are."""
    if "published" in keys and any(value["difference"] is not None for row in rows for value in row["published"]):
        yield "published, in brackets: best value of the run minus the published one"
    if baseline := next((rows[0][key]["to"] for key in keys if key.endswith(" difference")), None):
        yield f"difference: last value minus that of {baseline}, {TEST}"


def _best_rows(key, values):
    """Return the rows with the best value of a metric, if several have one."""
    sign, present = direction(key.partition(" ")[0]), [value for value in values if value is not None]
    best = max(present, key=lambda value: sign * value) if len(present) > 1 else None
    return [row for row, value in enumerate(values) if best is not None and value == best]


def _rounds(row):
    if row["done"] >= row["rounds"]:
        return str(row["rounds"])
    return f"{row['done']} (stopped early)" if row["finished"] else f"{row['done']} of {row['rounds']}"


def is_of_level(key: str) -> bool:
    """Return True for the metric columns of level models."""
    return key.startswith(level_prefixes())


def _is_column(key, rows):
    value = rows[0][key]
    if key in FIRST or key == "published":
        return key != "published" or any(row[key] for row in rows)
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
    if "low" in value:
        ends = f" [{value['low']:+.3g}, {value['high']:+.3g}]" if value["low"] is not None else ""
        text = f"{value['mean']:+.3g}{ends}"
    else:
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
    """Write a table in GitHub Markdown, the best values in bold."""
    text = _layout(table, "pipe", escape_markdown, ("**", "**"))
    return "\n".join([text, *([""] + [f"{escape_markdown(note)}  " for note in table.footer] if table.footer else [])])


def latex(table: Table) -> str:
    """Write a `tabular` with the rules of the package booktabs, the best values in bold; notes follow in small type."""
    from tabulate import LATEX_ESCAPE_RULES

    # tabulate escapes the special characters of LaTeX; no name contains the two of private use.
    text = _layout(
        dataclasses.replace(table, heads=_labels(table.heads)), "latex_booktabs", escape_line, ("\ue000", "\ue001")
    )
    notes = ["".join(LATEX_ESCAPE_RULES.get(sign, sign) for sign in escape_line(note)) for note in table.footer]
    text = "\n".join([text, *([r"\par\smallskip", rf"{{\footnotesize {'; '.join(notes)}\par}}"] if notes else [])])
    text = re.sub(r"(?<=[ \[])-(?=\d)", "$-$", text)
    # Rules as wide as the text of the table.
    text = re.sub(r"(?<={tabular}{)\w+", r"@{}\g<0>@{}", text)
    return text.replace("±", r"$\pm$").replace("\ue000", r"\textbf{").replace("\ue001", "}")


def _labels(heads):
    """Return heads with the label of each metric in its first one: "global accuracy (%) last", "difference"."""
    parts = [head.partition(" ") for head in heads]
    labels = {metric: metric_label(metric) for metric, *_ in parts if find_metric(metric)}
    return [
        f"{labels.pop(metric, '')} {rest}".strip() if rest and find_metric(metric) else head
        for head, (metric, _, rest) in zip(heads, parts)
    ]


def _layout(table: Table, layout: str, escape: Callable[[str], str], bold: tuple[str, str]) -> str:
    from tabulate import tabulate

    lines = [list(map(escape, line)) for line in (table.heads, *table.rows)]
    for row, column in table.best:
        lines[row + 1][column] = lines[row + 1][column].join(bold)
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
            flat |= {f"{key} {name}": value[name] for name in ("low", "high") if name in value}
        elif isinstance(value, list):
            texts = (f"{each['metric']} {each['value']:g}" if isinstance(each, dict) else str(each) for each in value)
            flat[key] = "; ".join(texts)
        else:
            flat[key] = escape_line(value) if isinstance(value, str) else value
    return flat


def _selected(rows, columns):
    return [
        {key: row[key] for key in row if key == "name" or not columns or column_name(key) in columns} for row in rows
    ]


FORMATS: dict[str, Callable[[Sequence[dict], Sequence[PublishedValue], Sequence[str]], str]] = {
    "markdown": lambda rows, requested, columns: markdown(to_table(rows, requested, columns=columns)),
    "csv": lambda rows, requested, columns: to_csv(_selected(rows, columns)),
    "latex": lambda rows, requested, columns: latex(to_table(rows, requested, columns=columns)),
    "json": lambda rows, requested, columns: json.dumps(_selected(rows, columns), indent=1, allow_nan=False),
}


# Columns in addition to the metric.
TEXT_COLUMNS = ("rounds", "bytes", "budget_share", "device_seconds", "epsilon", "published")
MOST_VALUES, MOST_KEYS = 6, 12


def to_text(
    groups: dict[str, list[Run]],
    metrics: Sequence[str] = (),
    goals: Sequence[float] = (),
    at: Sequence[Moment] = (),
    published: tuple[Sequence[PublishedValue], Sequence[PublishedValue]] = ((), ()),
    baseline: str | None = None,
    columns: Sequence[str] = (),
    width: int | None = None,
) -> str:
    """Return the tables of a comparison as text.

    Args:
        groups, goals, at, baseline: See `summaries.compare`.
        metrics: Metrics, each with a table for each task that has it. Empty: the first default metric of each task.
        published: Output of `published.select_published`.
        columns: Names of the columns of the first table of each metric, see `to_table`.
        width: Columns into which the names of runs are folded; None: unlimited.
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
        of_first = (goals, at) if metric == [*metrics, metric][0] else ((), ())
        rows = compare(runs, [metric], *of_first, published[0], baseline)
        requested = [value for value in published[1] if value.metric == metric]
        lines = _metric_tables(f"{task}: {metric}", metric, rows, *of_first, requested, columns, width)
        parts.append(lines + _list_differences(runs))
    return "\n\n".join(map("\n".join, parts))


def best_first(rows: Sequence[dict], key: str) -> list[dict]:
    """Sort rows by a value "METRIC WHAT"; rows without it are last, and equal rows keep their order."""
    sign = direction(key.partition(" ")[0])
    return sorted(rows, key=lambda row: (row[key]["mean"] is None, -sign * (row[key]["mean"] or 0)))


def _metric_tables(name, metric, rows, goals, at, requested, columns, width):
    """Return the lines of the tables of one metric: results, values at rounds and times, and costs to reach values."""
    known, sign = find_metric(metric), direction(metric)
    unit = known.unit if known else ""
    best = f"{metric} best"
    rows = best_first(rows, best)

    def is_shown(key):
        is_seeds = key == "seeds" and any(len(row["seeds"]) > 1 for row in rows)
        # A terminal has no room for the best value beside the difference.
        values = {f"{metric} last", f"{metric} difference" if f"{metric} difference" in rows[0] else best}
        return columns or is_seeds or key in TEXT_COLUMNS or key in values

    title = f"{name}{f' in {unit}' * bool(unit)}, {'higher' if sign > 0 else 'lower'} is better"
    tables = [(title, to_table(rows, requested, is_shown, columns), f"{metric} ")]
    if at:
        prefix = f"{metric} at "
        tables.append(("at a round or device time:", to_table(rows, [], lambda key: key.startswith(prefix)), prefix))
    for goal in goals:
        title, start = f"to reach {goal:g}{f' {unit}' * bool(unit)}:", f"{metric} reach {goal:g} "
        order = f"{start}device_seconds" if f"{start}device_seconds" in rows[0] else f"{start}round"
        fastest_first = sorted(rows, key=lambda row: (len(row["seeds"]) - row[order]["of"], row[order]["mean"] or 0))
        table = to_table(fastest_first, [], {key for key in rows[0] if key.startswith(start)}.__contains__)
        tables.append((title, table, f"{metric} to {goal:g}: "))
    lines = []
    for title, table, prefix in tables:
        heads = [head.removeprefix(prefix) for head in table.heads]
        lines += [escape_line(title), format_table([heads, *table.rows], table.words, width)]
    return [*lines, *dict.fromkeys(escape_line(note) for _, table, _ in tables for note in table.footer)]


def _list_differences(groups):
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
    return [*map(escape_line, ["the recipes differ in", *lines])] if lines else []
