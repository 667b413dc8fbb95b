"""Builds one self-contained HTML page about runs, with embedded figures and no external requests."""

import base64
import contextlib
import hashlib
import itertools
import math
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING

from hetero_tf.base import files
from hetero_tf.base.errors import InputError
from hetero_tf.base.escaping import escape_html
from hetero_tf.base.version import __version__
from hetero_tf.reports import style, table_formats
from hetero_tf.reports.comparison import compare
from hetero_tf.reports.sections import Picture, Section, all_sections
from hetero_tf.reports.summaries import direction
from hetero_tf.runs.history import Run
from hetero_tf.runs.published import PublishedValue

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TEMPLATE = Path(__file__).with_name("report.html")
KINDS = ("svg", "png")


@dataclass(frozen=True)
class Report:
    """A page and its figures.

    Attributes:
        text: HTML of the page.
        pictures: `{name: Figure}`.
    """

    text: str
    pictures: "dict[str, Figure]"


def make_report(
    groups: dict[str, list[Run]],
    warnings: Sequence[str],
    published: Sequence[PublishedValue],
    requested: Sequence[PublishedValue],
) -> Report:
    """Build the page of some runs, inside a `style.figure_style` block.

    Args:
        groups: `{name: [Run]}`, see `runs.grouped`.
        warnings: Messages about omitted or unfinished runs.
        published: Values of papers, shown next to runs of their recipe.
        requested: Values of papers that get separate rows.
    """
    rows = _best_first(compare(groups, published=published))
    sections = all_sections(groups, rows, requested)
    runs = [run for group in groups.values() for run in group]
    names = list(dict.fromkeys(run.name for run in runs))
    title = ", ".join(names) if len(names) <= 3 else f"{names[0]}, {names[1]} and {len(names) - 2} more"
    finished = sum(run.is_finished for run in runs)
    lead = (
        f"{_format_count(len(runs), 'run')} of {_format_count(len(groups), 'recipe')}, {finished} finished. Generated "
        f"{time.strftime('%Y-%m-%d %H:%M')} by hetero_tf {__version__} from the run folders."
    )
    template = TEMPLATE.read_text(encoding="utf-8")
    text = Template(template).substitute(
        script_digest=_script_digest(template),
        title=escape_html(title),
        lead=escape_html(lead),
        warnings="\n".join(f'<p class="note warning">{escape_html(sentence)}</p>' for sentence in warnings),
        links="\n".join(f'<a href="#{section.name}">{escape_html(section.title)}</a>' for section in sections),
        sections="\n".join(map(_section, sections)),
    )
    return Report(text, {picture.name: picture.figure for section in sections for picture in section.pictures})


def _best_first(rows):
    """Sort the rows by the last value of their first metric; rows without it are last."""
    key = next((name for name in rows[0] if name.endswith(" last")), None)
    if key is None:
        return rows
    sign = direction(key.removesuffix(" last"))
    # Python's sort is stable, so equal rows keep the order of the folders.
    return sorted(rows, key=lambda row: math.inf if row[key]["mean"] is None else -sign * row[key]["mean"])


def _script_digest(template):
    """Return the digest by which the page's policy allows its script and no other one."""
    (script,) = re.findall("<script>(.*?)</script>", template, re.DOTALL)
    return f"sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}"


def write_report(report: Report, path: Path) -> Path:
    """Write the page and its figures, each atomically; return the folder of the figures.

    Raises:
        InputError: The path does not end in .html, or is not a regular file.
        DiskProblem: The system refused.
    """
    check_path(path)
    folder = path.with_name(f"{path.stem}_figures")
    files.check_write_target(folder, folder=True)
    files.write_atomic(path, report.text.encode())
    with files.disk_errors(folder, "create the folder"):
        folder.mkdir(exist_ok=True)
    for name, drawn in report.pictures.items():
        for kind in KINDS:
            files.write_atomic(folder / f"{name}.{kind}", style.encode_figure(drawn, kind))
    return folder


def check_path(path: Path) -> None:
    """Refuse a path that does not end in .html."""
    if path.suffix != ".html":
        raise InputError(f"--out must end in .html. Received: --out={path}")


def _section(section: Section) -> str:
    parts = [f'<section id="{section.name}">', f"<h2>{escape_html(section.title)}</h2>"]
    parts += [f"<p>{escape_html(section.about)}</p>"] if section.about else []
    if section.facts:
        facts = (f"<dt>{escape_html(name)}</dt><dd>{escape_html(value)}</dd>" for name, value in section.facts.items())
        parts.append(f"<dl>{''.join(facts)}</dl>")
    parts += [table_formats.in_html(table) for table in section.tables]
    if section.legend:
        parts.append(f"<ul class=legend>{''.join(map(_legend_entry, section.legend, itertools.count()))}</ul>")
    if section.pictures:
        parts += ['<div class="figures">', *map(_figure, section.pictures), "</div>"]
    return "\n".join([*parts, "</section>"])


def _legend_entry(name: str, index: int) -> str:
    return f"<li>{style.line_svg(index)}{escape_html(name)}</li>"


def _figure(picture: Picture) -> str:
    with style.hidden_legend(picture.figure) if picture.has_page_legend else contextlib.nullcontext():
        drawn = style.inline_svg(picture.figure, picture.title, picture.name)
    title, caption = escape_html(picture.title), escape_html(picture.caption)
    return f"<figure>{drawn}<figcaption><b>{title}.</b> {caption}</figcaption></figure>"


def _format_count(count, noun):
    return f"{count} {noun}{'s' * (count != 1)}"
