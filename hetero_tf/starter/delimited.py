"""Detects the delimiter and the header of a CSV file from its first lines."""

from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from hetero_tf.base.errors import InputError
from hetero_tf.base.files import open_file
from hetero_tf.data.columns import is_number
from hetero_tf.data.csv import DELIMITERS, LONGEST_LINE, TAB_ENDINGS, iterate_rows, read_declared_delimiter
from hetero_tf.data.text_lines import TextLines
from hetero_tf.starter.choices import Choice

SAMPLE_ROWS = 100


@dataclass(frozen=True)
class CsvLayout:
    """The format of a file of separated values.

    Attributes:
        delimiter: Name of the delimiter, see `csv.DELIMITERS`.
        has_header: Whether the first line has the names of the columns.
    """

    delimiter: str
    has_header: bool

    @property
    def options(self) -> dict[str, Choice]:
        """Options of `data: csv` that differ from their defaults."""
        options = {}
        if self.delimiter != "comma":
            options["delimiter"] = Choice(self.delimiter)
        if not self.has_header:
            reason = "the first line has numbers in the same columns as the second one"
            options["header"] = Choice(False, reason, True)
        return options


def detect_layout(path: Path) -> CsvLayout:
    """Detect the delimiter with which the first lines have the most values, the same number in each line."""
    widths, rows_by_name = {}, {}
    for name, sign in DELIMITERS.items():
        rows = rows_by_name[name] = _read_sample(path, sign)
        lengths = {len(row) for row in rows}
        widths[name] = lengths.pop() if len(lengths) == 1 else 1
    # Spaces are also part of names and sentences.
    names = [name for name in DELIMITERS if name != "space"]
    best = max(names, key=widths.__getitem__)
    if path.suffix.lower() in TAB_ENDINGS and widths["tab"] > 1:
        best = "tab"
    elif widths[best] == 1 and widths["space"] > 1:
        best = "space"
    return CsvLayout(best, _has_header(rows_by_name[best]))


def _read_sample(path, sign):
    """Return the first rows of a file; rows that are not valid CSV are skipped."""
    with open_file(path) as file:
        lines = TextLines(file, LONGEST_LINE)
        read_declared_delimiter(lines)
        rows = [row for _, row in islice(iterate_rows(lines, sign), SAMPLE_ROWS)]
    return [row for row in rows if not isinstance(row, InputError)]


def _has_header(rows):
    """Return False if the first row has numbers, in the same columns as the second row."""
    if len(rows) < 2:
        return True
    first, second = ([is_number(value.strip()) for value in row] for row in rows[:2])
    return not any(first) or first != second
