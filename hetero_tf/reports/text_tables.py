"""Writes a comparison as aligned text: a table for each task and metric, best run first, and the differing keys."""

import functools
import io
import itertools
import textwrap
from collections.abc import Sequence

from hetero_tf.base.metrics import find_metric
from hetero_tf.reports.comparison import compare
from hetero_tf.reports.summaries import Moment, default_metrics, direction, known_metrics
from hetero_tf.reports.table_formats import WORDS, Table, to_single_lines, to_table
from hetero_tf.runs.history import Run, differing_values, shown
from hetero_tf.runs.published import PublishedValue

# Columns in addition to the metric.
COLUMNS = ("rounds", "bytes", "budget_share", "device_seconds", "published")
MOST_VALUES, MOST_KEYS = 6, 12
# Least columns of names; a narrower terminal wraps the lines of a table.
NARROWEST_NAME = 16
# Width of output that is not a terminal, in which no cell may be wrapped.
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
        rows = sorted(compare(runs, [metric], goals, at, published[0]), key=functools.partial(_rank, metric))
        lines = _table(task, metric, rows, published[1], width)
        lines += _moments_table(metric, at, rows, width) if at else []
        lines += itertools.chain.from_iterable(_reach_table(metric, goal, rows, width) for goal in goals)
        parts.append("\n".join(lines + _differences(runs, width)))
    return "\n\n".join(parts)


def _rank(metric, row):
    """Return a key that sorts the best row first."""
    best = row[f"{metric} best"]["mean"]
    return (best is None, 0 if best is None else -direction(metric) * best)


def _table(task, metric, rows, requested, width):
    """Return the title and the lines of one table."""
    known = find_metric(metric)

    def is_shown(key):
        is_seeds = key == "seeds" and any(len(row["seeds"]) > 1 for row in rows)
        return is_seeds or key in COLUMNS or key in (f"{metric} last", f"{metric} best")

    table = to_table(rows, [value for value in requested if value.metric == metric], is_shown)
    heads = [head.removeprefix(f"{metric} ") for head in table.heads]
    unit = f" in {known.unit}" if known and known.unit else ""
    title = f"{task}: {metric}{unit}, {'higher' if direction(metric) > 0 else 'lower'} is better"
    return [*_wrap([title], width), *_align(Table(heads, table.rows, []), width), *_wrap(table.notes, width)]


def _moments_table(metric, at, rows, width):
    """Return the title and the lines of a table of the metric at rounds and device times."""
    table = to_table(rows, [], lambda key: key.startswith(f"{metric} at "))
    heads = ["run", *(moment.text for moment in at)]
    return [*_wrap(["at a round or device time:"], width), *_align(Table(heads, table.rows, []), width)]


def _reach_table(metric, goal, rows, width):
    """Return the title and the lines of a table of the costs to reach a value of the metric, fastest first."""
    prefix, known = f"{metric} reach {goal:g} ", find_metric(metric)
    order = "device_seconds" if f"{prefix}device_seconds" in rows[0] else "round"

    def rank(row):
        value = row[f"{prefix}{order}"]
        return (len(row["seeds"]) - value["of"], value["mean"] or 0)

    table = to_table(sorted(rows, key=rank), [], lambda key: key.startswith(prefix))
    heads = [head.removeprefix(f"{metric} to {goal:g}: ") for head in table.heads]
    unit = f" {known.unit}" if known and known.unit else ""
    return [*_wrap([f"to reach {goal:g}{unit}:"], width), *_align(Table(heads, table.rows, []), width)]


def _align(table, width):
    """Return the lines of a table; if it is too wide, the first column is folded."""
    from rich.console import Console
    from rich.table import Table as Grid
    from rich.text import Text

    grid = Grid(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    for head, *cells in zip(table.heads, *table.rows):
        is_text = head in WORDS
        longest = None if is_text else max(map(len, (head, *cells)))
        grid.add_column(
            Text(head), justify="left" if is_text else "right", overflow="fold", no_wrap=not is_text, min_width=longest
        )
    for row in table.rows:
        grid.add_row(*map(Text, row))
    output = io.StringIO()
    least = NARROWEST_NAME + sum(2 + (column.min_width or 0) for column in grid.columns)
    Console(file=output, width=max(width or UNLIMITED, least), color_system=None).print(grid)
    return [line.rstrip() for line in output.getvalue().splitlines()]


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
    return _wrap(["the recipes differ in", *to_single_lines(Table([], [], lines)).notes], width) if lines else []


def _wrap(lines, width):
    """Return lines that fit into `width` columns."""
    return [part for line in lines for part in textwrap.wrap(line, width or UNLIMITED, subsequent_indent="    ")]
