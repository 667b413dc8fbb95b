"""Small files that would become large in memory are rejected before the memory is taken."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hetero_tf.base.errors import InputError, MemoryProblem
from hetero_tf.data import arrow_files, csv, parquet, unpacked
from hetero_tf.data.parquet_pages import read_pages

ROWS = 400_000


@pytest.fixture(autouse=True)
def smaller_limits(monkeypatch):
    """A hundredth of the limits, so that files of a second show them."""
    monkeypatch.setattr(unpacked, "MIN_LIMIT", 2**20)


def ipc(path, table, compression, stream=True):
    new = pa.ipc.new_stream if stream else pa.ipc.new_file
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.OSFile(str(path), "wb") as sink, new(sink, table.schema, options=options) as writer:
        writer.write_table(table)


def numbers():
    return pa.table({"x": np.zeros(ROWS), "label": np.zeros(ROWS, np.int8)})


def texts(count=60, length=40_000):
    return pa.table({"x": ["a" * length] * count, "label": np.arange(count) % 2})


def categories():
    repeated = pa.DictionaryArray.from_arrays(np.zeros(ROWS, np.int32), ["a" * 9000, "b"])
    return pa.table({"x": repeated, "label": np.arange(ROWS, dtype=np.int8) % 2})


@pytest.mark.parametrize(
    ("table", "options"),
    [
        (numbers, {"compression": "zstd", "use_dictionary": False}),
        (numbers, {"compression": "snappy"}),
        (categories, {"compression": "zstd"}),
    ],
)
def test_pages_of_parquet_that_become_large_are_rejected(tmp_path, monkeypatch, table, options):
    pq.write_table(table(), tmp_path / "small.parquet", **options)
    monkeypatch.setattr(pq.ParquetFile, "iter_batches", None)
    with pytest.raises(
        InputError, match=r"small.parquet: needs \d+ MiB unpacked, but at most \d+ MiB are allowed \(200 times"
    ):
        parquet.load(tmp_path, path="small.parquet")


def test_footer_claims_are_not_trusted(tmp_path, monkeypatch):
    """The sizes in a footer are a writer's claim; here pyarrow reports none at all."""
    pq.write_table(numbers(), tmp_path / "small.parquet", compression="zstd", use_dictionary=False)
    with open(tmp_path / "small.parquet", "rb") as file:
        pages = read_pages(file, pq.read_metadata(tmp_path / "small.parquet"), {"x"}, set())
    assert 8 * ROWS <= pages.unpacked < 8.1 * ROWS and pages.values == ROWS and pages.longest == 0


@pytest.mark.parametrize("options", [{}, {"use_dictionary": False, "column_encoding": {"x": "DELTA_BYTE_ARRAY"}}])
@pytest.mark.parametrize("image", [None, "x"])
def test_repeated_values_are_counted_during_reading(tmp_path, options, image):
    options = (
        {**options, "column_encoding": {**options.get("column_encoding", {}), "label": "PLAIN"}} if options else {}
    )
    table = texts() if image is None else texts().set_column(0, "x", [[b"a" * 40_000] * 60])
    pq.write_table(table, tmp_path / "small.parquet", compression="zstd", **options)
    assert (tmp_path / "small.parquet").stat().st_size < 2**12
    if image is None and not options:
        # The text is in memory once, so it is no more than it seems.
        assert parquet.load(tmp_path, path="small.parquet").columns[0].categories == ("a" * 40_000,)
        return
    with pytest.raises(InputError, match=r"small.parquet: needs \d+ MiB unpacked"):
        parquet.load(tmp_path, path="small.parquet", **({} if image is None else {"image": image, "size": 4}))


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("compression", ["zstd", "lz4"])
def test_buffers_of_arrow_that_become_large_are_rejected(tmp_path, monkeypatch, compression, stream):
    ipc(tmp_path / "small.arrow", numbers(), compression, stream)
    monkeypatch.setattr(arrow_files, "_concatenate", None)
    with pytest.raises(InputError, match=r"small.arrow: needs \d+ MiB unpacked"):
        parquet.load(tmp_path, path="small.arrow")


def test_dictionary_is_read_once_and_its_values_are_shared(tmp_path):
    few = categories().slice(0, 2000)
    for name, stream in (("stream.arrow", True), ("file.arrow", False)):
        ipc(tmp_path / name, few, None, stream)
        assert parquet.load(tmp_path, path=name).train.x.shape == (1600, 1)


def test_columns_that_are_not_read_are_not_unpacked(tmp_path):
    nested = pa.table({"x": np.arange(20.0), "deep": [[0] * 20_000] * 20, "label": np.arange(20) % 2})
    pq.write_table(nested, tmp_path / "small.parquet")
    assert parquet.load(tmp_path, path="small.parquet", ignore=("deep",)).train.x.shape == (16, 1)
    with pytest.raises(InputError, match="column 'deep' must contain numbers, texts or dates; add it to `ignore`"):
        parquet.load(tmp_path, path="small.parquet")


def test_categories_that_become_large_are_rejected(tmp_path):
    rows = "".join(f"v{row % 700},{row % 2}\n" for row in range(3000))
    (tmp_path / "small.csv").write_text("kind,label\n" + rows)
    message = r"small.csv: needs 8 MiB unpacked, but at most .* set `categories: numbers`, or add columns with many"
    with pytest.raises(InputError, match=message):
        csv.load(tmp_path, path="small.csv", label="label")
    assert csv.load(tmp_path, path="small.csv", label="label", categories="numbers").train.x.shape == (2400, 1)


def test_proportional_data_must_fit_into_memory(monkeypatch):
    monkeypatch.setattr("hetero_tf.base.hardware.memory_limit", lambda: 2**20)
    unpacked.check_unpacked("f", 2**18, 2**18, 2)
    with pytest.raises(MemoryProblem, match="f: needs"):
        unpacked.check_unpacked("f", 2**18, 2**18, 3)
