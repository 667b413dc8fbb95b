"""Reads files with a table: text with any delimiter, JSON, Excel, Parquet and Arrow, compressed or not, with pandas."""

import bz2
import csv
import functools
import gzip
import io
import itertools
import json
import lzma
import re
import warnings
import zipfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hetero_tf.base.errors import InputError, shorten_repr
from hetero_tf.base.files import open_file
from hetero_tf.base.hardware import check_memory
from hetero_tf.data.arrow_files import ENDINGS as ARROW
from hetero_tf.data.arrow_files import ColumnSelection, read_arrow, read_splits
from hetero_tf.data.columns import is_number, normalize
from hetero_tf.data.data_files import find, find_file
from hetero_tf.data.raw_table import RawTable, TextColumn

if TYPE_CHECKING:
    import pandas as pd

# Characters of the longest cell; csv allows fewer.
LONGEST_CELL = 2**30
# Memory of a table's texts, in multiples of the size of its text.
MEMORY = 20
DELIMITERS = {"comma": ",", "semicolon": ";", "tab": "\t", "pipe": "|", "space": " "}
# Signs that separate the values of files that other programs write; they are refused by name.
OTHER_DELIMITERS = "^~\x01¦"
# Endings of files with tabs, of all tables as text, of JSON, of Excel, and of compressed files.
TAB_ENDINGS = (".tsv", ".tab")
TABLE_ENDINGS = (".csv", *TAB_ENDINGS)
JSON_LINES = (".jsonl", ".json", ".ndjson")
EXCEL = (".xlsx", ".xlsm", ".xls")
COMPRESSED = (".gz", ".bz2", ".xz", ".zst", ".zip")
# First bytes of compressed files.
SIGNS = {".gz": b"\x1f\x8b", ".bz2": b"BZh91A", ".xz": b"\xfd7zXZ", ".zst": b"\x28\xb5\x2f\xfd"}
# Characters and rows from which the delimiter and the header are detected, and the share of rows that must agree.
SAMPLE_CHARACTERS, SAMPLE_ROWS, AGREEING = 2**17, 100, 0.9
_MARKS = {b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16"}
# Start of the names that pandas gives to columns without one.
NAMELESS = "Unnamed: "
# A cell of a blank row, or of the line below the names in a table of Markdown.
_BLANK = re.compile(r"\s*(:?-{2,}:?)?\s*")


@dataclass(frozen=True)
class Layout:
    """Layout of a table as text or in Excel.

    Attributes:
        delimiter: Name of the delimiter, see `DELIMITERS`.
        skip: Lines above the names of the columns.
        header: Whether the first row has the names of the columns.
        is_regular: Whether all of the first rows have the same number of values, at least two.
        encoding: Encoding of the text; None: UTF-8, or UTF-16 with a byte order mark.
    """

    delimiter: str = "comma"
    skip: int = 0
    header: bool = True
    is_regular: bool = False
    encoding: str | None = None


@dataclass(frozen=True)
class _Text:
    """The text of a file with delimiters.

    Attributes:
        path: The file.
        text: Its text; names in a comment have lost the sign of the comment.
        first: Comments and the line `sep=;` above the first row.
        declared: The delimiter of that line, or None.
    """

    path: Path
    text: str
    first: int
    declared: str | None

    @classmethod
    def read(cls, path: Path, encoding: str | None) -> "_Text":
        text, first, declared, comment = read_text(path, encoding), 0, None, None
        for line in io.StringIO(text):
            if match := re.fullmatch(r'"?sep=(.)"?[\r\n]*', line, re.IGNORECASE):
                return cls(path, text, first + 1, match[1])
            if not line.startswith("#"):
                break
            first, comment = first + 1, line
        source = cls(path, text, first, declared)
        if comment is None:
            return source
        # The names of the columns may be the last comment.
        lines = text.split("\n")
        named = cls(
            path, "\n".join([*lines[: first - 1], lines[first - 1].lstrip("#"), *lines[first:]]), first - 1, None
        )
        sign = source.find_delimiter()
        rows: list[tuple[int, list[str]]]
        (_, names), *rows = *itertools.islice(named.rows(sign, is_strict=False), 3), (0, [])
        is_header = (
            len(rows) > 1 and len(names) == len(rows[0][1]) > 1 and not _has_header([row for _, row in rows[:-1]])
        )
        return named if is_header and not any(map(is_number, names)) else source

    @property
    def quote(self) -> str:
        """The sign around texts."""
        line = next(iter(_behind(self.text[:SAMPLE_CHARACTERS], self.first).split("\n")), "")
        return "'" if re.fullmatch(r"'[^']*'(\s*[,;\t|]\s*'[^']*')+\s*", line) else '"'

    def sample(self) -> str:
        """Return the first lines below the comments; an incomplete last line is dropped."""
        sample = self.text[:SAMPLE_CHARACTERS]
        if len(sample) < len(self.text):
            sample = sample[: sample.rfind("\n") + 1] or sample
        return _behind(sample, self.first)

    def rows(self, sign: str, is_strict: bool = True, skip: int = 0) -> Iterator[tuple[int, list[str]]]:
        """Yield the number of the last line and the values of each row that is not blank."""
        limit, first = csv.field_size_limit(LONGEST_CELL), max(self.first, skip)
        content = io.StringIO(_behind(self.text, first), newline="")
        reader = csv.reader(content, delimiter=sign, quotechar=self.quote, skipinitialspace=True, strict=is_strict)
        try:
            for row in reader:
                if not all(map(_BLANK.fullmatch, row)):
                    yield first + reader.line_num, row
        except csv.Error as error:
            raise InputError(f"{self.path}:{first + reader.line_num}: cannot be parsed as CSV: {error}") from None
        finally:
            csv.field_size_limit(limit)

    def find_delimiter(self) -> str:
        """Return the delimiter with which the first rows have the most values, the same number in most rows."""
        if self.declared:
            return self.declared
        sample, scores = self.sample(), {}
        for sign in (*DELIMITERS.values(), *OTHER_DELIMITERS):
            rows = csv.reader(io.StringIO(sample, newline=""), delimiter=sign, skipinitialspace=True)
            widths = Counter(len(row) for row in itertools.islice(filter(any, rows), SAMPLE_ROWS))
            width, count = max(widths.items(), key=lambda each: each[1], default=(1, 0))
            share = count / max(widths.total(), 1)
            scores[sign] = (share, width) if width > 1 and share >= AGREEING else (0.0, 1)
        # Commas are also part of numbers, and spaces of names and sentences.
        order = "\t;|,"
        if table_ending(self.path) in TAB_ENDINGS and scores["\t"][1] > 1:
            return "\t"
        full = [sign for sign in order if scores[sign][0] == 1]
        best = full[0] if full else max(reversed(order), key=scores.__getitem__)
        if scores[best][1] > 1:
            return best
        for sign in OTHER_DELIMITERS:
            if scores[sign][0] == 1:
                raise InputError(
                    f"{self.path}: separates values by {sign!r}; save it with commas, semicolons, tabs or bars"
                )
        cells = sample[: 2**14].split()
        has_numbers = 2 * sum(map(is_number, cells)) >= len(cells)
        return " " if scores[" "] > (0.99, 1) and has_numbers else best


def table_ending(path: Path) -> str:
    """Return the lower-case ending of a file without the ending of its compression, such as .csv for a.csv.gz."""
    ending = path.suffix.lower()
    if ending == ".zip" and zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            return Path(_member(path, archive)).suffix.lower()
    return Path(path.stem).suffix.lower() if ending in COMPRESSED else ending


def _member(path, archive):
    names = [name for name in archive.namelist() if not name.endswith("/") and not name.startswith("__MACOSX")]
    if len(names) != 1:
        raise InputError(f"{path}: must contain a single file; unpack it. Received: {len(names)} files")
    return names[0]


def read_content(path: Path) -> bytes:
    """Return the bytes of a file, unpacked if its ending or content is that of a compression.

    Raises:
        InputError: The file is damaged.
    """
    with open_file(path) as file:
        try:
            return _unpack(path, file)
        except (OSError, EOFError, lzma.LZMAError, zipfile.BadZipFile, ValueError) as error:
            raise InputError(f"{path}: cannot be unpacked, it is damaged: {error}") from error


def _unpack(path, file):
    # Some files have lost the ending of their compression.
    start, ending = file.read(6), path.suffix.lower()
    ending = (
        ending if ending in COMPRESSED else next((end for end, sign in SIGNS.items() if start.startswith(sign)), "")
    )
    file.seek(0)
    if ending == ".zip":
        with zipfile.ZipFile(file) as archive:
            return archive.read(_member(path, archive))
    if ending == ".zst":
        import pyarrow as pa

        return pa.CompressedInputStream(pa.PythonFile(file, "r"), "zstd").read()
    openers: dict[str, Any] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}
    return openers[ending](file).read() if ending in openers else file.read()


