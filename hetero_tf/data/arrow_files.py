"""Reads columns of Parquet and Arrow files with pyarrow."""

import contextlib
import itertools
from bisect import bisect_right
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from hetero_tf.base.errors import InputError, UserError, did_you_mean, shorten_repr
from hetero_tf.base.files import open_file
from hetero_tf.base.hardware import check_memory
from hetero_tf.data.data_files import LOADERS
from hetero_tf.data.raw_table import RawTable, TextColumn

if TYPE_CHECKING:
    import pyarrow as pa

# Peak memory of a table while its columns become arrays, in multiples of its unpacked size.
MEMORY = 4


@dataclass(frozen=True)
class ColumnSelection:
    """The columns to read.

    Attributes:
        requested: Names of the columns; None: all.
        ignore: Names of columns to skip.
        image: Name of the picture column, or None.
    """

    requested: Collection[str] | None
    ignore: Collection[str]
    image: str | None

    def select(self, path: Path, schema: "pa.Schema") -> list[str]:
        """Returns the names of the columns to read, after a check of their types; other columns are not read."""
        names = schema.names
        if len(set(names)) < len(names):
            repeated = next(name for name in names if names.count(name) > 1)
            raise InputError(f"{path}: column names must be unique. Received: {repeated!r} twice")
        for option, listed in (("ignore", self.ignore), ("label, text, image and owner", self.requested or ())):
            for name in listed:
                if name not in names:
                    raise InputError(
                        f"{path}: {option} must name columns. Received: {name!r}{did_you_mean(name, names)}"
                    )
        requested = names if self.requested is None else [name for name in names if name in self.requested]
        selected = [name for name in requested if name not in self.ignore]
        for name in selected:
            self._check_type(path, name, schema.field(name).type)
        return selected

    def _check_type(self, path, name, type_):
        """Raises `InputError` unless a column has numbers or texts, or bytes if it is the picture column."""
        content = _content(type_)
        if name == self.image and content not in ("bytes", "nothing"):
            raise InputError(f"{path}: column {name!r} must contain the bytes of picture files. Received: {type_}")
        if name != self.image and content not in ("numbers", "texts", "dates"):
            advice = "add it to `ignore`" + ", or set it as `image`" * (content == "bytes")
            raise InputError(
                f"{path}: column {name!r} must contain numbers, texts or dates; {advice}. "
                f"Received: {shorten_repr(str(type_), 80)}"
            )


def _content(type_):
    """Returns "numbers", "texts", "dates", "bytes" (also in a struct, see Hugging Face), "nothing" or "other"."""
    from pyarrow import types

    if types.is_struct(type_):
        inner = [field.type for field in type_ if field.name == "bytes"]
        return _content(inner[0]) if len(inner) == 1 and _content(inner[0]) in ("bytes", "nothing") else "other"
    if types.is_dictionary(type_):
        type_ = type_.value_type
    checks = {
        "numbers": (types.is_integer, types.is_floating, types.is_boolean, types.is_decimal),
        "texts": (types.is_string, types.is_large_string),
        "dates": (types.is_date, types.is_timestamp),
        "bytes": (types.is_binary, types.is_large_binary),
        # A column without any value; the message about its first row is more helpful than one about its type.
        "nothing": (types.is_null,),
    }
    return next((content for content, each in checks.items() if any(check(type_) for check in each)), "other")


def read_table(source: str, files: Sequence[Path], selection: ColumnSelection) -> tuple[RawTable, dict[bytes, bytes]]:
    """Reads the columns of one or more files with the same columns; pictures become lists of bytes.

    Args:
        source: Description of the files for messages.
        files: The files.
        selection: The columns to read.

    Returns:
        The table and the metadata of its schema.

    Raises:
        InputError: A file is damaged, the files have different columns, a column is missing, or a value is missing or
            neither number nor text.
        MemoryProblem: The columns do not fit into memory.
    """
    import pyarrow as pa

    tables = [_read_file(path, selection) for path in files]
    for path, table in zip(files, tables):
        if table.schema.types != tables[0].schema.types or table.schema.names != tables[0].schema.names:
            raise InputError(f"{path}: must have the columns of {files[0]}, with the same types")
    ends = list(itertools.accumulate(table.num_rows for table in tables))

    def locate(row):
        index = bisect_right(ends, row)
        return f"{files[index]}, row {row - (ends[index - 1] if index else 0)}"

    combined = pa.concat_tables(tables)
    columns = {
        name: _convert_column(name, combined.column(name), locate, name == selection.image)
        for name in combined.column_names
    }
    return RawTable(source, columns, locate), combined.schema.metadata or {}


