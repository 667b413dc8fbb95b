"""Reads untrusted Parquet and Arrow files with pyarrow: assigns files to splits and reads their columns."""

import itertools
import json
import os
from bisect import bisect_right
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from hetero_tf.base.errors import InputError, UserError, did_you_mean, shorten_repr
from hetero_tf.base.files import open_file, read_bytes
from hetero_tf.data.arrow_messages import unpacked_bytes
from hetero_tf.data.data_files import LOADERS
from hetero_tf.data.parquet_pages import columns_in, read_pages
from hetero_tf.data.table_dataset import RawTable
from hetero_tf.data.unpacked import check_unpacked

if TYPE_CHECKING:
    import pyarrow as pa

ENDINGS = (".parquet", ".arrow")
# Names of the test split in order of preference.
TEST_NAMES = ("test", "val", "validation", "valid")
# Peak memory of a table while its columns become arrays, in multiples of its unpacked size.
MEMORY = 4
LARGEST_JSON = 2**26
# Overhead of a value in bytes: its index into the dictionary and its list entry.
PER_VALUE = 16
# Rows per batch, and bytes per batch if values may be longer than their pages.
BATCH_ROWS, BATCH_BYTES = 2**16, 2**25


@dataclass(frozen=True)
class ArrowSplit:
    """The rows of a split.

    Attributes:
        table: Its columns; columns of pictures are lists of bytes.
        features: Column descriptions of Hugging Face `datasets`, `{name: {...}}`; empty if there are none.
    """

    table: RawTable
    features: dict


def find_splits(path: Path) -> tuple[list[Path], list[Path] | None]:
    """Returns the files of the training and the test split; the latter may be None.

    Raises:
        InputError: The folder has no Parquet or Arrow file.
    """
    if not path.is_dir():
        return [path], None
    if not _list_files(path) and (path / "data").is_dir():
        path = path / "data"
    if (path / "train").is_dir():
        test_folders = [path / name for name in TEST_NAMES if (path / name).is_dir()]
        return _split_files(path / "train"), _split_files(test_folders[0]) if test_folders else None
    by_name = {name: [file for file in _list_files(path) if _has_prefix(file, name)] for name in ("train", *TEST_NAMES)}
    if by_name["train"]:
        return by_name["train"], next((by_name[name] for name in TEST_NAMES if by_name[name]), None)
    return _split_files(path), None


def _has_prefix(file, name):
    return file.name.partition("-")[0].partition(".")[0] == name


def _list_files(folder):
    return sorted(file for file in folder.iterdir() if file.suffix in ENDINGS and not file.name.startswith("."))


def _split_files(folder):
    if (folder / "state.json").exists() and _read_json(folder / "state.json").get("_indices_data_files"):
        raise InputError(
            f"{folder}: the data set was saved with an indices mapping; call flatten_indices() and save_to_disk() again"
        )
    # `datasets` also writes cache files into its folders.
    files = [file for file in _list_files(folder) if not file.name.startswith(("cache-", "indices-"))]
    if not files:
        raise InputError(f"{folder}: expected {' or '.join(ENDINGS)} files. Received: none; {LOADERS}")
    return files


def read_split(
    source: str, files: Sequence[Path], requested: Collection[str] | None, ignore: Collection[str], image: str | None
) -> ArrowSplit:
    """Reads the columns of the files of one split.

    Args:
        source: Description of the files for messages.
        files: One or more files with the same columns.
        wanted: Names of the columns to read; None: all.
        ignore: Names of columns to skip.
        image: Name of the picture column, or None.

    Raises:
        InputError: A file is damaged, the files have different columns, a column is missing, or a value is missing or
            neither number nor text.
        MemoryProblem: The columns do not fit into memory.
    """
    import pyarrow as pa

    tables = [_read_file(path, requested, ignore, image) for path in files]
    for path, table in zip(files, tables):
        if table.schema.types != tables[0].schema.types or table.schema.names != tables[0].schema.names:
            raise InputError(f"{path}: must have the columns of {files[0]}, with the same types")
    ends = list(itertools.accumulate(table.num_rows for table in tables))

    def locate(row):
        index = bisect_right(ends, row)
        return f"{files[index]}, row {row - (ends[index - 1] if index else 0)}"

    combined = pa.concat_tables(tables)
    columns = {
        name: _convert_column(name, combined.column(name), locate, name == image) for name in combined.column_names
    }
    size = sum(path.stat().st_size for path in files)
    return ArrowSplit(RawTable(source, columns, locate, size), _read_features(combined.schema, files[0].parent))


