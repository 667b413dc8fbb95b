"""Read Parquet, Arrow and Feather files, and folders of Hugging Face's `datasets`, with pyarrow."""

import contextlib
import itertools
import json
from bisect import bisect_right
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from hetero_tf.base.errors import InputError, shorten_repr
from hetero_tf.base.files import open_file
from hetero_tf.data.columns import RawTable, TextColumn, normalize
from hetero_tf.data.data_files import LOADERS, find_split_names

if TYPE_CHECKING:
    import pyarrow as pa

ENDINGS = (".parquet", ".arrow", ".feather", ".pq")
# Contents of features and labels, and of columns that are read only if they are requested.
FEATURES, PICTURES = ("numbers", "texts", "dates"), ("bytes", "nothing")
ColumnNames = Collection[str | None] | None


def content_of(type_: "pa.DataType") -> str:
    """Return "numbers", "texts", "dates", "lists" of texts, "bytes" (also in a struct), "nothing" or "other"."""
    from pyarrow import types

    if types.is_struct(type_):
        # Pictures of Hugging Face have bytes and a path.
        inner = [field.type for field in type_ if field.name == "bytes"]
        return content_of(inner[0]) if len(inner) == 1 and content_of(inner[0]) in ("bytes", "nothing") else "other"
    if types.is_dictionary(type_):
        type_ = type_.value_type
    if types.is_list(type_) or types.is_large_list(type_):
        return "lists" if content_of(type_.value_type) == "texts" else "other"
    checks = {
        "numbers": (types.is_integer, types.is_floating, types.is_boolean, types.is_decimal),
        "texts": (types.is_string, types.is_large_string),
        "dates": (types.is_date, types.is_timestamp),
        "bytes": (types.is_binary, types.is_large_binary),
        "nothing": (types.is_null,),
    }
    return next((content for content, each in checks.items() if any(check(type_) for check in each)), "other")


def read_arrow(source: str, files: Sequence[Path], names: ColumnNames = None) -> tuple[RawTable, dict[bytes, bytes]]:
    """Read the columns of one or more files with the same columns; lists of texts become texts, pictures their bytes.

    Args:
        source: Description of the files for messages.
        files: The files.
        names: Names of the columns to read; None: all but pictures.

    Returns:
        The table and the metadata of its schema.

    Raises:
        InputError: A file is damaged, or the files have different columns.
    """
    import pyarrow as pa

    tables = []
    for path in files:
        with _open(path) as (schema, read):
            if len(set(schema.names)) < len(schema.names):
                name, _ = Counter(schema.names).most_common(1)[0]
                raise InputError(f"{path}: column names must be unique. Received: {name!r} twice")
            contents = {each.name: content_of(each.type) for each in schema}
            readable = (*FEATURES, "lists", *(PICTURES if names else ()))
            read_names = [name for name in contents if contents[name] in readable and name in (names or contents)]
            tables.append(read(read_names).select(read_names))
            odd_types = {normalize(each.name): str(each.type) for each in schema if contents[each.name] not in FEATURES}
            # Otherwise pyarrow trusts the offsets and texts of damaged files.
            tables[-1].validate(full=True)
    for path, table in zip(files, tables):
        if table.schema.types != tables[0].schema.types or table.schema.names != tables[0].schema.names:
            raise InputError(f"{path}: must have the columns of {files[0]}, with the same types")
    ends = list(itertools.accumulate(table.num_rows for table in tables))

    def locate(row):
        index = bisect_right(ends, row)
        return f"{files[index]}, row {row - (ends[index - 1] if index else 0)}"

    combined = pa.concat_tables(tables)
    columns = {normalize(name): _convert_column(name, combined.column(name), locate) for name in combined.column_names}
    return RawTable(source, columns, locate, odd_types=odd_types), combined.schema.metadata or {}


