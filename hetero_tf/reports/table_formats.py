"""Writes the rows of a comparison: Markdown, LaTeX and HTML for people, CSV for spreadsheets, JSON for programs."""

import csv
import html
import io
import json
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hetero_tf.base.console import printable
from hetero_tf.reports.published import Value
from hetero_tf.reports.summaries import OF_LEVELS


@dataclass(frozen=True)
class Column:
    """How a key of the rows is shown: its head, and what its values are divided by."""

    head: str
    unit: float = 1


# Keys, or what stands behind the name of a metric.
COLUMNS = {
    "target_round": Column("rounds to target"),
    "target_bytes": Column("MB to target", 1e6),
    "bytes": Column("MB", 1e6),
    "client_bytes": Column("MB a client and round", 1e6),
    "train_flops": Column("TFLOP", 1e12),
    "client_seconds": Column("s a client and round"),
    "parameters": Column("K parameters", 1e3),
    "paper_flops": Column("MFLOPs", 1e6),
    "ratio": Column("ratio"),
}
# Only programs are told of these.
LEFT_OUT = ("best_round", "multiply_adds")
FIRST = ("run", "levels", "seeds", "rounds")
# Heads of columns of words, which begin at the left; numbers end at the right.
WORDS = ("run", "runs", "level", "levels", "differs in")
_MARKDOWN = re.compile(r"([\\|<>*`\[\]])")
_LATEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "±": r"$\pm$",
    **{char: f"\\{char}" for char in "{}$&#_%"},
}


@dataclass(frozen=True)
class Table:
    """Text for people: heads, rows of as many cells, and notes to them."""

    heads: list[str]
    rows: list[list[str]]
    notes: list[str]


def to_table(rows: Sequence[dict], asked: Sequence[Value], shown: Callable[[str], bool]) -> Table:
    """The rows of `comparison.compare` as text.

    Args:
        rows: At least one.
        asked: Published values that get rows of their own.
        shown: Which of their keys are columns.
    """
    keys = [key for key in rows[0] if _is_column(key, rows) and shown(key)]
    sources: dict[str, int] = {}
    told = any(row["published"] for row in rows) and shown("published")
    first = [name for name in FIRST if name == "run" or shown(name)]
    heads = [*first, *map(_head, keys), *(["published"] if told else [])]
    lines = []
    for row in rows:
        about = _about(row)
        cells = [about[name] for name in first] + [_cell(key, row[key], len(row["seeds"])) for key in keys]
        lines.append(cells + ([_published(row["published"], sources)] if told else []))
    for name in dict.fromkeys(value.name for value in asked):
        values = [value for value in asked if value.name == name]
        lines.append(_row_of(name, values, len(first) - 1, keys, told, sources))
    return cleaned(Table(heads, lines, [f"[{number}] {text}" for text, number in sources.items()]))


def cleaned(table: Table) -> Table:
    """A table whose cells and notes have one line each and no control characters."""
    rows = [[_one_line(cell) for cell in line] for line in table.rows]
    return Table([_one_line(head) for head in table.heads], rows, [_one_line(note) for note in table.notes])


def _about(row):
    """The first cells of a row, by their heads."""
    done = str(row["rounds"]) if row["done"] >= row["rounds"] else f"{row['done']} of {row['rounds']}"
    return {"run": row["name"], "levels": row["levels"], "seeds": str(len(row["seeds"])), "rounds": done}


def every(key: str) -> bool:
    """All columns."""
    return True


def is_cost(key: str) -> bool:
    """The columns of what a run cost."""
    return key in COLUMNS


def is_of_level(key: str) -> bool:
    """The columns of what the models of single levels reached."""
    return key.startswith(OF_LEVELS)


def _is_column(key, rows):
    value = rows[0][key]
    if key in LEFT_OUT:
        return False
    if key in COLUMNS and not isinstance(value, dict):
        return any(row[key] is not None for row in rows)
    return isinstance(value, dict) and key.rpartition(" ")[2] not in LEFT_OUT


def _column(key):
    return COLUMNS.get(key.rpartition(" ")[2], Column(key.rpartition(" ")[2]))


def _head(key):
    return f"{key.rpartition(' ')[0]} {_column(key).head}".strip()


def _cell(key, value, seeds):
    unit = _column(key).unit
    if not isinstance(value, dict):
        return "-" if value is None else f"{value / unit:,.4g}"
    if value["mean"] is None:
        return "-"
    text = _with_spread(value["mean"] / unit, None if value["spread"] is None else value["spread"] / unit)
    return text if value["of"] == seeds else f"{text} ({value['of']} of {seeds})"


