"""Reads the buffer sizes of an Arrow stream from its messages: the memory that decompression will allocate.

References: Arrow columnar format, "Serialization and Interprocess Communication"; Message.fbs; FlatBuffers internals.
"""

import struct
from typing import BinaryIO

_DICTIONARY, _BATCH = 2, 3
# Positions of fields in their tables.
_HEADER_TYPE, _HEADER, _DICTIONARY_DATA, _BUFFERS, _COMPRESSION = 1, 2, 1, 2, 3


def unpacked_bytes(file: BinaryIO) -> int:
    """Return the decompressed size of all buffers of a stream in bytes; reads the file once.

    Raises:
        ValueError, struct.error: A message is damaged.
        pyarrow.ArrowInvalid: The data are not a stream of messages.
    """
    import pyarrow as pa

    total, reader = 0, pa.ipc.MessageReader.open_stream(file)
    while True:
        try:
            message = reader.read_next_message()
        except StopIteration:
            return total
        total += _message_bytes(message.metadata.to_pybytes(), message.body)


def _message_bytes(metadata, body):
    """Return the decompressed size of one message's buffers in bytes."""
    message = _find_root(metadata)
    kind_at, batch = _find_field(metadata, message, _HEADER_TYPE), _find_table(metadata, message, _HEADER)
    kind = metadata[kind_at] if kind_at else 0
    if kind == _DICTIONARY and batch:
        batch = _find_table(metadata, batch, _DICTIONARY_DATA)
    if kind not in (_DICTIONARY, _BATCH) or not batch or body is None:
        return 0
    if not _find_field(metadata, batch, _COMPRESSION):
        return body.size
    vector, total, data = _find_table(metadata, batch, _BUFFERS), 0, memoryview(body)
    (count,) = struct.unpack_from("<I", metadata, vector)
    for offset, length in struct.iter_unpack("<qq", metadata[vector + 4 : vector + 4 + 16 * count]):
        if length >= 8:
            # A length of -1 marks an uncompressed buffer.
            (unpacked,) = struct.unpack_from("<q", data, offset)
            total += length if unpacked < 0 else unpacked
    return total


def _find_root(data):
    return struct.unpack_from("<I", data, 0)[0]


def _find_field(data, table, number):
    """Return the position of a field's value; 0 if the table lacks the field."""
    vtable = table - struct.unpack_from("<i", data, table)[0]
    if 4 + 2 * number >= struct.unpack_from("<H", data, vtable)[0]:
        return 0
    (offset,) = struct.unpack_from("<H", data, vtable + 4 + 2 * number)
    return table + offset if offset else 0


def _find_table(data, table, number):
    """Return the position of the table or vector that a field refers to; 0 if the field is absent."""
    position = _find_field(data, table, number)
    return position + struct.unpack_from("<I", data, position)[0] if position else 0