def read_text(path: Path, encoding: str | None = None) -> str:
    """Return the text of a file.

    Args:
        path: The file, perhaps compressed.
        encoding: Name of its encoding; None: UTF-8, or UTF-16 with a byte order mark.

    Raises:
        InputError: The file has another encoding.
    """
    content = read_content(path)
    check_memory(path, MEMORY * len(content))
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
    raise InputError(f"{path}:{line}: is not {kind} text; save it as UTF-8, or set `encoding`, such as cp1252")


def find_layout(path: Path, encoding: str | None = None) -> Layout:
    """Detect the layout of a table as text or in Excel from its first rows.

    Raises:
        InputError: The text has another encoding, see `read_text`.
    """
    name = "comma"
    if table_ending(path) in EXCEL:
        sheet = _read_excel(path, 0)[0].head(SAMPLE_ROWS)
        rows = [(number + 1, row) for number, row in zip(sheet.index, sheet.values.tolist())]
    else:
        source = _Text.read(path, encoding)
        sign = source.find_delimiter()
        name = next((name for name, each in DELIMITERS.items() if each == sign), "comma")
        rows = list(itertools.islice(source.rows(sign, is_strict=False), SAMPLE_ROWS))
    skip = _title_lines(rows)
    rows = rows[skip:]
    cells = [[cell.strip() for cell in row] for _, row in rows]
    is_regular = len(cells) > 1 and len({len(row) for row in cells}) == 1 < len(cells[0])
    return Layout(name, rows[0][0] - 1 if rows and skip else 0, _has_header(cells), is_regular, encoding)