def _with_spread(mean, spread):
    """Four digits of a mean, fewer where the spread has two of its own before them; both end at the same decimal."""
    if not mean or not spread:
        return f"{mean:,.4g}" + ("" if spread is None else f" ± {spread:.2g}")
    decimals = max(0, min(3 - math.floor(math.log10(abs(mean))), 1 - math.floor(math.log10(spread))))
    return f"{mean:,.{decimals}f} ± {spread:,.{decimals}f}"


def _published(values, sources):
    """The values of papers beside a row, each with the number of its note."""
    several = len({value["metric"] for value in values}) > 1
    told = []
    for value in values:
        number = sources.setdefault(f"{value['source']}: {value['setting']}", len(sources) + 1)
        told.append(f"{value['value']:g}{' ' + value['metric'] if several else ''} [{number}]")
    return ", ".join(told) or "-"


def _row_of(name, values, blank, keys, told, sources):
    """A row of nothing but a paper's values."""
    number = sources.setdefault(f"{values[0].source}: {values[0].setting}", len(sources) + 1)
    cells = {f"{value.metric} last": f"{value.value:g}" for value in values}
    return [f"{name} [{number}]", *["-"] * blank, *(cells.get(key, "-") for key in keys), *(["-"] if told else [])]


def _one_line(text):
    """What a table may hold of a name that comes from somebody else."""
    return printable(text).replace("\n", "\\n")


def markdown(table: Table) -> str:
    """A table of GitHub's Markdown, numbers to the right."""
    rule = ["---" if head in WORDS else "---:" for head in table.heads]
    lines = [[_in_markdown(cell) for cell in line] for line in (table.heads, *table.rows)]
    text = "\n".join("| " + " | ".join(line) + " |" for line in (lines[0], rule, *lines[1:]))
    return "\n".join([text, *([""] + [f"{_in_markdown(note)}  " for note in table.notes] if table.notes else [])])


def _in_markdown(text):
    return _MARKDOWN.sub(r"\\\1", text)


def latex(table: Table) -> str:
    """A `tabular` with the rules of the package booktabs; notes are comments behind it."""
    lines = [" & ".join(map(in_latex, line)) + r" \\" for line in (table.heads, *table.rows)]
    columns = "".join("l" if head in WORDS else "r" for head in table.heads)
    rules = rf"\begin{{tabular}}{{{columns}}}", r"\toprule", r"\midrule"
    body = [*rules[:2], lines[0], rules[2], *lines[1:], r"\bottomrule", r"\end{tabular}"]
    return "\n".join([*body, *(f"% {note}" for note in table.notes)])


def in_latex(text: str) -> str:
    """A text whose special characters LaTeX prints as they are."""
    return "".join(_LATEX.get(char, char) for char in text)


def in_html(table: Table) -> str:
    """A table of HTML and its notes."""
    # Names may break at their underscores, so that columns are as wide as their numbers.
    heads, *lines = ([html.escape(cell).replace("_", "_<wbr>") for cell in line] for line in (table.heads, *table.rows))
    looks = [' class="words"' if head in WORDS else "" for head in table.heads]
    head = "".join(f'<th scope="col"{look}>{cell}</th>' for look, cell in zip(looks, heads))
    rows = "".join(f"<tr>{''.join(f'<td{look}>{cell}</td>' for look, cell in zip(looks, line))}</tr>" for line in lines)
    notes = "".join(f"<p class=note>{html.escape(note)}</p>" for note in table.notes)
    return f"<div class=scroll><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>{notes}"


def to_csv(rows: Sequence[dict]) -> str:
    """Numbers as they were computed: "KEY" is a mean, "KEY spread" its standard deviation, "KEY runs" of how many."""
    lines = [_flat(row) for row in rows]
    file = io.StringIO()
    writer = csv.DictWriter(file, list(dict.fromkeys(key for line in lines for key in line)), lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    return file.getvalue().rstrip("\n")


def _flat(row):
    flat = {}
    for key, value in row.items():
        if isinstance(value, dict):
            flat |= {key: value["mean"], f"{key} spread": value["spread"], f"{key} runs": value["of"]}
        elif isinstance(value, list):
            flat[key] = "; ".join(map(_listed, value))
        else:
            flat[key] = _one_line(value) if isinstance(value, str) else value
    return flat


def _listed(one):
    """A seed, or a published value."""
    return f"{one['metric']} {one['value']:g}" if isinstance(one, dict) else str(one)


def to_json(rows: Sequence[dict]) -> str:
    """The rows as one JSON list."""
    return json.dumps(rows, indent=1, allow_nan=False)


FORMATS: dict[str, Callable[[Sequence[dict], Sequence[Value]], str]] = {
    "markdown": lambda rows, asked: markdown(to_table(rows, asked, every)),
    "csv": lambda rows, asked: to_csv(rows),
    "latex": lambda rows, asked: latex(to_table(rows, asked, every)),
    "json": lambda rows, asked: to_json(rows),
}
