"""Writes a comparison as aligned text: a table for each task and metric, best run first, and the differing keys."""

import textwrap
from collections.abc import Sequence

from hetero_tf.base.console import format_table
from hetero_tf.base.escaping import escape_line
from hetero_tf.base.metrics import find_metric
from hetero_tf.reports.comparison import compare
from hetero_tf.reports.summaries import Moment, default_metrics, direction, known_metrics
from hetero_tf.reports.tables import to_table
from hetero_tf.runs.history import Run, differing_values, shown
from hetero_tf.runs.published import PublishedValue

# Columns in addition to the metric.
COLUMNS = ("rounds", "bytes", "budget_share", "device_seconds", "published")
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
        groups, goals, at: See `comparison.compare`.
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
        parts.append(lines + _differences(runs, width))
    return "\n\n".join(map("\n".join, parts))


def _metric_tables(name, metric, rows, goals, at, requested, width):
    """Return the lines of the tables of one metric: results, values at rounds and times, and costs to reach values."""
    known, sign = find_metric(metric), direction(metric)
    unit = known.unit if known else ""
    best = f"{metric} best"
    rows = sorted(rows, key=lambda row: (row[best]["mean"] is None, -sign * (row[best]["mean"] or 0)))

    def is_shown(key):
        is_seeds = key == "seeds" and any(len(row["seeds"]) > 1 for row in rows)
        return is_seeds or key in COLUMNS or key in (f"{metric} last", best)

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


def _differences(groups, width):
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