def _behind(text, lines):
    """Return a text without its first lines."""
    return text if lines == 0 else "\n".join(text.split("\n")[lines:])


def _title_lines(rows):
    """Return the number of rows above the names of the columns: rows with one value above rows with several."""
    widths = [sum(bool(cell.strip()) for cell in row) for _, row in rows]
    usual = max(widths, default=0)
    count = next((index for index, width in enumerate(widths) if width > 1), 0)
    return count if usual > 2 and all(width > 1 for width in widths[count : count + 3]) else 0


def _has_header(rows):
    """Return False if the first row has numbers in the same columns as the second row, or a text of a later row."""
    if len(rows) < 2:
        return True
    first, second = ([is_number(value) for value in row] for row in rows[:2])
    columns = zip(*rows)
    repeats = any(len(first) > 1 and first in later for first, *later in columns)
    return not repeats and (not any(first) or first != second)


def is_typed(path: Path) -> bool:
    """Return True for a folder or file that Arrow reads, whose columns have types."""
    return path.is_dir() or path.suffix.lower() in ARROW


def read_tables(
    data_dir: Path | None, path: str, test: str | None, selection: ColumnSelection, label: str | None, **layout: Any
) -> tuple[list[RawTable], tuple[str, ...] | None]:
    """Read the tables of the training rows and, if present, of the test rows.

    Args:
        data_dir: The data folder or None.
        path: The file, or a folder of Arrow or Parquet files.
        test: File or folder of the test rows; None: the test split of a folder, if it has one.
        selection: The columns to read of Arrow and Parquet files.
        label: The column of labels, or None.
        layout: Options of `read_table`.

    Returns:
        The tables, with class names as labels where Hugging Face metadata have them, and the class names or None.
    """
    source = find(data_dir, path, "path")
    if is_typed(source):
        return read_splits(source, None if test is None else find(data_dir, test, "test"), selection, label)
    files = [find_file(data_dir, name, option) for option, name in (("path", path), ("test", test)) if name is not None]
    return [read_table(file, **layout) for file in files], None


