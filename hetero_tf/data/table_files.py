"""Reads files with a table: text with any delimiter, JSON, JSON lines and Excel, compressed or not, with pandas."""

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
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hetero_tf.base.errors import InputError, shorten_repr
from hetero_tf.base.files import open_file
from hetero_tf.base.hardware import check_memory
from hetero_tf.data.columns import is_number, normalize
from hetero_tf.data.raw_table import RawTable, TextColumn

if TYPE_CHECKING:
    import pandas as pd

# Characters of the longest cell; csv allows fewer.
LONGEST_CELL = 2**30
# Memory of a table's texts, in multiples of the size of its text.
MEMORY = 20
DELIMITERS = {"comma": ",", "semicolon": ";", "tab": "\t", "pipe": "|", "space": " "}
# Endings of files with tabs, of all tables as text, of JSON, of Excel, and of compressed files.
TAB_ENDINGS = (".tsv", ".tab")
TABLE_ENDINGS = (".csv", *TAB_ENDINGS)
JSON_LINES = (".jsonl", ".json", ".ndjson")
EXCEL = (".xlsx", ".xlsm")
COMPRESSED = (".gz", ".bz2", ".xz", ".zst", ".zip")
# Characters and rows from which the delimiter and the header are detected, and the share of rows that must agree.
SAMPLE_CHARACTERS, SAMPLE_ROWS, AGREEING = 2**17, 100, 0.9
_MARKS = {b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16"}


@dataclass(frozen=True)
class Layout:
    """Layout of a table as text.

    Attributes:
        delimiter: Name of the delimiter, see `DELIMITERS`.
        skip: Lines above the names of the columns.
        header: Whether the first row has the names of the columns.
        is_regular: Whether all of the first rows have the same number of values, at least two; with spaces between
            values, half of which are numbers.
    """

    delimiter: str = "comma"
    skip: int = 0
    header: bool = True
    is_regular: bool = False


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
    """Return the bytes of a file, unpacked if its ending names a compression.

    Raises:
        InputError: The file is damaged.
    """
    with open_file(path) as file:
        try:
            return _unpack(path, file)
        except (OSError, EOFError, lzma.LZMAError, zipfile.BadZipFile, ValueError) as error:
            raise InputError(f"{path}: cannot be unpacked, it is damaged: {error}") from error


def _unpack(path, file):
    ending = path.suffix.lower()
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
    """Detect the layout of a table as text from its first rows."""
    text = read_text(path, encoding)
    first, declared = _first_line(text)
    delimiter = declared or _find_delimiter(text, first, table_ending(path))
    rows = list(itertools.islice(_walk(path, text, first, delimiter, is_strict=False), SAMPLE_ROWS))
    skip = _title_lines(rows)
    rows = rows[skip:]
    line = rows[0][0] - 1 if rows and skip else 0
    name = next((name for name, sign in DELIMITERS.items() if sign == delimiter), "comma")
    cells = [[cell.strip() for cell in row] for _, row in rows]
    numbers = [is_number(cell) for row in cells for cell in row]
    is_regular = len(cells) > 1 and len({len(row) for row in cells}) == 1 < len(cells[0])
    is_regular = is_regular and (name != "space" or 2 * sum(numbers) >= len(numbers))
    return Layout(name, line, _has_header(cells), is_regular)


def _first_line(text):
    """Return the number of comment lines at the start, and the delimiter that a line such as `sep=;` declares."""
    count = 0
    for line in io.StringIO(text):
        if declared := re.fullmatch(r'"?sep=(.)"?[\r\n]*', line, re.IGNORECASE):
            return count + 1, declared[1]
        if not line.startswith("#"):
            break
        count += 1
    return count, None


def _sample(text, first):
    """Return the first lines of a text behind some lines; an incomplete last line is dropped."""
    sample = text[:SAMPLE_CHARACTERS]
    if len(sample) < len(text):
        sample = sample[: sample.rfind("\n") + 1] or sample
    return _behind(sample, first)


def _behind(text, lines):
    """Return a text without its first lines."""
    return text if lines == 0 else "\n".join(text.split("\n")[lines:])


def _find_delimiter(text, first, ending):
    """Return the delimiter with which the first rows have the most values, the same number in most rows."""
    sample, scores = _sample(text, first), {}
    for name, sign in DELIMITERS.items():
        rows = csv.reader(io.StringIO(sample, newline=""), delimiter=sign, skipinitialspace=True)
        widths = Counter(len(row) for row in itertools.islice(filter(any, rows), SAMPLE_ROWS))
        width, count = max(widths.items(), key=lambda each: each[1], default=(1, 0))
        share = count / max(widths.total(), 1)
        scores[name] = (share, width) if width > 1 and share >= AGREEING else (0.0, 1)
    # Spaces are also part of names and sentences, and commas of numbers.
    order = ["tab", "semicolon", "pipe", "comma"]
    if ending in TAB_ENDINGS and scores["tab"][1] > 1:
        return "\t"
    full = [name for name in order if scores[name][0] == 1]
    best = full[0] if full else max(reversed(order), key=scores.__getitem__)
    return DELIMITERS["space" if scores[best][1] == 1 and scores["space"] > (0.99, 1) else best]


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


def _walk(path, text, first, delimiter, is_strict=True) -> Iterator[tuple[int, list[str]]]:
    """Yield the number of the last line and the values of each row that is not blank."""
    limit = csv.field_size_limit(LONGEST_CELL)
    reader = csv.reader(
        io.StringIO(_behind(text, first), newline=""), delimiter=delimiter, skipinitialspace=True, strict=is_strict
    )
    try:
        for row in reader:
            if any(cell.strip() for cell in row):
                yield first + reader.line_num, row
    except csv.Error as error:
        raise InputError(f"{path}:{first + reader.line_num}: cannot be parsed as CSV: {error}") from None
    finally:
        csv.field_size_limit(limit)


def read_table(
    path: Path, header: bool = True, delimiter: str | None = None, skip: int = 0, encoding: str | None = None
) -> RawTable:
    """Read the table of a file.

    Args:
        path: A table as text, JSON lines, a JSON list of objects, or Excel; perhaps compressed.
        header: Whether the first row has the names of the columns.
        delimiter: Name of the separator of values, see `DELIMITERS`; None: it is detected.
        skip: Lines above the first row.
        encoding: See `read_text`.

    Raises:
        InputError: The file is not a valid table.
        MemoryProblem: The table does not fit into memory.
    """
    ending = table_ending(path)
    if ending in JSON_LINES:
        return _read_json(path, read_text(path, encoding))
    if ending in EXCEL or ending == ".xls":
        frame, locate = _read_excel(path, skip)
        return _build_table(path, frame, locate, header)
    text = read_text(path, encoding)
    first, declared = _first_line(text)
    sign = DELIMITERS[delimiter] if delimiter else declared or _find_delimiter(text, first, ending)
    if declared not in (None, sign):
        raise InputError(
            f"{path}:{first}: the first line sep={declared} declares another delimiter; leave `delimiter` out"
        )
    return _build_table(path, *_read_delimited(path, text, max(first, skip), sign), header)


def _read_delimited(path, text, first, delimiter) -> tuple["pd.DataFrame", Callable[[int], str]]:
    """Return the texts of a table, and the position of each row."""
    import pandas as pd

    def rows():
        return _walk(path, text, first, delimiter)

    options: dict[str, Any] = {"header": None, "dtype": str, "na_filter": False, "skiprows": first}
    separator = r"\s+" if delimiter == " " else delimiter
    try:
        frame = pd.read_csv(io.StringIO(text), sep=separator, skipinitialspace=True, low_memory=False, **options)
    except pd.errors.EmptyDataError:
        raise InputError(f"{path}: expected at least one row of data. Received: none") from None
    except pd.errors.ParserError as error:
        _check_widths(path, rows(), delimiter)
        raise InputError(f"{path}: cannot be parsed as CSV: {error}") from None
    # pandas fills short rows with empty texts.
    if (frame[frame.columns[-1]] == "").any():
        _check_widths(path, rows(), delimiter)
    frame = frame.apply(lambda column: column.str.strip())
    frame = frame[(frame != "").any(axis=1)]
    return frame, lambda row: f"{path}:{next(itertools.islice(rows(), row, None))[0]}"


def _check_widths(path, rows, delimiter):
    """Raise `InputError` for the first row with another number of values than the first row."""
    rows = list(rows)
    if titles := _title_lines(rows[:SAMPLE_ROWS]):
        line = rows[titles][0] - 1
        raise InputError(
            f"{path}:{rows[0][0]}: a title above the names of the columns; set `skip: {line}`. "
            f"Received: {shorten_repr(rows[0][1], 80)}"
        )
    for number, row in rows:
        if len(row) != len(rows[0][1]):
            raise InputError(
                f"{path}:{number}: must have {len(rows[0][1])} values separated by {delimiter!r}, like the first line. "
                f"Received: {len(row)}, {shorten_repr(row, 80)}"
            )


def _read_excel(path, skip):
    """Return the texts of the first sheet of an Excel file, and the position of each row."""
    import pandas as pd

    try:
        file = pd.ExcelFile(io.BytesIO(read_content(path)))
        if len(file.sheet_names) > 1:
            warnings.warn(f"{path}: has {len(file.sheet_names)} sheets; {file.sheet_names[0]!r} is read", stacklevel=2)
        frame = file.parse(header=None, dtype=object, skiprows=skip)
    except ImportError:
        raise InputError(
            f"{path}: Excel files need the extra `excel`; pip install 'hetero_tf[excel]' for .xlsx, or save it as CSV"
        ) from None
    except Exception as error:
        raise InputError(f"{path}: cannot be read as an Excel file: {shorten_repr(error)}; save it as CSV") from error
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
    """Read a list of objects, an object in each line, or an object of columns."""
    import pandas as pd

    try:
        is_list = text.lstrip().startswith("[")
        rows = enumerate(json.loads(text), 1) if is_list else _json_lines(path, text)
        objects = dict(rows)
        if len(objects) == 1 and not is_list and all(isinstance(each, dict | list) for each in objects[1].values()):
            # Columns by name, as pandas writes them.
            objects = dict(enumerate(pd.DataFrame(objects[1]).to_dict("records"), 1))
    except (ValueError, RecursionError) as error:
        raise InputError(
            f"{path}: is not valid JSON: {error}; it must be a list of objects, or one in each line"
        ) from None
    if not objects:
        raise InputError(f"{path}: expected at least one row. Received: none")
    numbers, where = list(objects), ", row " if is_list else ":"
    for number, row in objects.items():
        if not isinstance(row, dict):
            raise InputError(f"{path}{where}{number}: must be a JSON object. Received: {shorten_repr(row, 80)}")
    names = dict.fromkeys(name for row in objects.values() for name in row)
    columns = {
        normalize(name): TextColumn.from_values(_to_text(row.get(name)) for row in objects.values()) for name in names
    }
    return RawTable(str(path), columns, lambda row: f"{path}{where}{numbers[row]}")


def _json_lines(path, text):
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            try:
                yield number, json.loads(line)
            except ValueError as error:
                raise InputError(f"{path}:{number}: is not valid JSON: {error}; each line must be an object") from None


def _build_table(path, frame, locate, header):
    """Build the table of rows of texts, the first of which may have the names of the columns."""
    if len(frame) <= header:
        raise InputError(f"{path}: expected at least one row of data. Received: none")
    names = column_names(path, frame.iloc[0].tolist(), header)
    rows = frame.iloc[int(header) :]
    columns = {name: TextColumn.from_values(rows[column]) for name, column in zip(names, frame.columns)}
    return RawTable(str(path), columns, lambda row: locate(row + header))


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
    # pandas uses the same names for columns without a name.
    names = [normalize(name) or f"Unnamed: {index}" for index, name in enumerate(first_row)]
    for name, count in Counter(names).items():
        if count > 1:
            raise InputError(f"{path}:1: column names must be unique. Received: {name!r} twice; rename one of them")
    if all(is_number(name) for name in names):
        raise InputError(f"{path}:1: expected column names; if the file has no header, set `header: false`")
    return names
