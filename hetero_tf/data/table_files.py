"""Read files with a table: text with any delimiter, JSON, Excel, Parquet and Arrow, compressed or not."""

import bz2
import csv
import gzip
import io
import itertools
import json
import lzma
import re
import warnings
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hetero_tf.base.errors import InputError, shorten_repr
from hetero_tf.base.files import open_file
from hetero_tf.data.arrow_files import ENDINGS as ARROW
from hetero_tf.data.arrow_files import ColumnNames, read_arrow, read_splits
from hetero_tf.data.columns import RawTable, TextColumn, is_number, normalize
from hetero_tf.data.data_files import find, find_files

# Characters of the longest cell, of which csv allows fewer.
LONGEST_CELL = 2**30
DELIMITERS = {"comma": ",", "semicolon": ";", "tab": "\t", "pipe": "|", "space": " "}
# Endings of files with tabs, of all tables as text, of JSON, and of Excel.
TAB_ENDINGS = (".tsv", ".tab")
TABLE_ENDINGS = (".csv", *TAB_ENDINGS)
JSON_LINES = (".jsonl", ".json", ".ndjson")
EXCEL = (".xlsx", ".xlsm", ".xls")
# Characters, lines and rows from which the delimiter and the header are detected, and the rows that must agree.
SAMPLE_CHARACTERS, SAMPLE_LINES, SAMPLE_ROWS, AGREEING = 2**17, 1000, 100, 0.9
_MARKS = {b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16"}
# Start of the names that pandas gives to columns without one.
NAMELESS = "Unnamed: "
# A cell of a blank row, or of the lines around the names in tables of Markdown and of databases.
_BLANK = re.compile(r"\s*([:+-]*--[:+-]*)?\s*")


@dataclass(frozen=True)
class Rows:
    """The rows of a file as texts.

    Attributes:
        path: The file.
        sign: Text between the path and the number of a row in messages.
        numbers: Line or number of each row.
        cells: The texts of each row; the first row may have the names of the columns.
    """

    path: Path
    sign: str
    numbers: list[int]
    cells: list[list[str]]

    @property
    def have_names(self) -> bool:
        """False if the first row has numbers, but years, in the columns of the second row, or texts of later rows."""
        rows = [[cell.strip() for cell in row] for row in self.cells[:SAMPLE_ROWS]]
        if len(rows) < 2:
            return True
        first, second = ([is_number(cell) for cell in row] for row in rows[:2])
        repeated = [text for text, *later in zip(*rows) if text and text in later]
        repeats = 2 * len(repeated) > len(rows[0]) or max(map(len, repeated), default=0) > 1
        years = [int(cell) for cell in rows[0] if re.fullmatch(r"(19|20)\d\d", cell)]
        are_years = sum(first) == len(years) > 1 and years == [*range(years[0], years[-1] + 1)]
        return not repeats and (not any(first) or first != second or are_years)

    def without_title(self) -> "Rows":
        """Return the rows without those with one value above rows with several, which are named in a warning."""
        widths = [sum(map(bool, map(str.strip, row))) for row in self.cells[:SAMPLE_ROWS]]
        count = next((index for index, width in enumerate(widths) if width > 1), 0)
        # Lines above the names may have several values, and fewer than the table.
        lengths = [*map(len, self.cells[:SAMPLE_ROWS]), 0]
        first = lengths.index(Counter(lengths).most_common(1)[0][0])
        if first and max(lengths[:first]) < widths[first] and not any(map(is_number, self.cells[first])):
            count = first
        if not count or max(widths) < 3 or min(widths[count : count + 3]) < 2:
            return self
        return self.without(range(count), "the title above the names of the columns is left out")

    def without(self, left_out: Collection[int], reason: str) -> "Rows":
        """Return the rows without some; a warning has the reason and the first one of them."""
        if not left_out:
            return self
        text = shorten_repr(" ".join(filter(None, self.cells[min(left_out)])), 80)
        warnings.warn(f"{self.path}: {reason}: {text}", stacklevel=3)
        rows = [row for index, row in enumerate(zip(self.numbers, self.cells)) if index not in left_out]
        return Rows(self.path, self.sign, *map(list, zip(*rows)))

    def build_table(self, header: bool) -> RawTable:
        """Return the table of the rows.

        Args:
            header: Whether the first row has the names of the columns; otherwise they are column_0, column_1 and so on.

        Raises:
            InputError: There is no row of data, or a name occurs twice.
        """
        if len(self.cells) <= header or not self.cells[0]:
            raise InputError(f"{self.path}: expected at least one row of data. Received: none")
        names = [f"column_{index}" for index in range(len(self.cells[0]))]
        if header:
            names = [normalize(name) or f"{NAMELESS}{index}" for index, name in enumerate(self.cells[0])]
            name, count = Counter(names).most_common(1)[0]
            if count > 1:
                where = f"{self.path}:{self.numbers[0]}"
                raise InputError(f"{where}: column names must be unique. Received: {name!r} twice; rename one of them")
        rows, numbers = self.cells[int(header) :], self.numbers[int(header) :]
        columns = {name: TextColumn.from_values(row[index] for row in rows) for index, name in enumerate(names)}
        # A column without name and values is that of a delimiter at the end of each row.
        for name in [name for name, each in columns.items() if name.startswith(NAMELESS) and set(each.texts) <= {""}]:
            del columns[name]
        return RawTable(str(self.path), columns, lambda row: f"{self.path}{self.sign}{numbers[row]}")


def _unzip(content):
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        names = [each for each in archive.namelist() if not each.endswith("/") and not each.startswith("__MACOSX")]
        if len(names) != 1:
            raise ValueError(f"it has {len(names)} files; unpack them, and name their folder")
        return archive.read(names[0])


def _unpack_zstd(content):
    import pyarrow as pa

    return pa.CompressedInputStream(pa.BufferReader(content), "zstd").read()


# Endings of compressed files, whose first bytes are also those of files without the ending.
COMPRESSIONS: dict[str, tuple[tuple[bytes, ...], Callable[[bytes], bytes]]] = {
    ".gz": ((b"\x1f\x8b",), gzip.decompress),
    ".bz2": ((b"BZh91A",), bz2.decompress),
    ".xz": ((b"\xfd7zXZ",), lzma.decompress),
    ".zst": ((b"\x28\xb5\x2f\xfd",), _unpack_zstd),
    ".zip": ((), _unzip),
}


def table_ending(path: Path) -> str:
    """Return the lower-case ending of a file without the ending of its compression, such as .csv for a.csv.gz."""
    return Path(path.stem if path.suffix.lower() in COMPRESSIONS else path.name).suffix.lower()


def read_content(path: Path) -> bytes:
    """Return the bytes of a file, unpacked if its ending or content is that of a compression.

    Raises:
        InputError: The file is damaged.
    """
    with open_file(path) as file:
        content = file.read()
    for ending, (signs, unpack) in COMPRESSIONS.items():
        if path.suffix.lower() == ending or content.startswith(signs):
            try:
                return unpack(content)
            except (OSError, EOFError, ValueError, lzma.LZMAError, zlib.error, zipfile.BadZipFile) as error:
                raise InputError(f"{path}: cannot be unpacked, it is damaged or has several files: {error}") from error
    return content


def read_text(path: Path, encoding: str | None = None, content: bytes | None = None) -> str:
    """Return the text of a file.

    Args:
        path: The file, perhaps compressed.
        encoding: Name of its encoding; None: UTF-8, or UTF-16 with a byte order mark.
        content: Its bytes; None: they are read, see `read_content`.

    Raises:
        InputError: The file has another encoding.
    """
    content = read_content(path) if content is None else content
    name = encoding or _MARKS.get(content[:2], "utf-8")
    try:
        text = content.decode(name).removeprefix("\ufeff")
        end = text.index("\0") if "\0" in text else None
    except LookupError:
        raise InputError(f"`encoding` must be the name of an encoding, such as cp1252. Received: {name!r}") from None
    except UnicodeDecodeError as error:
        end = error.start
    if end is None:
        return text
    line = content.count(b"\n", 0, end) + 1
    kind = "UTF-8" if name == "utf-8" else name
    raise InputError(f"{path}:{line}: is not {kind} text; save it as UTF-8, or set `encoding` (cp1252, cp1251, gbk)")


def is_typed(path: Path) -> bool:
    """Return True for a folder or file that Arrow reads, whose columns have types."""
    return path.is_dir() or path.suffix.lower() in ARROW


def read_tables(
    data_dir: Path | None, path: str, test: str | None, names: ColumnNames, label: str | None, **layout: Any
) -> tuple[list[RawTable], tuple[str, ...] | None]:
    """Read the tables of the training rows and, if present, of the test rows.

    Args:
        data_dir: The data folder or None.
        path: The file, or a folder of Arrow or Parquet files.
        test: File or folder of the test rows; None: the test split of a folder, if it has one.
        names: The columns to read of Arrow and Parquet files, see `read_arrow`.
        label: The column of labels, or None.
        layout: Options of `read_table`.

    Returns:
        The tables, with class names as labels where Hugging Face metadata have them, and the class names or None.
    """
    source = find(data_dir, path, "path")
    if is_typed(source):
        return read_splits(source, None if test is None else find(data_dir, test, "test"), names, label)
    return [read_table(file, **layout) for file in find_files(data_dir, path=path, test=test)], None


def read_table(
    path: Path, header: bool = True, delimiter: str | None = None, skip: int = 0, encoding: str | None = None
) -> RawTable:
    """Read the table of a file.

    Args:
        path: A table as text, JSON lines, JSON, or Excel; all but Excel may be compressed. Or Parquet or Arrow.
        header: Whether the first row below a title has the names of the columns; JSON always has names.
        delimiter: Name of the separator of values, see `DELIMITERS`; None: it is detected.
        skip: Lines above the first row.
        encoding: See `read_text`.

    Raises:
        InputError: The file is not a valid table.
    """
    ending = table_ending(path)
    if ending in ARROW:
        table, _ = read_arrow(str(path), [path])
        table.check_types(table.odd_types)
        return table
    rows = read_rows(path, read_content(path), header, delimiter, skip, encoding)
    if ending in JSON_LINES:
        return rows.build_table(True)
    if header and rows.cells and all(map(is_number, rows.cells[0])):
        raise InputError(f"{path}:1: expected column names; if the file has no header, set `header: false`")
    return rows.build_table(header)


def read_rows(path: Path, content: bytes, header=True, delimiter=None, skip=0, encoding=None) -> Rows:
    """Read the rows of a file that has no types, from its unpacked content; see `read_table`."""
    ending = table_ending(path)
    if ending in EXCEL:
        rows = _read_excel(path, content, skip)
        return rows.without_title() if header else rows
    text = read_text(path, encoding, content)
    if ending in JSON_LINES:
        return _read_json(path, text)
    source = _Delimited.find(path, text, delimiter, skip)
    rows = source.add_names(source.parse()) if header else source.parse()
    rows, odd = rows.without_title() if header else rows, set()
    width = len(rows.cells[0]) if rows.cells else 0
    has_names = header and width > 0 and not all(map(is_number, rows.cells[0]))
    for index, (number, row) in enumerate(zip(rows.numbers, rows.cells)):
        if (index and has_names and row == rows.cells[0]) or (row[0].startswith("#") and len(row) != width):
            odd.add(index)
        elif len(row) != width and (len(row) < width or any(map(str.strip, row[width:]))):
            raise InputError(
                f"{path}:{number}: must have {width} values separated by {source.delimiter!r}, like the first line. "
                f"Received: {len(row)}, {shorten_repr(row, 80)}; correct or remove the line"
            )
    return rows.without(odd, f"{len(odd):,} lines of comments or repeated names are left out, such as")


def is_table(path: Path, content: bytes) -> bool:
    """Return whether the first rows of a text have the same number of values, at least two."""
    source = _Delimited.find(path, read_text(path, None, content), None, 0)
    cells = source.parse(is_strict=False, count=SAMPLE_ROWS).without_title().cells
    return len(cells) > 1 and len(set(map(len, cells))) == 1 < len(cells[0])


@dataclass(frozen=True)
class _Delimited:
    """The lines of a text, of which the first row is behind comments, with its delimiter and the sign around texts."""

    path: Path
    lines: list[str]
    first: int
    delimiter: str
    quote: str | None

    @classmethod
    def find(cls, path, text, delimiter, skip):
        lines, first, declared = list(io.StringIO(text, newline="")), 0, None
        while first < len(lines) and declared is None:
            declared = re.fullmatch(r'"?sep=(.)"?\s*', lines[first], re.IGNORECASE)
            if declared is None and not lines[first].startswith("#"):
                break
            first += 1
        sign = DELIMITERS[delimiter] if delimiter else None
        if declared and sign not in (None, declared[1]):
            raise InputError(
                f"{path}:{first}: the line sep={declared[1]} declares another delimiter; leave `delimiter` out"
            )
        first = max(first, skip)
        csv.field_size_limit(LONGEST_CELL)
        sign = sign or (declared[1] if declared else _find_delimiter(path, lines[first : first + SAMPLE_LINES]))
        names = lines[first] if first < len(lines) else ""
        has_apostrophes = re.fullmatch(r"'[^']*'(\s*[,;\t|]\s*'[^']*')+\s*", names)
        return cls(path, lines, first, sign, "'" if has_apostrophes else '"')

    def parse(self, is_strict=True, count=None):
        """Return the rows that are not blank."""
        lines = itertools.islice(self.lines, self.first, None)
        rows = csv.reader(
            (line.rstrip() + "\n" for line in lines) if self.delimiter == " " else lines,
            delimiter=self.delimiter,
            quotechar=self.quote,
            quoting=csv.QUOTE_MINIMAL if self.quote else csv.QUOTE_NONE,
            skipinitialspace=True,
            strict=is_strict,
        )
        parsed = Rows(self.path, ":", [], [])
        try:
            for row in rows:
                if not all(map(_BLANK.fullmatch, row)):
                    parsed.numbers.append(self.first + rows.line_num)
                    parsed.cells.append(row)
                    if len(parsed.cells) == count:
                        break
        except csv.Error as error:
            # Texts with tabs between them often have single quotes.
            if self.delimiter == "\t" and self.quote:
                return replace(self, quote=None).parse(is_strict, count)
            where = f"{self.path}:{self.first + rows.line_num}"
            raise InputError(f"{where}: cannot be parsed as CSV: {error}; write a quote within quotes twice") from None
        return parsed

    def add_names(self, rows):
        """Return the rows, below the names of the columns if these are in the last comment."""
        comment = self.lines[self.first - 1] if self.first else ""
        if not comment.startswith("#") or rows.have_names:
            return rows
        (names,) = csv.reader([comment.lstrip("# ")], delimiter=self.delimiter, skipinitialspace=True)
        if len(names) != len(rows.cells[0]) or len(names) < 2 or any(map(is_number, names)):
            return rows
        return Rows(self.path, ":", [self.first, *rows.numbers], [names, *rows.cells])


def _find_delimiter(path, lines):
    """Return the delimiter with which the first rows have the most values, the same number in most rows."""
    text, scores = "".join(lines), {}
    if len(text) > SAMPLE_CHARACTERS:
        text = text[: text.rfind("\n", 0, SAMPLE_CHARACTERS) + 1] or text[:SAMPLE_CHARACTERS]
    lines = [line.rstrip(" \r\n") + "\n" for line in io.StringIO(text, newline="")]
    for sign in DELIMITERS.values():
        rows = csv.reader(lines, delimiter=sign, skipinitialspace=True)
        # A sign at the end of each row separates no values.
        lengths = (len(row) for row in rows if any(row) and (len(row) != 2 or row[1].strip()))
        widths = Counter(itertools.islice(lengths, SAMPLE_ROWS))
        width, count = max(widths.items(), key=lambda each: each[1], default=(1, 0))
        share = count / max(widths.total(), 1)
        scores[sign] = (share, width) if width > 1 and share >= AGREEING else (0.0, 1)
    if table_ending(path) in TAB_ENDINGS and scores["\t"][1] > 1:
        return "\t"
    # Commas are also part of numbers, and spaces of names and sentences.
    order = "\t;|,"
    best = next((sign for sign in order if scores[sign][0] == 1), max(reversed(order), key=scores.__getitem__))
    if scores[best][1] > 1:
        return best
    cells = "".join(lines[:SAMPLE_ROWS]).split()
    has_numbers = 2 * sum(map(is_number, cells)) >= len(cells)
    return " " if scores[" "] > (0.99, 1) and has_numbers else best


def _read_excel(path, content, skip):
    import pandas as pd

    try:
        sheets = pd.read_excel(io.BytesIO(content), sheet_name=None, header=None, dtype=object, skiprows=skip)
    except ImportError:
        raise InputError(
            f"{path}: Excel files need the extra `excel`; pip install 'hetero_tf[excel]' for .xlsx, or save it as CSV"
        ) from None
    except Exception as error:
        raise InputError(f"{path}: cannot be read as an Excel file: {shorten_repr(error)}; save it as CSV") from error
    # A sheet with one column may have notes about the table.
    name, sheet = max(sheets.items(), key=lambda each: min(each[1].shape) > 1)
    if len(sheet) < 2:
        raise InputError(f"{path}: expected at least one row of data. Received: none")
    if len(sheets) > 1:
        warnings.warn(f"{path}: has {len(sheets)} sheets; {name!r} is read", stacklevel=2)
    rows = {skip + number: list(map(_to_text, row)) for number, row in enumerate(sheet.values.tolist(), 1)}
    rows = {number: row for number, row in rows.items() if any(row)}
    return Rows(path, ", row ", list(rows), list(rows.values()))


def _to_text(value: Any) -> str:
    """Return a value of JSON or Excel as the text that a CSV file would have."""
    if value is None or value != value:
        return ""
    if isinstance(value, list | dict):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return str(int(value))
    return str(value).removesuffix(" 00:00:00").strip()


def _read_json(path, text):
    """Return the rows of objects, below the names of their values; inner objects become columns."""
    try:
        sign, objects = _find_objects(path, text)
        rows = [dict(_flatten(row)) for row in objects.values()]
    except ValueError as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{path}: is not valid JSON: {error}; expected a list of objects, or one in a line") from None
    names = list(dict.fromkeys(itertools.chain.from_iterable(rows)))
    return Rows(path, sign, [0, *objects], [names, *([_to_text(row.get(name)) for name in names] for row in rows)])


def _find_objects(path, text):
    """Return the text between the path and the number of a row in messages, and the objects by their numbers."""
    try:
        value = json.loads(text)
        sign, objects = ", row ", dict(enumerate(value if isinstance(value, list) else _find_rows(value), 1))
    except json.JSONDecodeError:
        if text.lstrip().startswith("["):
            raise
        sign, objects = ":", {number: line for number, line in enumerate(text.split("\n"), 1) if line.strip()}
    for number, row in objects.items():
        if isinstance(row, str) and sign == ":":
            try:
                objects[number] = row = json.loads(row)
            except ValueError as error:
                raise InputError(f"{path}:{number}: is not valid JSON: {error}; each line must be an object") from None
        if not isinstance(row, dict):
            raise InputError(f"{path}{sign}{number}: must be a JSON object. Received: {shorten_repr(row, 80)}")
    return sign, objects


def _find_rows(value):
    """Return the rows of an object of JSON: in a list inside, by the name of the column or of the row, or one row."""
    import pandas as pd

    if not isinstance(value, dict):
        return [value]
    lists = [each for each in value.values() if isinstance(each, list) and each and isinstance(each[0], dict)]
    if len(lists) == 1:
        return lists[0]
    if {"columns", "data"} <= value.keys():
        return [dict(zip(value["columns"], row)) for row in value["data"]]
    if not value or not all(isinstance(each, dict | list) for each in value.values()):
        return [value]
    inner = next(iter(value.values()))
    has_numbers = [isinstance(names, dict) and all(map(str.isdigit, names)) for names in (value, inner)]
    is_by_row = isinstance(inner, dict) and (
        len(value) > len(inner) if has_numbers[0] == has_numbers[1] else has_numbers[0]
    )
    frame = pd.DataFrame.from_dict(value, orient="index" if is_by_row else "columns", dtype=object)
    # Row numbers have no meaning.
    return (frame if all(str(name).isdigit() for name in frame.index) else frame.reset_index()).to_dict("records")


def _flatten(row: dict, prefix: str = "") -> Iterable[tuple[str, Any]]:
    """Yield the values of an object and of the objects in it, whose names have the form `outer.inner`."""
    for name, value in row.items():
        if isinstance(value, dict) and value:
            yield from _flatten(value, f"{prefix}{name}.")
        else:
            yield normalize(prefix + name), value
