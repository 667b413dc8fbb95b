"""Reads the buffer sizes of an Arrow stream from its messages: the memory that decompression will allocate.

References: Arrow columnar format, "Serialization and Interprocess Communication"; Message.fbs; FlatBuffers internals.
"""

import struct
from typing import BinaryIO

# Positions of fields in the tables Message, DictionaryBatch and RecordBatch.
_HEADER, _DICTIONARY_DATA, _BUFFERS, _COMPRESSION = 2, 1, 2, 3


def unpacked_bytes(file: BinaryIO) -> int:
    """Return the decompressed size of all buffers of a stream in bytes; reads the file once.

    Raises:
        ValueError, struct.error: A message is damaged.
        pyarrow.ArrowInvalid: The data are not a stream of messages.
    """
    import pyarrow as pa

    messages = iter(pa.ipc.MessageReader.open_stream(file))
    return sum(_buffer_bytes(message) for message in messages if message.type in ("record batch", "dictionary"))


def _buffer_bytes(message):
    """Return the decompressed size of one message's buffers in bytes."""
    metadata, body = message.metadata.to_pybytes(), memoryview(message.body)
    batch = _find_table(metadata, struct.unpack_from("<I", metadata)[0], _HEADER)
    if message.type == "dictionary":
        batch = _find_table(metadata, batch, _DICTIONARY_DATA)
    if not _find_field(metadata, batch, _COMPRESSION):
        return len(body)
    vector, total = _find_table(metadata, batch, _BUFFERS), 0
    (count,) = struct.unpack_from("<I", metadata, vector)
    for offset, length in struct.iter_unpack("<qq", metadata[vector + 4 : vector + 4 + 16 * count]):
        if length >= 8:
            # A length of -1 marks an uncompressed buffer.
            (unpacked,) = struct.unpack_from("<q", body, offset)
            total += length if unpacked < 0 else unpacked
    return total


def _find_field(data, table, number):
    """Return the position of a field's value; 0 if the table lacks the field."""
    vtable = table - struct.unpack_from("<i", data, table)[0]
    if 4 + 2 * number >= struct.unpack_from("<H", data, vtable)[0]:
        return 0
    (offset,) = struct.unpack_from("<H", data, vtable + 4 + 2 * number)
    return table + offset if offset else 0


def _find_table(data, table, number):
    """Return the position of the table or vector that a field refers to."""
    position = _find_field(data, table, number)
    return position + struct.unpack_from("<I", data, position)[0]