def read_table(
    path: Path, header: bool = True, delimiter: str | None = None, skip: int = 0, encoding: str | None = None
) -> RawTable:
    """Read the table of a file.

    Args:
        path: A table as text, JSON lines, a JSON list of objects, Excel, Parquet or Arrow; perhaps compressed.
        header: Whether the first row has the names of the columns.
        delimiter: Name of the separator of values, see `DELIMITERS`; None: it is detected.
        skip: Lines above the first row.
        encoding: See `read_text`.

    Raises:
        InputError: The file is not a valid table.
        MemoryProblem: The table does not fit into memory.
    """
    ending = table_ending(path)
    if ending in ARROW:
        return read_arrow(str(path), [path], ColumnSelection(None, (), None))[0]
    if ending in JSON_LINES:
        frame, locate = _read_json(path, read_text(path, encoding))
        return _build_table(path, frame, locate, list(map(normalize, frame.columns)))
    frame, locate = _read_excel(path, skip) if ending in EXCEL else _read_delimited(path, delimiter, skip, encoding)
    if len(frame) <= header:
        raise InputError(f"{path}: expected at least one row of data. Received: none")
    names = column_names(path, frame.iloc[0].tolist(), header)
    return _build_table(path, frame.iloc[int(header) :], lambda row: locate(row + header), names)


def _build_table(path, frame, locate, names):
    """Build a table of texts; a column without name and values is that of a delimiter at the end of each row."""
    columns = {name: TextColumn.from_values(frame[column]) for name, column in zip(names, frame.columns)}
    nameless = [name for name, column in columns.items() if name.startswith(NAMELESS) and set(column.texts) <= {""}]
    return RawTable(str(path), {name: columns[name] for name in columns if name not in nameless}, locate)


def _read_delimited(path, delimiter, skip, encoding) -> tuple["pd.DataFrame", Callable[[int], str]]:
    """Return the texts of a table, and the position of each row."""
    import pandas as pd

    source = _Text.read(path, encoding)
    sign = DELIMITERS[delimiter] if delimiter else source.find_delimiter()
    if source.declared not in (None, sign):
        raise InputError(
            f"{path}:{source.first}: the first line sep={source.declared} declares another delimiter; leave "
            "`delimiter` out"
        )
    rows = [row for _, row in itertools.islice(source.rows(sign, False, skip), SAMPLE_ROWS)]
    options: dict[str, Any] = {"header": None, "dtype": str, "na_filter": False, "skiprows": max(source.first, skip)}
    options |= {"names": range(max(map(len, rows), default=1)), "index_col": False, "quotechar": source.quote}
    separator = r"\s+" if sign == " " else sign
    try:
        frame = pd.read_csv(io.StringIO(source.text), sep=separator, skipinitialspace=True, low_memory=False, **options)
    except pd.errors.EmptyDataError:
        raise InputError(f"{path}: expected at least one row of data. Received: none") from None
    except pd.errors.ParserError as error:
        _check_widths(path, source.rows(sign, skip=skip), sign)
        raise InputError(f"{path}: cannot be parsed as CSV: {error}") from None
    frame = frame.apply(lambda column: column.str.strip())
    # pandas fills short rows with empty texts; a delimiter at the end of each row makes an empty column.
    width, last = len(rows[0]) if rows else 1, frame.columns[-1]
    if (frame[range(width, len(frame.columns))] != "").any(axis=None) or (frame[min(width - 1, last)] == "").any():
        _check_widths(path, source.rows(sign, skip=skip), sign)
    # The line below the names in a table of Markdown, and rows of empty values.
    likely = frame[frame[last].str.fullmatch(_BLANK.pattern)]
    if len(likely):
        is_blank = likely.apply(lambda column: column.str.fullmatch(_BLANK.pattern)).all(axis=1)
        frame = frame.drop(likely.index[is_blank])
    lines = functools.cache(lambda: [number for number, _ in source.rows(sign, skip=skip)])
    return frame, lambda row: f"{path}:{lines()[row]}"


def _check_widths(path, rows, sign):
    """Raise `InputError` for the first row with another number of values than the first row."""
    rows = list(rows)
    if titles := _title_lines(rows[:SAMPLE_ROWS]):
        line = rows[titles][0] - 1
        raise InputError(
            f"{path}:{rows[0][0]}: a title above the names of the columns; set `skip: {line}`. "
            f"Received: {shorten_repr(rows[0][1], 80)}"
        )
    width = len(rows[0][1])
    for number, row in rows:
        if len(row) < width or any(cell.strip() for cell in row[width:]):
            raise InputError(
                f"{path}:{number}: must have {width} values separated by {sign!r}, like the first line. "
                f"Received: {len(row)}, {shorten_repr(row, 80)}"
            )


