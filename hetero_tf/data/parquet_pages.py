"""Reads the page sizes of a Parquet file from the page headers: the memory that decompression will allocate.

The totals in the footer are unverified claims of the writer, but a page is decompressed into the size of its header.

References: parquet-format, `PageHeader` in parquet.thrift; Thrift's compact protocol.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:
    import pyarrow.parquet as pq

# Bytes of a header in the first read, and at most.
WINDOW, LARGEST_HEADER = 2**10, 2**24
_BOOLEANS, _INTEGERS, _DOUBLE, _BINARY, _STRUCT = (1, 2), (3, 4, 5, 6), 7, 8, 12
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
        ValueError: A header is damaged.
    """
    unpacked = values = longest = 0
    for group in range(metadata.num_row_groups):
        row_group = metadata.row_group(group)
        for number in range(row_group.num_columns):
            chunk = row_group.column(number)
            if not _is_in_columns(chunk.path_in_schema, names):
                continue
            values += chunk.num_values
            is_dense = chunk.physical_type == "BYTE_ARRAY" and _is_in_columns(chunk.path_in_schema, dense)
            for header in _iterate_headers(file, chunk):
                size = header[_UNPACKED]
                unpacked += size
                details = header.get(_DATA, {}), header.get(_DATA_2, {})
                is_delta = _DELTA_BYTE_ARRAY in (details[0].get(_ENCODING), details[1].get(_ENCODING_2))
                if is_delta or (is_dense and _DICTIONARY in header):
                    longest = max(longest, size)
    return Pages(unpacked, values, longest)


def columns_in(metadata: "pq.FileMetaData", encoding: str) -> set[str]:
    """Return the columns with at least one chunk in an encoding, according to the file's footer."""
    groups = [metadata.row_group(group) for group in range(metadata.num_row_groups)]
    chunks = (group.column(number) for group in groups for number in range(group.num_columns))
    return {chunk.path_in_schema for chunk in chunks if encoding in chunk.encodings}


def _is_in_columns(path, names):
    """Return True if a column is one of `names` or nested in one; names may contain dots."""
    parts = path.split(".")
    return any(".".join(parts[:count]) in names for count in range(1, len(parts) + 1))


def _iterate_headers(file, chunk):
    """Yields the page headers of a column chunk in the order in which the reader visits them."""
    position = chunk.data_page_offset
    if chunk.has_dictionary_page and 0 < chunk.dictionary_page_offset < position:
        position = chunk.dictionary_page_offset
    end, remaining = position + chunk.total_compressed_size, chunk.num_values
    while remaining > 0 and position < end:
        header, length = _read_header(file, position)
        if min(header.get(_UNPACKED, -1), header.get(_PACKED, -1)) < 0:
            raise ValueError("a page has no size")
        yield header
        position += length + header[_PACKED]
        remaining -= header.get(_DATA, header.get(_DATA_2, {})).get(_VALUES, 0)


def _read_header(file, position):
    """Returns (fields, length) of the page header at a position."""
    window = WINDOW
    while True:
        file.seek(position)
        data = file.read(window)
        try:
            return _read_struct(data, 0, 0)
        except IndexError:
            if len(data) < window or window >= LARGEST_HEADER:
                raise ValueError("a page header is cut off") from None
            window *= 16


def _read_struct(data, position, depth):
    """Returns `({field: integer or struct}, position after it)`; values of other types are skipped."""
    if depth > _DEPTH:
        raise ValueError("a page header is nested too deeply")
    fields, field = {}, 0
    while kind := data[position]:
        position += 1
        if kind >> 4:
            field += kind >> 4
        else:
            field, position = _read_integer(data, position)
        fields[field], position = _read_value(data, position, kind & 15, depth)
    return fields, position + 1


def _read_value(data, position, kind, depth):
    if kind in _BOOLEANS:
        return kind == 1, position
    if kind in _INTEGERS:
        return _read_integer(data, position) if kind != 3 else (data[position], position + 1)
    if kind == _STRUCT:
        return _read_struct(data, position, depth + 1)
    if kind == _DOUBLE:
        return None, position + 8
    if kind == _BINARY:
        length, position = _read_unsigned(data, position)
        return None, position + length
    raise ValueError("a page header has a field of an unknown type")


def _read_integer(data, position):
    value, position = _read_unsigned(data, position)
    return (value >> 1) ^ -(value & 1), position


def _read_unsigned(data, position):
    value = shift = 0
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return value, position
        if shift > 63:
            raise ValueError("a page header has a number of more than 64 bits")