def _read_file(path, requested, ignore, image):
    """Reads the requested columns of a file into a fully validated `pyarrow.Table`."""
    with open_file(path) as file:
        try:
            begin = file.read(6)
            file.seek(0)
            read = _read_parquet if begin.startswith(b"PAR1") else _read_arrow
            return read(path, file, requested, ignore, image)
        except (UserError, MemoryError):
            raise
        # Malformed bytes make the readers raise many kinds of exceptions.
        except Exception as error:
            raise InputError(
                f"{path}: cannot be read as a Parquet or Arrow file; it is damaged or has another format: "
                f"{shorten_repr(str(error).splitlines()[0] if str(error) else type(error).__name__)}; {LOADERS}"
            ) from error


def _select_columns(path, schema, requested, ignore, image):
    """Returns the names of the columns to read, after a check of their types; other columns are never unpacked."""
    names = schema.names
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise InputError(f"{path}: column names must be unique. Received: {name!r} twice")
        seen.add(name)
    for option, listed in (("ignore", ignore), ("label, image and owner", requested or ())):
        for name in listed:
            if name not in seen:
                raise InputError(f"{path}: {option} must name columns. Received: {name!r}{did_you_mean(name, names)}")
    selected = [name for name in names if name not in ignore and (requested is None or name in requested)]
    for name in selected:
        _check_type(path, name, schema.field(name).type, name == image)
    return selected


