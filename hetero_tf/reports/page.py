"""Makes one page of everything that runs left: it holds its figures and asks no other place for anything."""

import html
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING

from hetero_tf.base import files
from hetero_tf.base.console import printable
from hetero_tf.base.errors import InputError
from hetero_tf.reports import style, table_formats
from hetero_tf.reports.comparison import compare
from hetero_tf.reports.published import Value
from hetero_tf.reports.sections import Picture, Section, all_sections
from hetero_tf.runs.history import Run
from hetero_tf.version import __version__

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TEMPLATE = Path(__file__).with_name("report.html")
KINDS = ("svg", "png")


@dataclass(frozen=True)
class Report:
    """A page and the figures in it.

    Attributes:
        text: The page.
        pictures: `{name: Figure}`.
    """

    text: str
    pictures: "dict[str, Figure]"


def make(
    groups: dict[str, list[Run]], sentences: Sequence[str], published: Sequence[Value], asked: Sequence[Value]
) -> Report:
    """Makes the page of some runs; `style.in_use` must be in force.

    Args:
        groups: `{name: [Run]}`, see `runs.grouped`.
        sentences: What was left out or is not finished.
        published: Values of papers, to stand beside the runs of their recipe.
        asked: Values of papers that get rows of their own.
    """
    rows = compare(groups, published=published)
    sections = all_sections(groups, rows, asked)
    runs = [run for group in groups.values() for run in group]
    names = list(dict.fromkeys(run.name for run in runs))
    title = ", ".join(names) if len(names) <= 3 else f"{names[0]}, {names[1]} and {len(names) - 2} more"
    finished = sum(run.done >= run.rounds for run in runs)
    lead = (
        f"{_counted(len(runs), 'run')} of {_counted(len(groups), 'recipe')}, {finished} finished. Written "
        f"{time.strftime('%Y-%m-%d %H:%M')} by hetero_tf {__version__} from what the runs left in their folders."
    )
    text = Template(TEMPLATE.read_text(encoding="utf-8")).substitute(
        title=_text(title),
        lead=_text(lead),
        warnings="\n".join(f'<p class="note warning">{_text(sentence)}</p>' for sentence in sentences),
        links="\n".join(f'<a href="#{one.name}">{_text(one.title)}</a>' for one in sections),
        sections="\n".join(map(_section, sections)),
    )
    return Report(text, {picture.name: picture.figure for one in sections for picture in one.pictures})


def write(report: Report, path: Path) -> Path:
    """Writes the page, and its figures into a folder beside it; each file whole or not at all. Returns the folder.

    Raises:
        InputError: The path does not end in .html, or something else than a file has that name.
        DiskProblem: The system refused.
    """
    check_path(path)
    folder = path.with_name(f"{path.stem}_figures")
    files.check_place(folder, folder=True)
    files.write_atomic(path, report.text.encode())
    with files.disk(folder, "make the folder"):
        folder.mkdir(exist_ok=True)
    for name, drawn in report.pictures.items():
        for kind in KINDS:
            files.write_atomic(folder / f"{name}.{kind}", style.content(drawn, kind))
    return folder


def check_path(path: Path) -> None:
    """Refuses a page that no browser would take for one."""
    if path.suffix != ".html":
        raise InputError(f"--out must end in .html. Received: --out={path}")


def _section(section: Section) -> str:
    parts = [f'<section id="{section.name}">', f"<h2>{_text(section.title)}</h2>"]
    parts += [f"<p>{_text(section.about)}</p>"] if section.about else []
    parts += [_facts(section.facts)] if section.facts else []
    parts += [table_formats.in_html(table) for table in section.tables]
    if section.pictures:
        parts += ['<div class="figures">', *map(_figure, section.pictures), "</div>"]
    return "\n".join([*parts, "</section>"])


def _figure(picture: Picture) -> str:
    drawn = style.inline(picture.figure, picture.title, picture.name)
    return f"<figure>{drawn}<figcaption><b>{_text(picture.title)}.</b> {_text(picture.caption)}</figcaption></figure>"


def _facts(facts: dict[str, str]) -> str:
    return "<dl>" + "".join(f"<dt>{_text(name)}</dt><dd>{_text(value)}</dd>" for name, value in facts.items()) + "</dl>"


def _counted(count, what):
    return f"{count} {what}{'s' * (count != 1)}"


def _text(text):
    """A text of a stranger as HTML shows it."""
    return html.escape(printable(text).replace("\n", "\\n"))
