"""Reads the page sizes of a Parquet file from the page headers: the memory that decompression will allocate.

The totals in the footer are unverified claims of the writer, but a page is decompressed into the size of its header.

References: parquet-format, `PageHeader` in parquet.thrift; Thrift's compact protocol.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO

if TYPE_CHECKING:
    import pyarrow.parquet as pq

# Types of Thrift's compact protocol; PageHeader has no others.
_TRUE, _FALSE, _INTEGERS, _BINARY, _STRUCT = 1, 2, (4, 5, 6), 8, 12
_DEPTH = 16
# Field ids of PageHeader and its nested headers.
_UNPACKED, _PACKED, _DATA, _DICTIONARY, _DATA_2 = 2, 3, 5, 7, 8
_VALUES, _ENCODING, _ENCODING_2 = 1, 2, 4
# Stores only the suffix that differs from the previous text; a few bytes may encode a long text.
_DELTA_BYTE_ARRAY = 7


@dataclass(frozen=True)
class Pages:
    """The pages of some columns of a file.

    Attributes:
        unpacked: Bytes of all pages, decompressed.
        values: Number of values.
        longest: Largest possible size of a value that is stored in fewer bytes; 0 if no page repeats values.
    """

    unpacked: int
    values: int
    longest: int


def read_pages(file: BinaryIO, metadata: "pq.FileMetaData", names: Collection[str], dense: Collection[str]) -> Pages:
    """Read the headers of all pages of columns.

    Args:
        file: The open file.
        metadata: Metadata of the file.
        names: Names of the columns, the outermost name if nested.
        dense: Columns that are read without their dictionary, so that each text or picture is a copy.

    Raises:
        IndexError, ValueError: A header is damaged.
    """
    unpacked = values = longest = 0
    for chunk in _column_chunks(metadata):
        if not _is_in_columns(chunk.path_in_schema, names):
            continue
        values += chunk.num_values
        is_dense = chunk.physical_type == "BYTE_ARRAY" and _is_in_columns(chunk.path_in_schema, dense)
        for header in _iterate_headers(file, chunk):
            unpacked += header[_UNPACKED]
            encodings = header.get(_DATA, {}).get(_ENCODING), header.get(_DATA_2, {}).get(_ENCODING_2)
            if _DELTA_BYTE_ARRAY in encodings or (is_dense and _DICTIONARY in header):
                longest = max(longest, header[_UNPACKED])
    return Pages(unpacked, values, longest)


def columns_in(metadata: "pq.FileMetaData", encoding: str) -> set[str]:
    """Return the columns with at least one chunk in an encoding, according to the file's footer."""
    return {chunk.path_in_schema for chunk in _column_chunks(metadata) if encoding in chunk.encodings}


def _column_chunks(metadata):
    groups = map(metadata.row_group, range(metadata.num_row_groups))
    return (group.column(number) for group in groups for number in range(group.num_columns))


def _is_in_columns(path, names):
    """Return True if a column is one of `names` or nested in one; names may contain dots."""
    parts = path.split(".")
    return any(".".join(parts[:count]) in names for count in range(1, len(parts) + 1))


def _iterate_headers(file, chunk) -> Iterator[dict[int, Any]]:
    """Yield the page headers of a column chunk in the order in which the reader visits them."""
    position = chunk.data_page_offset
    if chunk.has_dictionary_page and 0 < chunk.dictionary_page_offset < position:
        position = chunk.dictionary_page_offset
    end, remaining = position + chunk.total_compressed_size, chunk.num_values
    while remaining > 0 and position < end:
        file.seek(position)
        header = _read_struct(file)
        if min(header.get(_UNPACKED, -1), header.get(_PACKED, -1)) < 0:
            raise ValueError("a page has no size")
        yield header
        position = file.tell() + header[_PACKED]
        remaining -= header.get(_DATA, header.get(_DATA_2, {})).get(_VALUES, 0)


def _read_struct(file, depth=0):
    """Return `{field: integer, bool or struct}`; texts are skipped."""
    if depth > _DEPTH:
        raise ValueError("a page header is nested too deeply")
    fields: dict[int, Any] = {}
    field = 0
    while kind := file.read(1)[0]:
        field = field + (kind >> 4) if kind >> 4 else _read_integer(file)
        fields[field] = _read_value(file, kind & 15, depth)
    return fields


def _read_value(file, kind, depth):
    if kind in (_TRUE, _FALSE):
        return kind == _TRUE
    if kind in _INTEGERS:
        return _read_integer(file)
    if kind == _STRUCT:
        return _read_struct(file, depth + 1)
    if kind == _BINARY:
        return file.seek(_read_unsigned(file), 1)
    raise ValueError("a page header has a field of an unknown type")


def _read_integer(file):
    value = _read_unsigned(file)
    return (value >> 1) ^ -(value & 1)


def _read_unsigned(file):
    value = 0
    for shift in range(0, 64, 7):
        byte = file.read(1)[0]
        value |= (byte & 127) << shift
        if byte < 128:
            return value
    raise ValueError("a page header has a number of more than 64 bits")
