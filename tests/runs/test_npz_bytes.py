"""Arrays as bytes: what is saved comes back, and arrays of a stranger are refused before they cost memory."""

import io
import os

import numpy as np
import pytest
from checkpoint_files import KERNEL, assert_refused, npy, npz, reseal, saved
from refusals import refusal

from hetero_tf.runs import checkpoints
from hetero_tf.runs.manifest import DTYPES

SPECS = {"dense/kernel": ((2, 3), "float32"), "step": ((), "int64")}


def test_all_dtypes_and_shapes_round_trip_bit_for_bit(tmp_path):
    rng = np.random.default_rng(0)
    arrays = {
        f"{dtype} {shape}": rng.integers(0, 2, shape).astype(dtype)
        for dtype in DTYPES
        for shape in [(), (0,), (3, 0, 2), (1,), (2, 3, 4)]
    }
    arrays["nan"] = np.array([np.nan, -0.0, np.inf, 5e-324])
    arrays["../../etc/passwd"] = KERNEL.T
    arrays["Straße/核 \n"] = KERNEL[::-1, ::2]
    arrays[""] = np.asfortranarray(np.arange(24).reshape(2, 3, 4))
    checkpoints.save(tmp_path, 0, arrays, {"a": [1, {"b": None}], "ü": 0.1}, keep=1)
    loaded = checkpoints.load_newest(tmp_path)
    assert (loaded.round, loaded.info, loaded.skipped) == (0, {"a": [1, {"b": None}], "ü": 0.1}, ())
    assert list(loaded.arrays) == list(arrays)
    for name, value in arrays.items():
        assert loaded.arrays[name].dtype == value.dtype and loaded.arrays[name].shape == value.shape
        assert loaded.arrays[name].tobytes() == value.tobytes()
    assert os.listdir(tmp_path) == ["round-000000"]


def test_npz_needs_no_hetero_tf_to_be_read(tmp_path):
    with np.load(saved(tmp_path) / "arrays.npz", allow_pickle=False) as npz:
        np.testing.assert_array_equal(npz["arr_0"], KERNEL + 5)


@pytest.mark.parametrize(
    "expect, text",
    [
        (
            SPECS | {"dense/kernel": ((2, 4), "float32")},
            "array 'dense/kernel' is float32[2, 3], expected float32[2, 4]",
        ),
        (SPECS | {"step": ((), "int32")}, "array 'step' is int64[], expected int32[]"),
        (SPECS | {"bias": ((3,), "float32")}, "array 'bias' is missing, expected float32[3]"),
        ({"step": ((), "int64")}, "array 'dense/kernel' is not expected"),
    ],
)
def test_other_arrays_than_expected(tmp_path, expect, text):
    path = saved(tmp_path)
    os.truncate(path / "arrays.npz", 0)  # the comparison comes before the arrays are looked at
    assert refusal(checkpoints.load_newest, tmp_path, expect) == (
        f"{path}: {text}; another recipe saved it: continue with that recipe, or choose a new run folder"
    )


def test_expected_arrays_load(tmp_path):
    saved(tmp_path)
    assert checkpoints.load_newest(tmp_path, SPECS).arrays["step"] == 5


STEP = npy("{'descr': '<i8', 'fortran_order': False, 'shape': (), }", bytes(8))
BIG = "{'descr': '<f4', 'fortran_order': False, 'shape': (2199023255552, 2), }"
FORTRAN = "{'descr': '<f4', 'fortran_order': True, 'shape': (2, 3), }"


@pytest.mark.parametrize(
    "kernel, text",
    [
        (npy(BIG, bytes(24)), r"is <f4\[2199023255552, 2\], the manifest says float32\[2, 3\]"),
        (npy(FORTRAN, bytes(24)), r"the manifest says float32\[2, 3\]"),
        (npy(FORTRAN.replace("True", "False"), bytes(20)), "has 20 bytes, expected 24"),
        (npy(FORTRAN.replace("True", "False"), bytes(28)), "has 28 bytes, expected 24"),
        (npy(FORTRAN.replace("<f4", "|O"), bytes(24)), r"is \|O\[2, 3\], the manifest says"),
        (npy("(" * 60, bytes(24)), "arrays.npz: "),
        (npy("__import__('os').abort()", bytes(24)), "arrays.npz: "),
        (b"\x93NUMPY\x03\x00" + bytes(40), "has an unknown npy version"),
        (b"", "arrays.npz: "),
    ],
)
def test_hostile_array_header(tmp_path, kernel, text):
    path = saved(tmp_path)
    reseal(path, arrays=npz(arr_0=kernel, arr_1=STEP))
    assert_refused(path, text)


def test_compressed_bomb(tmp_path):
    """16 MB of zeros in 16 kB: only stored members are read."""
    file = io.BytesIO()
    np.savez_compressed(file, np.zeros(2**22, "f4"))
    path = saved(tmp_path)
    reseal(path, lambda body: body.update(arrays=[{"name": "x", "shape": [4000], "dtype": "<f4"}]), file.getvalue())
    assert_refused(path, "array 'x' is compressed or too large")


def test_not_a_zip_and_pickled_object_are_never_run(tmp_path):
    path, canary = saved(tmp_path), tmp_path / "canary"

    class Trap:
        def __reduce__(self):
            return os.mkdir, (str(canary),)

    file = io.BytesIO()
    np.savez(file, np.array([Trap()] * 4, dtype=object), np.int64(5))
    reseal(path, arrays=file.getvalue() + b"")
    assert_refused(path, r"is \|O\[4\], the manifest says")
    reseal(path, arrays=bytes(200))
    assert_refused(path, "File is not a zip file")
    assert not canary.exists()
