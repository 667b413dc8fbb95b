"""Damaged .npz files, and those with objects, are reported."""

import io
import zipfile

import numpy as np
import pytest
from refusals import refusal

from hetero_tf.base.errors import MemoryProblem
from hetero_tf.base.hardware import check_memory
from hetero_tf.base.npz_reader import array_names, read_arrays

PACKED = io.BytesIO()
np.save(PACKED, np.arange(2, dtype=np.uint8))
ARRAY = PACKED.getvalue()


def zipped(path, content):
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x.npy", content)
    return path


def test_reads_arrays_saved_by_numpy(tmp_path):
    arrays = {"x": np.arange(6, dtype=np.int16).reshape(2, 3), "y": np.asfortranarray(np.eye(3)), "z": np.zeros((0, 4))}
    np.savez_compressed(tmp_path / "a.npz", other=np.ones(1), **arrays)
    arrays_read = read_arrays(tmp_path / "a.npz", ("x", "y", "z"))
    assert set(arrays_read) == {"x", "y", "z"}
    for name, array in arrays.items():
        assert arrays_read[name].dtype == array.dtype
        np.testing.assert_array_equal(arrays_read[name], array)


def test_names_are_listed_without_reading_the_arrays(tmp_path):
    np.savez(tmp_path / "a.npz", **{"b/kernel": np.ones(2), "a": np.zeros(1, object)})
    assert array_names(tmp_path / "a.npz") == ["a", "b/kernel"]
    (tmp_path / "b.npz").write_bytes(b"no archive")
    assert "b.npz: cannot be read as an .npz file" in refusal(array_names, tmp_path / "b.npz")


def test_objects_missing_and_large_arrays_and_missing_files_are_refused(tmp_path):
    np.savez(tmp_path / "a.npz", x=np.array([{}, 1], object))
    assert "contains Python objects, which could run code when read" in refusal(read_arrays, tmp_path / "a.npz", ["x"])
    np.savez(tmp_path / "a.npz", b=np.ones(1), a=np.ones(1))
    assert refusal(read_arrays, tmp_path / "a.npz", ["x"]).endswith("a.npz: expected the arrays x. Received: a, b")
    assert "none: could not read: No such file" in refusal(read_arrays, tmp_path / "none", ["x"])
    with pytest.raises(MemoryProblem, match=r"a.npz: needs 1048576.0 GiB, but half .* memory is [\d.]+ GiB"):
        check_memory("a.npz", 2**50)
    check_memory("a.npz", 2**20)


@pytest.mark.parametrize(
    "content",
    [b"", b"PK\x03\x04", b"hello", b"\x93NUMPY\x01\x00", ARRAY[:20], ARRAY[:-1], ARRAY.replace(b"|u1", b"|zz")],
)
def test_other_files_and_damaged_members_are_refused(tmp_path, content):
    (tmp_path / "a.npz").write_bytes(content)
    for path in (tmp_path / "a.npz", zipped(tmp_path / "b.npz", content)):
        assert f"{path.name}: cannot be read as an .npz file" in refusal(read_arrays, path, ["x"])