@contextlib.contextmanager
def _open(path):
    """Yield the schema of a file, and the function that reads columns; damaged files raise `InputError`."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    with open_file(path) as file:
        try:
            start = file.read(6)
            file.seek(0)
            if start.startswith(b"PAR1"):
                parquet = pq.ParquetFile(file)
                yield parquet.schema_arrow, lambda names: parquet.read(names, use_threads=False)
            else:
                reader = (pa.ipc.open_file if start == b"ARROW1" else pa.ipc.open_stream)(file)
                yield reader.schema, lambda names: reader.read_all()
        except InputError:
            raise
        except (pa.ArrowException, OSError, ValueError, KeyError) as error:
            problem = shorten_repr(str(error).partition("\n")[0] or type(error).__name__)
            raise InputError(f"{path}: is damaged, or not a Parquet or Arrow file: {problem}; {LOADERS}") from error


def _convert_column(name, column: "pa.ChunkedArray", locate):
    """Return numbers as an array, texts as a `TextColumn`, and pictures as a list of bytes."""
    import pyarrow as pa
    import pyarrow.compute as pc

    content = content_of(column.type)
    if pa.types.is_struct(column.type):
        column = pc.struct_field(column, [column.type.get_field_index("bytes")])
    if content in PICTURES:
        if column.null_count:
            row = int(column.is_null().to_numpy().argmax())
            advice = "no picture bytes here, only a path; embed the pictures in the file, or use data: folder"
            raise InputError(f"{locate(row)}: column {name!r} has {advice}")
        return column.to_pylist()
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if content == "lists":
        return TextColumn.from_values("" if value is None else str(value) for value in column.to_pylist())
    if content == "dates":
        # Times with a zone are stored in UTC.
        column = column.cast(pa.timestamp("us"), safe=False).cast(pa.string())
    if content != "numbers":
        return TextColumn.from_values("" if value is None else value for value in column.to_pylist())
    if pa.types.is_decimal(column.type) or pa.types.is_boolean(column.type):
        column = column.cast(pa.float64() if pa.types.is_decimal(column.type) else pa.int8())
    return np.asarray(column.to_numpy())


def read_splits(
    source: Path, test: Path | None, names: ColumnNames = None, label: str | None = None
) -> tuple[list[RawTable], tuple[str, ...] | None]:
    """Read the tables of the training rows and, if present, of the test rows, see `table_files.read_tables`."""
    files, test_files = find_splits(source)
    contents = [read_arrow(str(source), files, names)]
    if test_files := test_files if test is None else find_splits(test)[0]:
        contents.append(read_arrow(str(test or source), test_files, names))
    classes = None if label is None else _read_class_names(contents[0][1], files[0].parent, label)
    return [table if classes is None else _name_labels(table, label, classes) for table, _ in contents], classes


def find_splits(path: Path) -> tuple[list[Path], list[Path] | None]:
    """Return the files of the training and the test split of a file or folder; the latter may be None."""
    if not path.is_dir():
        return [path], None
    folder = path if _list_files(path) or not (path / "data").is_dir() else path / "data"
    trains, tests = find_split_names(each.name for each in folder.iterdir() if each.is_dir())
    if trains:
        return _split_files(folder / trains[0]), _split_files(folder / tests[0]) if tests else None
    files = _list_files(folder)
    names = find_split_names(file.name for file in files)
    train, test = ([file for file in files if file.name in each] for each in names)
    return train or _split_files(folder), test or None


def _list_files(folder):
    return sorted(file for file in folder.iterdir() if file.suffix in ENDINGS and not file.name.startswith("."))


def _split_files(folder):
    if _read_json(folder / "state.json").get("_indices_data_files"):
        raise InputError(
            f"{folder}: the data set was saved with an indices mapping; call flatten_indices() and save_to_disk() again"
        )
    # `datasets` also writes cache files into its folders.
    files = [file for file in _list_files(folder) if not file.name.startswith(("cache-", "indices-"))]
    if not files:
        raise InputError(f"{folder}: expected {' or '.join(ENDINGS)} files. Received: none; {LOADERS}")
    return files


def _read_json(path):
    """Read a mapping from a JSON file; empty if the file is missing."""
    if not path.exists():
        return {}
    try:
        content = json.loads(path.read_bytes())
    except ValueError as error:
        raise InputError(f"{path}: is damaged: {error}") from error
    return content if isinstance(content, dict) else {}


def _read_class_names(metadata, folder, label):
    """Return the class names from Hugging Face's metadata in the schema or in dataset_info.json, or None."""
    try:
        if b"huggingface" in metadata:
            names = json.loads(metadata[b"huggingface"])["info"]["features"][label]["names"]
        else:
            names = _read_json(folder / "dataset_info.json")["features"][label]["names"]
    except (ValueError, KeyError, TypeError):
        return None
    return tuple(names) if isinstance(names, list) and all(isinstance(name, str) for name in names) else None


def _name_labels(table, label, names):
    values = table.columns.get(label)
    if not isinstance(values, np.ndarray):
        return table
    invalid = np.flatnonzero(~np.isin(values, np.arange(len(names))))
    if len(invalid):
        problem = f"must be in 0..{len(names) - 1}, since the file has {len(names)} class names"
        raise table.value_error(int(invalid[0]), label, f"{problem}. Received: {values[invalid[0]]}")
    return replace(table, columns={**table.columns, label: TextColumn(list(names), values.astype(np.int64))})
