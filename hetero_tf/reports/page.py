"""Builds one self-contained HTML page about runs, with embedded figures and no external requests."""

import base64
import hashlib
import math
import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from hetero_tf.base import files
from hetero_tf.base.errors import InputError, require_modules
from hetero_tf.base.escaping import escape_line
from hetero_tf.base.version import __version__
from hetero_tf.reports import style
from hetero_tf.reports.comparison import compare
from hetero_tf.reports.sections import Section, all_sections
from hetero_tf.reports.summaries import direction
from hetero_tf.runs.history import Run
from hetero_tf.runs.published import PublishedValue

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TEMPLATE = Path(__file__).with_name("report.html")
KINDS = ("svg", "png")


def make_report(
    groups: dict[str, list[Run]],
    warnings: Sequence[str],
    published: Sequence[PublishedValue],
    requested: Sequence[PublishedValue],
) -> "tuple[str, dict[str, Figure]]":
    """Return the HTML of a page about runs, and `{name: figure}`, inside a `style.figure_style` block.

    Args:
        groups: `{name: [Run]}`, see `runs.grouped`.
        warnings: Messages about omitted or unfinished runs.
        published: Values of papers, shown next to runs of their recipe.
        requested: Values of papers that get separate rows.
    """
    sections = all_sections(groups, _best_first(compare(groups, published=published)), requested)
    runs = [run for group in groups.values() for run in group]
    names = list(dict.fromkeys(run.name for run in runs))
    lead = (
        f"{_format_count(len(runs), 'run')} of {_format_count(len(groups), 'recipe')}, "
        f"{sum(run.is_finished for run in runs)} finished. Generated {time.strftime('%Y-%m-%d %H:%M')} by hetero_tf "
        f"{__version__} from the run folders."
    )
    title = ", ".join(names) if len(names) <= 3 else f"{names[0]}, {names[1]} and {len(names) - 2} more"
    text = _render(title=title, lead=lead, warnings=warnings, sections=sections)
    return text, {picture.name: picture.figure for section in sections for picture in section.pictures}


def _best_first(rows):
    """Sort the rows by the last value of their first metric; rows without it are last."""
    key = next((name for name in rows[0] if name.endswith(" last")), None)
    if key is None:
        return rows
    sign = direction(key.removesuffix(" last"))
    # Python's sort is stable, so equal rows keep the order of the folders.
    return sorted(rows, key=lambda row: math.inf if row[key]["mean"] is None else -sign * row[key]["mean"])


def _format_count(count, noun):
    return f"{count} {noun}{'s' * (count != 1)}"


def _render(sections: Sequence[Section], **values: object) -> str:
    """Fill the template; every text is escaped, and becomes one line without control characters."""
    require_modules("report", ["jinja2"], "plot")
    from jinja2 import Environment
    from markupsafe import Markup, escape

    environment = Environment(
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: value if isinstance(value, Markup) else escape_line(str(value)),
    )
    # Names may break at underscores, so that numbers determine the width of columns.
    environment.filters["breakable"] = lambda text: escape(escape_line(text)).replace("_", Markup("_<wbr>"))
    template = TEMPLATE.read_text(encoding="utf-8")
    # The page's policy allows this script and no other one.
    (script,) = re.findall("<script>(.*?)</script>", template, re.DOTALL)
    return environment.from_string(template).render(
        values,
        sections=sections,
        script_digest=f"sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}",
        svg=lambda picture: Markup(style.inline_svg(picture.figure, picture.title, picture.name)),
    )


def write_report(text: str, drawn: "dict[str, Figure]", path: Path) -> Path:
    """Write the page and its figures, each atomically; return the folder of the figures.

    Raises:
        InputError: The path does not end in .html, or is not a regular file.
        DiskProblem: The system refused.
    """
    check_path(path)
    folder = path.with_name(f"{path.stem}_figures")
    files.check_write_target(folder, folder=True)
    files.write_atomic(path, text.encode())
    with files.disk_errors(folder, "create the folder"):
        folder.mkdir(exist_ok=True)
    for name, figure in drawn.items():
        for kind in KINDS:
            files.write_atomic(folder / f"{name}.{kind}", style.encode_figure(figure, kind))
    return folder


def check_path(path: Path) -> None:
    """Refuse a path that does not end in .html."""
    if path.suffix != ".html":
        raise InputError(f"--out must end in .html. Received: --out={path}")