def _read_excel(path, skip):
    """Return the texts of the first sheet with a table, and the position of each row."""
    import pandas as pd

    try:
        with pd.ExcelFile(io.BytesIO(read_content(path))) as file:
            names = file.sheet_names
            sheets = (pd.read_excel(file, sheet_name=name, header=None, dtype=object, skiprows=skip) for name in names)
            name, frame = next(
                ((name, sheet) for name, sheet in zip(names, sheets) if sheet.shape > (1, 1)), (None, None)
            )
    except ImportError:
        raise InputError(
            f"{path}: Excel files need the extra `excel`; pip install 'hetero_tf[excel]' for .xlsx, or save it as CSV"
        ) from None
    except Exception as error:
        raise InputError(f"{path}: cannot be read as an Excel file: {shorten_repr(error)}; save it as CSV") from error
    if frame is None:
        raise InputError(f"{path}: expected at least one row of data. Received: none")
    if len(names) > 1:
        warnings.warn(f"{path}: has {len(names)} sheets; {name!r} is read", stacklevel=2)
    frame = frame.map(_to_text)
    frame = frame[(frame != "").any(axis=1)]
    numbers = list(frame.index)
    return frame, lambda row: f"{path}, row {skip + numbers[row] + 1}"


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
    """Return the texts of objects, one for each row, and the position of each row; inner objects become columns."""
    import pandas as pd

    try:
        is_whole, objects = _find_objects(path, text)
        rows = [dict(_flatten(row)) for row in objects.values()]
    except (ValueError, RecursionError) as error:
        raise InputError(
            f"{path}: is not valid JSON: {error}; it must be a list of objects, or one in each line"
        ) from None
    if not rows:
        raise InputError(f"{path}: expected at least one row. Received: none")
    numbers, where = list(objects), ", row " if is_whole else ":"
    frame = pd.DataFrame(rows, columns=list(dict.fromkeys(itertools.chain.from_iterable(rows))), dtype=object)
    return frame.map(_to_text), lambda row: f"{path}{where}{numbers[row]}"


def _find_objects(path, text):
    """Return whether a text is one value of JSON, and its objects by their number or line."""
    try:
        value = json.loads(text)
    except ValueError:
        if text.lstrip().startswith("["):
            raise
        value = None
    if value is None:
        objects = dict(_json_lines(path, text))
    else:
        objects = dict(enumerate(value if isinstance(value, list) else _find_rows(value), 1))
    for number, row in objects.items():
        if not isinstance(row, dict):
            where = ":" if value is None else ", row "
            raise InputError(f"{path}{where}{number}: must be a JSON object. Received: {shorten_repr(row, 80)}")
    return value is not None, objects


def _find_rows(value):
    """Return the rows of an object of JSON: in a list inside, by the name of the column or of the row, or one row."""
    import pandas as pd

    if not isinstance(value, dict):
        return [value]
    lists = [each for each in value.values() if isinstance(each, list) and each and isinstance(each[0], dict)]
    if len(lists) == 1:
        return lists[0]
    if {"columns", "data"} <= value.keys():
        return pd.DataFrame(value["data"], columns=value["columns"], dtype=object).to_dict("records")
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
            yield prefix + name, value


def _json_lines(path, text):
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            try:
                yield number, json.loads(line)
            except ValueError as error:
                raise InputError(f"{path}:{number}: is not valid JSON: {error}; each line must be an object") from None


def column_names(path: Path, first_row: Sequence[str], header: bool) -> list[str]:
    """Return the names of the columns of a table.

    Args:
        path: The file, for messages.
        first_row: Values of the first line.
        header: Whether they are the names; otherwise the names are column_0, column_1 and so on.

    Raises:
        InputError: A name occurs twice, or the first line has no names.
    """
    if not header:
        return [f"column_{index}" for index in range(len(first_row))]
    if len(first_row) > 2 and first_row[0].strip() and not any(name.strip() for name in first_row[1:]):
        raise InputError(
            f"{path}:1: a title above the names of the columns; set `skip: 1`. Received: {shorten_repr(first_row[0])}"
        )
    names = [normalize(name) or f"{NAMELESS}{index}" for index, name in enumerate(first_row)]
    for name, count in Counter(names).items():
        if count > 1:
            raise InputError(f"{path}:1: column names must be unique. Received: {name!r} twice; rename one of them")
    if all(is_number(name) for name in names):
        raise InputError(f"{path}:1: expected column names; if the file has no header, set `header: false`")
    return names