def column_contents(path: Path) -> dict[str, str]:
    """Returns "numbers", "texts", "dates", "bytes", "nothing" or "other" for each column of a file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    with _open(path) as (file, is_parquet):
        if is_parquet:
            schema = pq.ParquetFile(file).schema_arrow
        else:
            file.seek(_first_byte(file))
            schema = pa.ipc.open_stream(file).schema
        return {field.name: _content(field.type) for field in schema}


def _read_file(path, selection):
    """Reads the selected columns of a file into a fully validated `pyarrow.Table`."""
    with _open(path) as (file, is_parquet):
        table = (_read_parquet if is_parquet else _read_arrow)(path, file, selection)
        # Otherwise pyarrow trusts the offsets and strings of damaged files.
        table.validate(full=True)
        return table


@contextlib.contextmanager
def _open(path):
    """Yields the file and whether it is a Parquet file; turns errors of the readers into `InputError`."""
    with open_file(path) as file:
        try:
            yield file, file.read(6).startswith(b"PAR1")
        except UserError:
            raise
        # Malformed bytes make the readers raise many kinds of exceptions.
        except Exception as error:
            raise InputError(
                f"{path}: cannot be read as a Parquet or Arrow file; it is damaged or has another format: "
                f"{shorten_repr(str(error).splitlines()[0] if str(error) else type(error).__name__)}; {LOADERS}"
            ) from error


def _first_byte(file):
    """Returns the position of the stream in an Arrow file, which begins with eight bytes and ends with an index."""
    file.seek(0)
    return 8 if file.read(6) == b"ARROW1" else 0


def _read_parquet(path, file, selection):
    import pyarrow.parquet as pq

    schema, metadata = pq.read_schema(file), pq.read_metadata(file)
    names = selection.select(path, schema)
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    check_memory(path, MEMORY * sum(group.total_byte_size for group in groups))
    chunks = [group.column(number) for group in groups for number in range(group.num_columns)]
    # pyarrow cannot read this encoding into a dictionary.
    other = {chunk.path_in_schema for chunk in chunks if "DELTA_BYTE_ARRAY" in chunk.encodings}
    texts = sorted(name for name in set(names) - other if _content(schema.field(name).type) == "texts")
    return pq.ParquetFile(file, metadata=metadata, read_dictionary=texts).read(names, use_threads=False)


def _read_arrow(path, file, selection):
    """Reads an Arrow stream or file."""
    import pyarrow as pa

    first = _first_byte(file)
    file.seek(first)
    schema = pa.ipc.open_stream(file).schema
    names = selection.select(path, schema)
    file.seek(first)
    options = pa.ipc.IpcReadOptions(included_fields=[schema.get_field_index(name) for name in names], use_threads=False)
    return pa.ipc.open_stream(file, options=options).read_all()


def _address(array):
    return [buffer and buffer.address for buffer in array.buffers()]


def _convert_column(name, column: "pa.ChunkedArray", locate, is_image):
    """Returns numbers as an array, texts as a `TextColumn`, and pictures as a list of bytes."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_struct(column.type):
        column = pc.struct_field(column, [column.type.get_field_index("bytes")])
    content = _content(column.type)
    if content == "dates":
        # The offset of a time zone would need a database of zones.
        column = column.cast(pa.timestamp("us"), safe=False).cast(pa.string())
    if is_image and column.null_count:
        row = int(column.is_null().to_numpy().argmax())
        advice = "no picture bytes here, only a path; embed the pictures in the file, or use data: folder"
        raise InputError(f"{locate(row)}: column {name!r} has {advice}")
    if is_image:
        return column.to_pylist()
    if pa.types.is_dictionary(column.type) or content != "numbers":
        is_indexed = pa.types.is_dictionary(column.type)
        values = _decode_dictionaries(column) if is_indexed else column.to_pylist()
        if content == "numbers":
            return np.array([np.nan if value is None else value for value in values], np.float64)
        return TextColumn.from_values("" if value is None else value for value in values)
    if pa.types.is_decimal(column.type) or pa.types.is_boolean(column.type):
        column = column.cast(pa.float64() if pa.types.is_decimal(column.type) else pa.int8())
    return np.asarray(column.to_numpy())


def _decode_dictionaries(column):
    """Returns the values of a dictionary-encoded column as a list; equal values share one object."""
    values, address, words = [], None, []
    for chunk in column.chunks:
        if address != _address(chunk.dictionary):
            address, words = _address(chunk.dictionary), chunk.dictionary.to_pylist()
        values += [None if index is None else words[index] for index in chunk.indices.to_pylist()]
    return values
