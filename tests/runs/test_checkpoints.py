"""Checkpoints: what is saved comes back, old ones are removed, and files of a stranger cost no memory and run nothing."""

import io
import os
import shutil
import tracemalloc
import zipfile

import numpy as np
import pytest
from disk import record_disk
from refusals import refusal

from hetero_tf.base.errors import InputError
from hetero_tf.base.files import Damaged
from hetero_tf.runs import checkpoints

KERNEL = np.arange(6, dtype="f4").reshape(2, 3)
SPECS = {"dense/kernel": ((2, 3), "float32"), "step": ((), "int64")}


def saved(folder, numbers=(5,), keep=2, best=None):
    for number in numbers:
        arrays = {"dense/kernel": KERNEL + number, "step": np.int64(number)}
        checkpoints.save(folder, number, arrays, {"r": number}, keep, best)
    return checkpoints.path_of(folder, numbers[-1])


def assert_refused(path, text):
    """Reading raises Damaged with the text and takes less than 20 MB on the way."""
    tracemalloc.start()
    try:
        with pytest.raises(Damaged, match=text):
            checkpoints.read(path.parent, 5)
        assert tracemalloc.get_traced_memory()[1] < 20 * 2**20
    finally:
        tracemalloc.stop()


def test_all_dtypes_and_shapes_round_trip_bit_for_bit_and_numpy_alone_reads_them(tmp_path):
    rng = np.random.default_rng(0)
    dtypes = ("?", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f2", "f4", "f8", "c8", "c16")
    shapes = [(), (0,), (3, 0, 2), (1,), (2, 3, 4)]
    arrays = {f"{dtype} {shape}": rng.integers(0, 2, shape).astype(dtype) for dtype in dtypes for shape in shapes}
    arrays["nan"] = np.array([np.nan, -0.0, np.inf, 5e-324])
    arrays["../../etc/passwd"] = KERNEL.T
    arrays["Straße/核 \n"] = KERNEL[::-1, ::2]
    arrays[""] = np.asfortranarray(np.arange(24).reshape(2, 3, 4))
    info = {"a": [1, {"b": None}], "round": 0, "ü": 0.1}
    for folder in ("a", "b"):
        checkpoints.save(tmp_path / folder, 0, arrays, info, keep=1)
        assert os.listdir(tmp_path / folder) == ["round-000000.npz"]
    first, second = (checkpoints.path_of(tmp_path / folder, 0).read_bytes() for folder in ("a", "b"))
    loaded = checkpoints.load_newest(tmp_path / "a")
    assert first == second and (loaded.round, loaded.info, loaded.skipped) == (0, info, ())
    assert list(loaded.arrays) == list(arrays)
    for name, value in arrays.items():
        assert loaded.arrays[name].dtype == value.dtype and loaded.arrays[name].shape == value.shape
        assert loaded.arrays[name].tobytes() == value.tobytes()
    with np.load(saved(tmp_path), allow_pickle=False) as archive:
        np.testing.assert_array_equal(archive["dense/kernel"], KERNEL + 5)


@pytest.mark.parametrize("keep", [1, 2, 3, 9])
def test_keeps_the_newest_and_the_best(tmp_path, keep):
    saved(tmp_path / "plain", range(1, 6), keep)
    newest = range(max(1, 6 - keep), 6)
    assert sorted(os.listdir(tmp_path / "plain")) == [f"round-{number:06d}.npz" for number in newest]
    saved(tmp_path / "best", range(1, 6), keep, best=1)
    assert checkpoints.numbers(tmp_path / "best") == sorted({1, *newest}, reverse=True)
    assert checkpoints.load_newest(tmp_path / "best").round == 5


def test_a_checkpoint_is_synced_before_it_is_renamed_and_older_ones_are_removed(tmp_path, monkeypatch):
    calls = record_disk(monkeypatch, tmp_path)
    path = saved(tmp_path / "c", (1, 2), keep=1)
    written = [
        (f"sync c/.tmp-{name}.PID {path.stat().st_size}", f"rename c/.tmp-{name}.PID c/{name}")
        for name in ("round-000001.npz", "round-000002.npz")
    ]
    assert calls == ["sync .", *written[0], "sync c", *written[1], "sync c"]
    assert os.listdir(tmp_path / "c") == ["round-000002.npz"]


def test_order_is_by_number_not_by_text_or_time(tmp_path):
    saved(tmp_path, (999_999, 1_000_000), keep=3)
    os.utime(tmp_path / "round-999999.npz", (2e9, 2e9))
    assert checkpoints.load_newest(tmp_path).round == 1_000_000


def test_a_saved_round_ends_every_later_one(tmp_path):
    """After falling back to round 2, the damaged 3 and 4 must neither count as kept nor win over the new 3."""
    saved(tmp_path, (1, 2, 3, 4), keep=4)
    for number in (3, 4):
        os.truncate(checkpoints.path_of(tmp_path, number), 100)
    loaded = checkpoints.load_newest(tmp_path)
    path = checkpoints.path_of(tmp_path, 4)
    assert loaded.round == 2 and loaded.skipped[0] == f"skipped {path}: is damaged: File is not a zip file"
    saved(tmp_path, (3,), keep=2)
    assert checkpoints.numbers(tmp_path) == [3, 2] and checkpoints.load_newest(tmp_path).round == 3


def test_nothing_there_is_none_but_nothing_whole_is_an_error(tmp_path):
    assert checkpoints.load_newest(tmp_path / "missing") is None
    assert checkpoints.load_newest(tmp_path) is None
    os.truncate(saved(tmp_path), 0)
    text = r"all 1 checkpoints are damaged .*restore one from a copy, or delete the folder to start again"
    with pytest.raises(InputError, match=text):
        checkpoints.load_newest(tmp_path)


def test_readers_do_not_sweep_and_a_writer_does(tmp_path):
    saved(tmp_path)
    (tmp_path / ".tmp-round-000006.npz.1").mkdir()
    (tmp_path / ".tmp-round-000003.npz.22").symlink_to("/")
    (tmp_path / "notes.txt").write_text("mine")
    checkpoints.load_newest(tmp_path)
    assert len(os.listdir(tmp_path)) == 4
    checkpoints.sweep(tmp_path)
    assert sorted(os.listdir(tmp_path)) == ["notes.txt", "round-000005.npz"]


@pytest.mark.parametrize("info, text", [({"loss": np.nan}, "Out of range float"), ({"loss": np.float32(1)}, "float32")])
def test_invalid_info_is_refused_before_the_first_write(tmp_path, info, text):
    with pytest.raises(InputError, match=f"`info` must hold finite numbers.*{text}"):
        checkpoints.save(tmp_path / "new", 0, {}, info, 1)
    assert os.listdir(tmp_path) == []


def test_links_pipes_and_folders_are_not_followed(tmp_path):
    path, outside = saved(tmp_path / "c"), tmp_path / "outside"
    shutil.move(path, outside)
    for create, remove, text in (
        (lambda: path.symlink_to(outside), path.unlink, "is a symbolic link, which is not followed"),
        (lambda: os.mkfifo(path), path.unlink, "expected a file. Received: "),
        (path.mkdir, path.rmdir, "expected a file. Received: "),
    ):
        create()
        assert_refused(path, text)
        remove()
    shutil.rmtree(tmp_path / "c")
    outside.unlink()
    saved(outside)
    (tmp_path / "c").symlink_to(outside)
    for action in (lambda: saved(tmp_path / "c", (6,)), lambda: checkpoints.load_newest(tmp_path / "c")):
        assert "c: expected a folder or nothing. Received: a symbolic link" in refusal(action)
    assert os.listdir(outside) == ["round-000005.npz"]


@pytest.mark.parametrize(
    "expect, text",
    [
        (SPECS | {"dense/kernel": ((2, 4), "float32")}, "array 'dense/kernel' is float32[2, 3], expected float32[2, 4]"),
        (SPECS | {"step": ((), "int32")}, "array 'step' is int64[], expected int32[]"),
        (SPECS | {"bias": ((3,), "float32")}, "array 'bias' is missing, expected float32[3]"),
        ({"step": ((), "int64")}, "array 'dense/kernel' is not expected"),
    ],
)  # fmt: skip
def test_other_arrays_than_expected(tmp_path, expect, text):
    path = saved(tmp_path)
    assert checkpoints.load_newest(tmp_path, SPECS).arrays["step"] == 5
    assert refusal(checkpoints.load_newest, tmp_path, expect) == (
        f"{path}: {text}; another recipe saved it: continue with that recipe, or choose a new run folder"
    )


def write(path, kernel, info=b'{"round":5}', **options):
    """Write a checkpoint with the bytes of an array, as a stranger could."""
    with zipfile.ZipFile(path, "w", **options) as archive:
        archive.writestr("kernel.npy", kernel)
        archive.writestr("info.npy", npy("'|u1'", f"({len(info)},)", info))


def npy(dtype, shape, data, fortran=False):
    text = f"{{'descr': {dtype}, 'fortran_order': {fortran}, 'shape': {shape}, }}".ljust(117) + "\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode() + data


@pytest.mark.parametrize(
    "kernel, text",
    [
        (npy("'<f4'", "(2199023255552, 2)", bytes(24)), r"has 152 bytes, and the shape \[2199023255552, 2\]"),
        (npy("'<f4'", "(2, 3)", bytes(20)), r"has 148 bytes, and the shape \[2, 3\]"),
        (npy("'<f4'", "(2, 3)", bytes(28)), r"has 156 bytes, and the shape \[2, 3\]"),
        (npy("'<f4'", "(2, 3)", bytes(24), fortran=True), "must hold numbers or bools in C order"),
        (npy("'|O'", "(3,)", bytes(24)), "must hold numbers or bools in C order. Received: object"),
        (npy("__import__('os').abort()", "()", bytes(24)), "is damaged: "),
        (b"\x93NUMPY\x03\x00" + bytes(40), "has an unknown npy version"),
        (b"", "is damaged: "),
    ],
)
def test_hostile_array(tmp_path, kernel, text):
    path = saved(tmp_path)
    write(path, kernel)
    assert_refused(path, text)


def test_hostile_archive(tmp_path):
    """Pickled objects are not run, and zeros that are compressed to 16 kB do not take 16 MB."""
    path, canary, kernel = saved(tmp_path), tmp_path / "canary", npy("'<f4'", "(6,)", bytes(24))

    class Trap:
        def __reduce__(self):
            return os.mkdir, (str(canary),)

    file = io.BytesIO()
    np.save(file, np.array([Trap()] * 4, dtype=object))
    write(path, file.getvalue())
    assert_refused(path, "must hold numbers or bools")
    assert not canary.exists()
    write(path, npy("'<f4'", "(4194304,)", bytes(2**24)), compression=zipfile.ZIP_DEFLATED)
    assert_refused(path, "its arrays are larger than the file")
    write(path, kernel, compression=zipfile.ZIP_DEFLATED)
    assert_refused(path, "an array is compressed|are larger than the file")
    for info, text in (
        (b"[5]", "its info is not that of round 5"),
        (b"{}", "is not that of round 5"),
        (b"[" * 10**6, "maximum recursion"),
        (b"\xff", "'utf-8' codec"),
    ):
        write(path, kernel, info)
        assert_refused(path, text)
