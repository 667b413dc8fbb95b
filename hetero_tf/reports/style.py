"""Style of all figures: colour-blind safe colours, legends below the axes, and output files."""

import contextlib
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hetero_tf.base.errors import InputError, require_modules
from hetero_tf.base.files import write_atomic
from hetero_tf.base.formatting import escape_line

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito 2008, without yellow, which is too pale for lines; dashes and markers distinguish lines in grey.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
DASHES = ("solid", (0, (5, 1.5)), (0, (1, 1.2)), (0, (6, 1.5, 1, 1.5)))
MARKERS = ("o", "s", "^", "D", "v", "P")
WIDTH = 5.0
SUFFIXES = (".png", ".svg", ".pdf")
# Inches: a line of the legend, a character in it, and the handle before a label.
_LINE, _CHARACTER, _HANDLE = 0.17, 0.062, 0.7
_SETTINGS = Path(__file__).with_name("figures.mplstyle")


@dataclass(frozen=True)
class Picture:
    """A figure with the name of its files, title and caption."""

    name: str
    title: str
    caption: str
    figure: "Figure"


@contextlib.contextmanager
def figure_style(feature: str) -> Iterator[None]:
    """Apply the style to figures that are created and saved in the block."""
    require_modules(feature, ["matplotlib"], "plot")
    import matplotlib

    with matplotlib.rc_context(matplotlib.rc_params_from_file(_SETTINGS, use_default_template=False)):
        yield


def line_style(index: int) -> dict[str, Any]:
    """Return colour, dashes and marker of a line by its index."""
    return {
        "color": COLOURS[index % len(COLOURS)],
        "linestyle": DASHES[index % len(DASHES)],
        "marker": MARKERS[index % len(MARKERS)],
    }


def error_bars(
    panel: "Axes",
    xs: Sequence[float],
    spans: Sequence[tuple[float, float, float]],
    look: dict[str, Any],
    size: float | None = None,
) -> Any:
    """Draw a marker with a bar at each x; return the legend handle."""
    ends = [[middle - low for low, middle, _ in spans], [high - middle for _, middle, high in spans]]
    bar_style = {"color": look["color"], "marker": look["marker"], "markersize": size, "ls": "none"}
    return panel.errorbar(xs, [middle for _, middle, _ in spans], ends, **bar_style, capsize=2, elinewidth=1)


def figure(height: float, labels: Sequence[str] = (), title: str = "", width: float = WIDTH) -> "Figure":
    """Return an empty figure, in inches, with room for a legend, which `legend` draws."""
    from matplotlib.figure import Figure

    rows = -(-len(labels) // legend_columns(labels, width)) + bool(title)
    return Figure(figsize=(width, height + _LINE * rows))


def legend_columns(labels: Sequence[str], width: float = WIDTH) -> int:
    """Return the number of legend columns that balances the rows in a figure of a width in inches."""
    longest = max((len(figure_text(label)) for label in labels), default=1)
    most = max(1, int(width / (_HANDLE + _CHARACTER * longest)))
    rows = max(1, -(-len(labels) // most))
    return max(1, -(-len(labels) // rows))


def legend(drawn: "Figure", handles: Sequence[Any], labels: Sequence[str], title: str = "") -> None:
    """Draw the legend below the axes, so that it covers nothing."""
    if labels:
        texts, columns = [figure_text(label) for label in labels], legend_columns(labels, drawn.get_figwidth())
        drawn.legend(handles, texts, title=title or None, loc="outside lower center", ncols=columns)
    elif title:
        drawn.supxlabel(title, fontsize=8, color="#555555")


def stacked_bars(panel: "Axes", parts: Sequence[Sequence[float]], looks: Sequence[dict[str, Any]]) -> list[Any]:
    """Draw rows of horizontal bars that follow each other, without gaps; return a legend handle for each part.

    Args:
        parts: Lengths of each part in all rows; those of the first part, which is not drawn, are the starts.
        looks: Style of each part but the first.
    """
    left, handles = list(parts[0]), []
    for lengths, look in zip(parts[1:], looks):
        handles.append(panel.barh(range(len(left)), lengths, left=left, linewidth=0, **look))
        left = [begin + length for begin, length in zip(left, lengths)]
    return handles


def label_rows(panel: "Axes", texts: Sequence[str], size: float) -> None:
    """Label rows from top to bottom."""
    panel.set_yticks(range(len(texts)), texts, fontsize=size)
    panel.set_ylim(len(texts) - 0.4, -0.6)
    panel.grid(False, axis="y")
    panel.tick_params(axis="y", length=0)


def figure_text(name: str, limit: int = 64) -> str:
    """Return a name for a figure: one line, escaped control characters, truncated to `limit`."""
    clean = escape_line(name)
    return clean if len(clean) <= limit else f"{clean[: limit - 3]}..."


def check_file(path: Path, *suffixes: str) -> None:
    """Refuse a file without one of the extensions, by default those of picture formats."""
    *others, last = suffixes or SUFFIXES
    if path.suffix not in (*others, last):
        known = " or ".join(filter(None, (", ".join(others), last)))
        raise InputError(f"--out must end in {known}. Received: --out={path}")


def save(drawn: "Figure", path: Path) -> None:
    """Write a figure atomically, in the format of the file extension."""
    check_file(path)
    write_atomic(path, encode_figure(drawn, path.suffix.removeprefix(".")))


def encode_figure(drawn: "Figure", kind: str) -> bytes:
    """Return a figure as "png", "svg" or "pdf"; equal figures give equal bytes."""
    metadata: dict[str, Any] = {"png": {"Software": None}, "svg": {"Date": None}, "pdf": {"CreationDate": None}}[kind]
    file = io.BytesIO()
    drawn.savefig(file, format=kind, metadata=metadata)
    return file.getvalue()
