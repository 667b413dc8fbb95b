"""Parquet and Arrow files of unknown origin, with pyarrow: which files are which split, and their columns."""

import itertools
import json
import os
from bisect import bisect_right
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from hetero_tf.base.errors import InputError, UserError, did_you_mean, short
from hetero_tf.base.files import opened, read_bytes
from hetero_tf.data.arrow_messages import unpacked_bytes
from hetero_tf.data.data_files import READS
from hetero_tf.data.parquet_pages import columns_in, read_pages
from hetero_tf.data.table_dataset import RawTable
from hetero_tf.data.unpacked import check_unpacked

if TYPE_CHECKING:
    import pyarrow as pa

ENDINGS = (".parquet", ".arrow")
# Names of the test split, the first that is there.
TESTS = ("test", "val", "validation", "valid")
# What a table takes in memory while its columns become arrays, beside what it takes unpacked.
MEMORY = 4
LARGEST_JSON = 2**26
# Bytes that a value takes in memory beside its own: its number in a dictionary, and its place in a list.
PER_VALUE = 16
# Rows that are read at once, and bytes of those whose values may be longer than their pages.
BATCH_ROWS, BATCH_BYTES = 2**16, 2**25


@dataclass(frozen=True)
class Part:
    """The rows of a split.

    Attributes:
        sheet: Its columns; those of pictures are lists of bytes.
        features: What Hugging Face's `datasets` says of the columns: `{name: {...}}`; empty where it says nothing.
    """

    sheet: RawTable
    features: dict


def find_parts(path: Path) -> tuple[list[Path], list[Path] | None]:
    """Returns the files of the training and of the test split; None for the latter where there is no such split.

    Raises:
        InputError: There is no file to read.
    """
    if not path.is_dir():
        return [path], None
    if not _files(path) and (path / "data").is_dir():
        path = path / "data"
    if (path / "train").is_dir():
        tests = [path / name for name in TESTS if (path / name).is_dir()]
        return _some(path / "train"), _some(tests[0]) if tests else None
    by_name = {name: [file for file in _files(path) if _begins(file, name)] for name in ("train", *TESTS)}
    if by_name["train"]:
        return by_name["train"], next((by_name[name] for name in TESTS if by_name[name]), None)
    return _some(path), None


def _begins(file, name):
    return file.name.partition("-")[0].partition(".")[0] == name


def _files(folder):
    return sorted(file for file in folder.iterdir() if file.suffix in ENDINGS and not file.name.startswith("."))


def _some(folder):
    if (folder / "state.json").exists() and _json(folder / "state.json").get("_indices_data_files"):
        raise InputError(
            f"{folder}: its rows are in another order than its files say; flatten_indices() and save_to_disk() again"
        )
    # A folder that `datasets` works with holds files of its cache too.
    found = [file for file in _files(folder) if not file.name.startswith(("cache-", "indices-"))]
    if not found:
        raise InputError(f"{folder}: expected files that end in {' or '.join(ENDINGS)}. Received: none; {READS}")
    return found


def read_part(
    source: str, files: Sequence[Path], wanted: Collection[str] | None, ignore: Collection[str], image: str | None
) -> Part:
    """Reads the columns of files that belong together.

    Args:
        source: What the files are, for a person.
        files: One or more, with the same columns.
        wanted: Names of the columns to read; None: all.
        ignore: Names of columns that are not read.
        image: Name of the column of pictures, or None.

    Raises:
        InputError: A file is damaged or has other columns, a column is missing, or a value is missing or no number or
            text.
        MemoryProblem: They do not fit into memory.
    """
    import pyarrow as pa

    tables = [_table(path, wanted, ignore, image) for path in files]
    for path, table in zip(files, tables):
        if table.schema.types != tables[0].schema.types or table.schema.names != tables[0].schema.names:
            raise InputError(f"{path}: must have the columns of {files[0]}, with the same types")
    ends = list(itertools.accumulate(table.num_rows for table in tables))

    def place(row):
        number = bisect_right(ends, row)
        return f"{files[number]}, row {row - (ends[number - 1] if number else 0)}"

    whole = pa.concat_tables(tables)
    columns = {name: _values(name, whole.column(name), place, name == image) for name in whole.column_names}
    size = sum(path.stat().st_size for path in files)
    return Part(RawTable(source, columns, place, size), _features(whole.schema, files[0].parent))


def _table(path, wanted, ignore, image):
    """The wanted columns of a file as a `pyarrow.Table`, whose every value has been looked at."""
    with opened(path) as file:
        try:
            begin = file.read(6)
            file.seek(0)
            read = _read_parquet if begin.startswith(b"PAR1") else _read_arrow
            return read(path, file, wanted, ignore, image)
        except (UserError, MemoryError):
            raise
        # Crafted bytes make the readers fail in many ways.
        except Exception as error:
            raise InputError(
                f"{path}: cannot be read as a Parquet or Arrow file, it is damaged or something else: "
                f"{short(str(error).splitlines()[0] if str(error) else type(error).__name__)}; {READS}"
            ) from error


def _selected(path, schema, wanted, ignore, image):
    """Names of the columns to read; their types are checked, so that no other column is unpacked."""
    names = schema.names
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise InputError(f"{path}: every column must have a name of its own. Received: {name!r} again")
        seen.add(name)
    for option, listed in (("ignore", ignore), ("label, image and owner", wanted or ())):
        for name in listed:
            if name not in seen:
                raise InputError(f"{path}: {option} must name columns. Received: {name!r}{did_you_mean(name, names)}")
    selected = [name for name in names if name not in ignore and (wanted is None or name in wanted)]
    for name in selected:
        _check_type(path, name, schema.field(name).type, name == image)
    return selected


