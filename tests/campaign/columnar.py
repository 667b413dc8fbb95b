"""Trials with Arrow and Parquet files: damaged, nested or mislabelled."""

import contextlib
import json
import os
import time

import numpy as np

from campaign.data_files import flipped
from campaign.inputs import SECONDS, sentence
from campaign.world import Failed
from hetero_tf.base.errors import UserError
from hetero_tf.data import parquet

ROWS = 40
CODECS = ("none", "snappy", "gzip", "zstd", "lz4", "brotli")
LABELS = (
    lambda rng: [("cow", "ox")[row % 2] for row in range(ROWS)],
    lambda rng: [row % 3 for row in range(ROWS)],
    lambda rng: [rng.choice(("a", "", " ", "\x1b[31m", "\ufeffa", "é", "nan", "1_3", "x" * 5000)) for _ in range(ROWS)],
    lambda rng: [rng.choice((0, 1, -1, 2**62, -(2**63))) for _ in range(ROWS)],
    lambda rng: [rng.choice((0.0, 1.0, 0.5, float("nan"), float("inf"))) for _ in range(ROWS)],
    lambda rng: [None if row % 7 == 0 else row % 2 for row in range(ROWS)],
    lambda rng: [row % 2 == 0 for row in range(ROWS)],
    lambda rng: [[row % 2] for row in range(ROWS)],
    lambda rng: ["one"] * ROWS,
    lambda rng: list(range(ROWS)),
)
FEATURES = (
    {"label": {"names": ["ox", "cow"], "_type": "ClassLabel"}}, {"label": {"names": []}}, {"label": {"names": [1, None]}},
    {"label": {"names": ["\x1b[31m", "a" * 10**5]}}, {"label": []}, [], None, "x", {"label": {"names": ["a"] * 2}}, {"label": None},
)  # fmt: skip


def columns(rng):
    """Named `pyarrow` columns of equal length with one to four random types."""
    import pyarrow as pa

    numbers = np.arange(ROWS)
    kinds = (
        lambda: pa.array(numbers + 0.5),
        lambda: pa.array(numbers, pa.int8()),
        lambda: pa.array(numbers, pa.uint64()),
        lambda: pa.array((numbers / 7).astype(np.float16)),
        lambda: pa.array([rng.choice((1.0, float("nan"), float("-inf"), 1e308, None)) for _ in numbers], pa.float64()),
        lambda: pa.array([f"c{row % 3}" for row in numbers]).dictionary_encode(),
        lambda: pa.array([f"{row},5" for row in numbers], pa.large_string()),
        lambda: pa.array([b"\xff\xfe"] * ROWS),
        lambda: pa.array([b"\x89PNG\r\n\x1a\n" + bytes(row) for row in numbers]),
        lambda: pa.array([{"bytes": b"BM", "path": "../../etc/passwd"}] * ROWS),
        lambda: pa.array([{"bytes": None, "path": "/etc/passwd"}] * ROWS, pa.struct([("bytes", pa.binary()), ("path", pa.string())])),
        lambda: pa.array([[row] * (row % 4) for row in numbers]),
        lambda: pa.array([[{"a": [row]}] for row in numbers]),
        lambda: pa.array([{"a": {"b": {"c": row}}} for row in numbers.tolist()]),
        lambda: pa.array([[("k", row)] for row in numbers.tolist()], pa.map_(pa.string(), pa.int64())),
        lambda: pa.array([None] * ROWS),
        lambda: pa.array(numbers, pa.timestamp("ns")),
        lambda: pa.array(numbers.astype(np.int32), pa.date32()),
        lambda: pa.array(numbers, pa.duration("us")),
        lambda: pa.array(numbers.tolist()).cast(pa.decimal128(38, 10)),
        lambda: pa.array(["x" * 100_000] * ROWS),
        lambda: pa.array([f"row {row}" for row in numbers], pa.string_view()),
    )  # fmt: skip
    names = rng.sample(("height", "b", "", " ", "\x1b[31m", "a.b", "é", "x" * 3000, "label ", "b"), rng.randint(1, 4))
    return [(name, rng.choice(kinds if rng.random() < 0.4 else kinds[:3])()) for name in names]


def table_of(rng):
    """A small table with odd columns, and a column "label" most of the time."""
    import pyarrow as pa

    named = columns(rng)
    if rng.random() < 0.95:
        with contextlib.suppress(pa.ArrowException):
            named.append(("label", pa.array(rng.choice(LABELS if rng.random() < 0.5 else LABELS[:2])(rng))))
    rng.shuffle(named)
    table = pa.Table.from_arrays([array for _, array in named], [name for name, _ in named])
    if rng.random() < 0.15:
        about = json.dumps({"info": {"features": rng.choice(FEATURES)}})
        table = table.replace_schema_metadata(
            {b"huggingface": rng.choice((about, "{", "[" * 9000, "\xff")).encode("latin-1")}
        )
    return table


def write(table, path, rng):
    """Write a table as Parquet, or as an Arrow file or stream, with a random codec; False if the format lacks its type."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        if path.suffix == ".parquet":
            pages = {"data_page_size": rng.choice((64, 2**20)), "row_group_size": rng.choice((7, 2**30))}
            pq.write_table(table, path, compression=rng.choice(CODECS), use_dictionary=rng.random() < 0.6, **pages)
        else:
            options = pa.ipc.IpcWriteOptions(compression=rng.choice((None, "lz4", "zstd")))
            new = rng.choice((pa.ipc.new_file, pa.ipc.new_stream))
            with pa.OSFile(str(path), "wb") as sink, new(sink, table.schema, options=options) as writer:
                writer.write_table(table)
    except (pa.ArrowException, ValueError):
        return False
    return True


def loaded(path, rng):
    """Load a file within the limit of processor time; return "loaded" or "refused"."""
    options = {"path": path.name, "label": "label"}
    if rng.random() < 0.2:
        options |= {"image": rng.choice(("b", "height", "label", "none")), "size": 8}
    elif rng.random() < 0.2:
        options |= {rng.choice(("owner", "test")): rng.choice(("b", "label", path.name))}
    elif rng.random() < 0.3:
        options |= {"categorical": ("b",), "categories": rng.choice(("one_hot", "numbers"))}
    began, outcome = time.process_time(), "loaded"
    try:
        dataset = parquet.load(path.parent, **options)
        if dataset.kind == "table" and not np.isfinite(dataset.train.x).all():
            raise Failed(f"{options}: loaded NaN or infinity")
    except UserError as problem:
        sentence(problem)
        outcome = "refused"
    took = time.process_time() - began
    if took > SECONDS:
        raise Failed(f"{path.stat().st_size} bytes took {took:.1f} s of the processor")
    return outcome


def columnar_file(world, rng):
    """A small file with odd columns, complete, with changed bytes or truncated: data or one message."""
    path = world.folder / f"data.{rng.choice(('parquet', 'arrow'))}"
    if not write(table_of(rng), path, rng):
        return "not written"
    data = flipped(path.read_bytes(), rng, rng.choice((0, 0, 0, 1, 3, 20)))
    if rng.random() < 0.2:
        data = data[: rng.randrange(len(data))]
    path.write_bytes(data)
    try:
        return f"{path.suffix[1:]}: {loaded(path, rng)}"
    finally:
        os.unlink(path)


TRIALS = (columnar_file,)
