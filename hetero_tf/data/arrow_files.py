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

from hetero_tf.base.errors import BadInput, Refusal, did_you_mean, short
from hetero_tf.base.files import opened, read_bytes
from hetero_tf.base.hardware import check_memory
from hetero_tf.data.files import READS
from hetero_tf.data.tables import Sheet

if TYPE_CHECKING:
    import pyarrow as pa

ENDINGS = (".parquet", ".arrow")
# Names of the test split, the first that is there.
TESTS = ("test", "val", "validation", "valid")
# What a table takes in memory while its columns become arrays, beside what it takes unpacked.
MEMORY = 4
LARGEST_JSON = 2**26


@dataclass(frozen=True)
class Part:
    """The rows of a split.

    Attributes:
        sheet: Its columns; those of pictures are lists of bytes.
        features: What Hugging Face's `datasets` says of the columns: `{name: {...}}`; empty where it says nothing.
    """

    sheet: Sheet
    features: dict


def find_parts(path: Path) -> tuple[list[Path], list[Path] | None]:
    """Returns the files of the training and of the test split; None for the latter where there is no such split.

    Raises:
        BadInput: There is no file to read.
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
        raise BadInput(
            f"{folder}: its rows are in another order than its files say; flatten_indices() and save_to_disk() again"
        )
    # A folder that `datasets` works with holds files of its cache too.
    found = [file for file in _files(folder) if not file.name.startswith(("cache-", "indices-"))]
    if not found:
        raise BadInput(f"{folder}: expected files that end in {' or '.join(ENDINGS)}. Received: none; {READS}")
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
        BadInput: A file is damaged or has other columns, a column is missing, or a value is missing or no number or
            text.
        MemoryProblem: They do not fit into memory.
    """
    import pyarrow as pa

    tables = [_table(path) for path in files]
    for path, table in zip(files, tables):
        if table.schema.types != tables[0].schema.types or table.schema.names != tables[0].schema.names:
            raise BadInput(f"{path}: must have the columns of {files[0]}, with the same types")
    ends = list(itertools.accumulate(table.num_rows for table in tables))

    def place(row):
        number = bisect_right(ends, row)
        return f"{files[number]}, row {row - (ends[number - 1] if number else 0)}"

    whole = pa.concat_tables(tables)
    for option, names in (("ignore", ignore), ("label, image and owner", wanted or ())):
        for name in names:
            if name not in whole.column_names:
                raise BadInput(
                    f"{source}: {option} must name columns. Received: {name!r}{did_you_mean(name, whole.column_names)}"
                )
    kept = [name for name in whole.column_names if name not in ignore and (wanted is None or name in wanted)]
    columns = {name: _values(name, whole.column(name), place, name == image) for name in kept}
    return Part(Sheet(source, columns, place), _features(whole.schema, files[0].parent))


def _table(path):
    """The `pyarrow.Table` of a file, whose every value has been looked at."""
    with opened(path) as file:
        try:
            table = _read(path, file)
            # Without this, offsets and texts of crafted files are believed.
            table.validate(full=True)
            names = table.column_names
        except (Refusal, MemoryError):
            raise
        # Crafted bytes make the readers fail in many ways.
        except Exception as error:
            raise BadInput(
                f"{path}: cannot be read as a Parquet or Arrow file, it is damaged or something else: "
                f"{short(str(error).splitlines()[0] if str(error) else type(error).__name__)}; {READS}"
            ) from error
    twice = [name for place, name in enumerate(names) if name in names[:place]]
    if twice:
        raise BadInput(f"{path}: every column must have a name of its own. Received: {twice[0]!r} again")
    return table


def _read(path, file):
    """What the first bytes of a file say that it is: Parquet, or Arrow as a file or as a stream."""
    import pyarrow as pa
    import pyarrow.parquet

    begins = file.read(6)
    file.seek(0)
    if not begins.startswith(b"PAR1"):
        check_memory(path, MEMORY * os.fstat(file.fileno()).st_size)
        return (pa.ipc.open_file if begins == b"ARROW1" else pa.ipc.open_stream)(file).read_all()
    rows = pa.parquet.ParquetFile(file)
    groups = (rows.metadata.row_group(number) for number in range(rows.metadata.num_row_groups))
    check_memory(path, MEMORY * sum(group.total_byte_size for group in groups))
    return rows.read()


def _values(name, column: "pa.ChunkedArray", place, is_image):
    """Numbers as an array; texts, or the bytes of pictures, as a list."""
    import pyarrow as pa

    kind = column.type
    if pa.types.is_dictionary(kind):
        kind, column = kind.value_type, column.cast(kind.value_type)
    if pa.types.is_struct(kind) and {field.name for field in kind} >= {"bytes"}:
        column = _bytes_of(column)
        kind = column.type
    if column.null_count:
        advice = (
            "no picture here (its path alone is none); save the pictures themselves, or use data: folder"
            if is_image
            else "no value here; fill it in, remove the row, or leave the column out by `ignore`"
        )
        raise BadInput(f"{place(int(column.is_null().to_numpy().argmax()))}: column {name!r} has {advice}")
    if not is_image and (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        return np.asarray(column.to_numpy())
    if not is_image and (pa.types.is_boolean(kind) or pa.types.is_decimal(kind)):
        return np.asarray(column.cast(pa.float64() if pa.types.is_decimal(kind) else pa.int8()).to_numpy())
    text = pa.types.is_string(kind) or pa.types.is_large_string(kind)
    binary = pa.types.is_binary(kind) or pa.types.is_large_binary(kind)
    if binary if is_image else text:
        return column.to_pylist()
    wanted = "the bytes of picture files" if is_image else "numbers or texts"
    advice = "" if is_image else "; leave it out by `ignore`" + ", or name it as `image`" * binary
    raise BadInput(f"{place(0)}: column {name!r} must hold {wanted}{advice}. Received: {kind}")


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
        raise BadInput(f"{path}: is damaged: {error}") from error
    return found if isinstance(found, dict) else {}
