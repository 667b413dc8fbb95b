"""How all figures look: colours that the colour-blind tell apart, legends below the axes, and the files they become."""

import contextlib
import io
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hetero_tf.base.console import printable
from hetero_tf.base.errors import InputError, require
from hetero_tf.base.files import write_atomic

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Okabe and Ito 2008, without the yellow that is too pale for lines; dashes and markers tell them apart in grey.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
DASHES = ("solid", (0, (5, 1.5)), (0, (1, 1.2)), (0, (6, 1.5, 1, 1.5)))
MARKERS = ("o", "s", "^", "D", "v", "P")
WIDTH = 5.0
SUFFIXES = (".png", ".svg", ".pdf")
# Inches: of a line of the legend, of a character in it, and of what stands before a label.
_LINE, _CHARACTER, _HANDLE = 0.17, 0.062, 0.7
_SETTINGS: dict[Any, Any] = {
    "axes.axisbelow": True,
    "axes.edgecolor": "#555555",
    "axes.grid": True,
    "axes.labelsize": 9,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlesize": 9,
    "figure.constrained_layout.use": True,
    "figure.dpi": 100,
    "figure.facecolor": "white",
    "font.size": 9,
    "grid.color": "#e3e3e3",
    "grid.linewidth": 0.6,
    "legend.fontsize": 8,
    "legend.frameon": False,
    "legend.handlelength": 3.2,
    "legend.title_fontsize": 8,
    "lines.linewidth": 1.5,
    "lines.markersize": 4,
    "savefig.dpi": 200,
    "svg.hashsalt": "hetero_tf",
    "svg.fonttype": "path",
    # A dollar in somebody's name is no formula.
    "text.parse_math": False,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
}


@contextlib.contextmanager
def in_use(what: str) -> Iterator[None]:
    """Figures that are made and saved in the block have this style.

    Args:
        what: Needs matplotlib, for the sentence, such as "plot".

    Raises:
        InputError: matplotlib is not installed.
    """
    require(what, ["matplotlib"], "plot")
    import matplotlib

    with matplotlib.rc_context(_SETTINGS):
        yield


def line(place: int) -> dict[str, Any]:
    """Colour, dashes and marker of the line at a place."""
    return {
        "color": COLOURS[place % len(COLOURS)],
        "linestyle": DASHES[place % len(DASHES)],
        "marker": MARKERS[place % len(MARKERS)],
    }


def figure(height: float, labels: Sequence[str] = (), title: str = "", width: float = WIDTH) -> "Figure":
    """An empty figure with room for a legend of these labels, which `legend` draws.

    Args:
        height: Of what stands above the legend; inches, as `width`.
        labels: Of the legend.
        title: Of the legend.
        width: Of all.
    """
    from matplotlib.figure import Figure

    rows = -(-len(labels) // columns(labels, width)) + bool(title) if labels else bool(title)
    return Figure(figsize=(width, height + _LINE * rows))


def columns(labels: Sequence[str], width: float = WIDTH) -> int:
    """How many labels stand side by side, so that the rows are about equally long."""
    longest = max((len(text(label)) for label in labels), default=1)
    most = max(1, int(width / (_HANDLE + _CHARACTER * longest)))
    rows = max(1, -(-len(labels) // most))
    return max(1, -(-len(labels) // rows))


def legend(drawn: "Figure", handles: Sequence[Any], labels: Sequence[str], title: str = "") -> None:
    """Draws the legend below the axes, so that it covers nothing."""
    if labels:
        texts, side = [text(label) for label in labels], columns(labels, drawn.get_figwidth())
        drawn.legend(handles, texts, title=title or None, loc="outside lower center", ncols=side)
    elif title:
        drawn.supxlabel(title, fontsize=8, color="#555555")


def text(name: str, most: int = 64) -> str:
    """A name as a figure can show it: on one line, without control characters, cut where it is too long."""
    clean = printable(name).replace("\n", "\\n")
    return clean if len(clean) <= most else f"{clean[: most - 3]}..."


def check_file(path: Path) -> None:
    """Refuses a file whose ending is none of a picture."""
    if path.suffix not in SUFFIXES:
        raise InputError(f"--out must end in {', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]}. Received: --out={path}")


def save(drawn: "Figure", path: Path) -> None:
    """Writes a figure in the format of its ending, whole or not at all.

    Raises:
        InputError: The ending is none of a picture, or something else than a file has that name.
        DiskProblem: The system refused.
    """
    check_file(path)
    write_atomic(path, content(drawn, path.suffix.removeprefix(".")))


def content(drawn: "Figure", kind: str) -> bytes:
    """The bytes of a figure as "png", "svg" or "pdf"; equal figures have equal bytes."""
    about: dict[str, Any] = {"png": {"Software": None}, "svg": {"Date": None}, "pdf": {"CreationDate": None}}[kind]
    file = io.BytesIO()
    drawn.savefig(file, format=kind, metadata=about)
    return file.getvalue()


def inline(drawn: "Figure", title: str, name: str) -> str:
    """A figure as an element of a page: SVG without a file's head, of any width.

    Args:
        drawn: The figure.
        title: What is read out in its place.
        name: Stands before the names of its parts, which are unique on a page.
    """
    found = re.search(r"<svg .*</svg>", content(drawn, "svg").decode(), re.DOTALL)
    assert found is not None
    body = re.sub(r"<metadata>.*?</metadata>", "", found.group(), count=1, flags=re.DOTALL)
    body = re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{name}-", body)
    head, rest = body.split(">", 1)
    head = re.sub(r'\s(width|height)="[^"]*"', "", head)
    return f'{head} role="img" aria-label="{_attribute(title)}">{rest}'


def _attribute(title):
    return text(title).replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;")