def _read_parquet(path, file, requested, ignore, image):
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = pq.read_schema(file)
    names = _select_columns(path, schema, requested, ignore, image)
    kinds = {name: schema.field(name).type for name in names}
    texts = {name for name, kind in kinds.items() if pa.types.is_string(kind) or pa.types.is_large_string(kind)}
    file.seek(0)
    metadata = pq.read_metadata(file)
    # pyarrow cannot read this encoding into a dictionary.
    texts -= columns_in(metadata, "DELTA_BYTE_ARRAY")
    pages = read_pages(file, metadata, set(names), set(names) - texts)
    file.seek(0)
    reader = pq.ParquetFile(file, metadata=metadata, read_dictionary=sorted(texts))
    values = max(pages.values, metadata.num_rows * len(names))
    packed = os.fstat(file.fileno()).st_size
    check_unpacked(path, pages.unpacked + PER_VALUE * values, packed, MEMORY)
    rows = min(BATCH_ROWS, max(BATCH_BYTES // max(pages.longest, 1), 1))
    batches = reader.iter_batches(rows, columns=names, use_threads=False)
    return _concatenate(path, batches, reader.schema_arrow, names, packed)


def _read_arrow(path, file, requested, ignore, image):
    """Reads an Arrow stream or file; a file is a stream after an eight-byte header, with an index at the end."""
    import pyarrow as pa

    packed, first = os.fstat(file.fileno()).st_size, 8 if file.read(6) == b"ARROW1" else 0
    file.seek(first)
    schema = pa.ipc.open_stream(file).schema
    names = _select_columns(path, schema, requested, ignore, image)
    file.seek(first)
    check_unpacked(path, unpacked_bytes(file), packed, MEMORY)
    file.seek(first)
    options = pa.ipc.IpcReadOptions(included_fields=[schema.get_field_index(name) for name in names], use_threads=False)
    return _concatenate(path, pa.ipc.open_stream(file, options=options), schema, names, packed)


def _concatenate(path, batches, schema, names, packed):
    """Concatenates batches and checks their size while reading: repeated values may unpack to more than estimated."""
    import pyarrow as pa

    parts, size, dictionaries = [], 0, {}
    for batch in batches:
        # Otherwise pyarrow trusts the offsets and strings of malformed files.
        batch.validate(full=True)
        parts.append(batch)
        size += batch.num_rows * len(names) * PER_VALUE
        for name, column in zip(batch.schema.names, batch.columns):
            if not pa.types.is_dictionary(column.type):
                size += column.nbytes
                continue
            last = tuple(buffer and buffer.address for buffer in column.dictionary.buffers())
            if dictionaries.get(name) != last:
                dictionaries[name] = last
                size += column.dictionary.nbytes + PER_VALUE * len(column.dictionary)
        check_unpacked(path, size, packed, MEMORY)
    kinds = parts[0].schema if parts else pa.schema([schema.field(name) for name in names])
    return pa.Table.from_batches(parts, kinds).select(names).replace_schema_metadata(schema.metadata)


def _check_type(path, name, kind, is_image):
    """Raises `InputError` unless a column has numbers or texts, or bytes if it is the picture column."""
    import pyarrow as pa

    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    types = pa.types
    is_binary = types.is_binary(kind) or types.is_large_binary(kind)
    if is_image:
        if types.is_struct(kind):
            kind = next((field.type for field in kind if field.name == "bytes"), kind)
        # A column without any value has type null; the message about its first row is more helpful.
        if types.is_binary(kind) or types.is_large_binary(kind) or types.is_null(kind):
            return
        raise InputError(f"{path}: column {name!r} must contain the bytes of picture files. Received: {kind}")
    checks = (types.is_integer, types.is_floating, types.is_boolean, types.is_decimal, types.is_string)
    if any(check(kind) for check in (*checks, types.is_large_string)):
        return
    is_picture = is_binary or (types.is_struct(kind) and "bytes" in {field.name for field in kind})
    advice = "add it to `ignore`" + ", or set it as `image`" * is_picture
    raise InputError(
        f"{path}: column {name!r} must contain numbers or texts; {advice}. Received: {shorten_repr(str(kind), 80)}"
    )


def _convert_column(name, column: "pa.ChunkedArray", locate, is_image):
    """Returns numbers as an array, and texts or picture bytes as a list."""
    import pyarrow as pa

    if pa.types.is_struct(column.type):
        column = _get_bytes_field(column)
    is_indexed = pa.types.is_dictionary(column.type)
    kind = column.type.value_type if is_indexed else column.type
    values = _decode_dictionaries(column) if is_indexed else None
    missing = column.is_null().to_numpy() if values is None else np.array([value is None for value in values], bool)
    if missing.any():
        advice = (
            "no picture bytes here, only a path; embed the pictures in the file, or use data: folder"
            if is_image
            else "no value here; fill it in, remove the row, or add the column to `ignore`"
        )
        raise InputError(f"{locate(int(missing.argmax()))}: column {name!r} has {advice}")
    if is_image or not _is_numeric(kind):
        return column.to_pylist() if values is None else values
    if values is not None:
        return np.asarray(values, np.float64)
    if pa.types.is_decimal(kind) or pa.types.is_boolean(kind):
        column = column.cast(pa.float64() if pa.types.is_decimal(kind) else pa.int8())
    return np.asarray(column.to_numpy())


def _is_numeric(kind):
    import pyarrow as pa

    types = pa.types
    return any(check(kind) for check in (types.is_integer, types.is_floating, types.is_boolean, types.is_decimal))


def _decode_dictionaries(column):
    """Returns the values of a dictionary-encoded column as a list; equal values share one object."""
    values, last, words = [], None, []
    for chunk in column.chunks:
        address = [buffer and buffer.address for buffer in chunk.dictionary.buffers()]
        if address != last:
            last, words = address, chunk.dictionary.to_pylist()
        values += [words[index] for index in chunk.indices.to_pylist()]
    return values


def _get_bytes_field(column):
    """Returns the `bytes` field of a Hugging Face image column."""
    import pyarrow as pa

    return pa.chunked_array([chunk.field("bytes") for chunk in column.chunks] or [pa.array([], pa.binary())])


def _read_features(schema, folder):
    """Reads the Hugging Face `datasets` features from the file schema or from dataset_info.json."""
    metadata = (schema.metadata or {}).get(b"huggingface")
    try:
        features = (
            json.loads(metadata)["info"]["features"]
            if metadata
            else _read_json(folder / "dataset_info.json").get("features")
        )
    except (ValueError, KeyError, TypeError, RecursionError):
        features = None
    return features if isinstance(features, dict) else {}


def _read_json(path):
    """Reads a mapping from a JSON file; empty if the file is missing."""
    if not path.exists():
        return {}
    try:
        content = json.loads(read_bytes(path, LARGEST_JSON, follow=True))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: is damaged: {error}") from error
    return content if isinstance(content, dict) else {}