def _read_parquet(path, file, wanted, ignore, image):
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = pq.read_schema(file)
    names = _selected(path, schema, wanted, ignore, image)
    kinds = {name: schema.field(name).type for name in names}
    texts = {name for name, kind in kinds.items() if pa.types.is_string(kind) or pa.types.is_large_string(kind)}
    file.seek(0)
    metadata = pq.read_metadata(file)
    # The only encoding that pyarrow cannot read into a dictionary.
    texts -= columns_in(metadata, "DELTA_BYTE_ARRAY")
    pages = read_pages(file, metadata, set(names), set(names) - texts)
    file.seek(0)
    reader = pq.ParquetFile(file, metadata=metadata, read_dictionary=sorted(texts))
    values = max(pages.values, metadata.num_rows * len(names))
    packed = os.fstat(file.fileno()).st_size
    check_unpacked(path, pages.unpacked + PER_VALUE * values, packed, MEMORY)
    rows = min(BATCH_ROWS, max(BATCH_BYTES // max(pages.longest, 1), 1))
    batches = reader.iter_batches(rows, columns=names, use_threads=False)
    return _joined(path, batches, reader.schema_arrow, names, packed)


def _read_arrow(path, file, wanted, ignore, image):
    """A stream, or a file, which is a stream after eight bytes and has an index at its end."""
    import pyarrow as pa

    packed, first = os.fstat(file.fileno()).st_size, 8 if file.read(6) == b"ARROW1" else 0
    file.seek(first)
    schema = pa.ipc.open_stream(file).schema
    names = _selected(path, schema, wanted, ignore, image)
    file.seek(first)
    check_unpacked(path, unpacked_bytes(file), packed, MEMORY)
    file.seek(first)
    options = pa.ipc.IpcReadOptions(included_fields=[schema.get_field_index(name) for name in names], use_threads=False)
    return _joined(path, pa.ipc.open_stream(file, options=options), schema, names, packed)


def _joined(path, batches, schema, names, packed):
    """The table of batches, which are counted while they are read: what repeats may still be more than it seems."""
    import pyarrow as pa

    read, size, dictionaries = [], 0, {}
    for batch in batches:
        # Without this, offsets and texts of crafted files are believed.
        batch.validate(full=True)
        read.append(batch)
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
    kinds = read[0].schema if read else pa.schema([schema.field(name) for name in names])
    return pa.Table.from_batches(read, kinds).select(names).replace_schema_metadata(schema.metadata)


def _check_type(path, name, kind, is_image):
    """Raises `InputError` unless a column holds numbers or texts, or pictures where it should."""
    import pyarrow as pa

    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    types = pa.types
    is_binary = types.is_binary(kind) or types.is_large_binary(kind)
    if is_image:
        if types.is_struct(kind):
            kind = next((field.type for field in kind if field.name == "bytes"), kind)
        # Pictures that are all missing have the type null; the sentence about the first one says more.
        if types.is_binary(kind) or types.is_large_binary(kind) or types.is_null(kind):
            return
        raise InputError(f"{path}: column {name!r} must hold the bytes of picture files. Received: {kind}")
    checks = (types.is_integer, types.is_floating, types.is_boolean, types.is_decimal, types.is_string)
    if any(check(kind) for check in (*checks, types.is_large_string)):
        return
    is_picture = is_binary or (types.is_struct(kind) and "bytes" in {field.name for field in kind})
    advice = "leave it out by `ignore`" + ", or name it as `image`" * is_picture
    raise InputError(f"{path}: column {name!r} must hold numbers or texts; {advice}. Received: {short(str(kind), 80)}")


def _values(name, column: "pa.ChunkedArray", place, is_image):
    """Numbers as an array; texts, or the bytes of pictures, as a list."""
    import pyarrow as pa

    if pa.types.is_struct(column.type):
        column = _bytes_of(column)
    is_indexed = pa.types.is_dictionary(column.type)
    kind = column.type.value_type if is_indexed else column.type
    values = _from_dictionaries(column) if is_indexed else None
    empty = column.is_null().to_numpy() if values is None else np.array([value is None for value in values], bool)
    if empty.any():
        advice = (
            "no picture here (its path alone is none); save the pictures themselves, or use data: folder"
            if is_image
            else "no value here; fill it in, remove the row, or leave the column out by `ignore`"
        )
        raise InputError(f"{place(int(empty.argmax()))}: column {name!r} has {advice}")
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


def _from_dictionaries(column):
    """The values of a column with dictionaries as a list; equal values of a dictionary are one object."""
    values, last, words = [], None, []
    for chunk in column.chunks:
        address = [buffer and buffer.address for buffer in chunk.dictionary.buffers()]
        if address != last:
            last, words = address, chunk.dictionary.to_pylist()
        values += [words[index] for index in chunk.indices.to_pylist()]
    return values


def _bytes_of(column):
    """The field bytes of Hugging Face's images."""
    import pyarrow as pa

    return pa.chunked_array([chunk.field("bytes") for chunk in column.chunks] or [pa.array([], pa.binary())])


def _features(schema, folder):
    """What Hugging Face's `datasets` says of the columns, in the file or beside it."""
    told = (schema.metadata or {}).get(b"huggingface")
    try:
        found = json.loads(told)["info"]["features"] if told else _json(folder / "dataset_info.json").get("features")
    except (ValueError, KeyError, TypeError, RecursionError):
        found = None
    return found if isinstance(found, dict) else {}


def _json(path):
    """A mapping in a JSON file; empty where there is none."""
    if not path.exists():
        return {}
    try:
        found = json.loads(read_bytes(path, LARGEST_JSON, follow=True))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: is damaged: {error}") from error
    return found if isinstance(found, dict) else {}
