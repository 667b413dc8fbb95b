"""Sealed rounds: what is saved comes back, old ones go, and a stranger's folder is refused before it costs memory."""

import hashlib
import io
import json
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
from hetero_tf.store import checkpoints
from hetero_tf.store.npz_bytes import DTYPES

KERNEL = np.arange(6, dtype="f4").reshape(2, 3)
SPECS = {"dense/kernel": ((2, 3), "float32"), "step": ((), "int64")}


def saved(folder, numbers=(5,), keep=2):
    for number in numbers:
        checkpoints.save(
            folder, number, {"dense/kernel": KERNEL + number, "step": np.int64(number)}, {"r": number}, keep
        )
    return folder / f"round-{numbers[-1]:06d}"


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


def test_equal_content_gives_equal_bytes(tmp_path):
    first, second = saved(tmp_path / "a"), saved(tmp_path / "b")
    for name in ("arrays.npz", "info.json", "MANIFEST.json"):
        assert (first / name).read_bytes() == (second / name).read_bytes()


def test_npz_needs_no_hetero_tf_to_be_read(tmp_path):
    with np.load(saved(tmp_path) / "arrays.npz", allow_pickle=False) as npz:
        np.testing.assert_array_equal(npz["arr_0"], KERNEL + 5)


@pytest.mark.parametrize("keep", [1, 2, 3, 9])
def test_keeps_the_newest(tmp_path, keep):
    saved(tmp_path, range(1, 6), keep)
    assert sorted(os.listdir(tmp_path)) == [f"round-{number:06d}" for number in range(max(1, 6 - keep), 6)]
    assert checkpoints.load_newest(tmp_path).round == 5


def test_a_checkpoint_is_synced_before_it_is_renamed_and_older_ones_are_removed(tmp_path, monkeypatch):
    calls = record_disk(monkeypatch, tmp_path)
    saved(tmp_path / "best", (1, 2), keep=1)
    sizes = {path.name: path.stat().st_size for path in (tmp_path / "best" / "round-000002").iterdir()}
    first, second = (
        [
            *(f"sync best/.tmp-{name}/{file} {sizes[file]}" for file in ("arrays.npz", "info.json", "MANIFEST.json")),
            f"sync best/.tmp-{name}",
            f"rename best/.tmp-{name} best/{name}",
            "sync best",
        ]
        for name in ("round-000001", "round-000002")
    )
    assert calls == ["sync .", *first, *second, "rename best/round-000001 best/.old-round-000001"]


def test_order_is_by_number_not_by_text_or_time(tmp_path):
    saved(tmp_path, (999_999, 1_000_000), keep=3)
    os.utime(tmp_path / "round-999999", (2e9, 2e9))
    assert checkpoints.load_newest(tmp_path).round == 1_000_000


def test_a_saved_round_ends_every_later_one(tmp_path):
    """After falling back to round 2, the damaged 3 and 4 must neither count as kept nor win over the new 3."""
    saved(tmp_path, (1, 2, 3, 4), keep=4)
    for number in (3, 4):
        os.truncate(tmp_path / f"round-00000{number}" / "info.json", 1)
    assert checkpoints.load_newest(tmp_path).round == 2
    saved(tmp_path, (3,), keep=2)
    assert sorted(os.listdir(tmp_path)) == ["round-000002", "round-000003.1"]
    assert checkpoints.load_newest(tmp_path).round == 3


def test_a_round_saved_again_replaces_itself(tmp_path):
    for best in (1, 2, 3):
        checkpoints.save(tmp_path, 7, {}, {"best": best}, keep=1)
    assert os.listdir(tmp_path) == ["round-000007.2"]
    assert checkpoints.load_newest(tmp_path).info == {"best": 3}


def test_skipped_rounds_are_named(tmp_path):
    saved(tmp_path, (4, 5))
    (tmp_path / "round-000005" / "arrays.npz").unlink()
    loaded = checkpoints.load_newest(tmp_path)
    path = tmp_path / "round-000005" / "arrays.npz"
    assert loaded.round == 4
    assert loaded.skipped == (f"skipped {path}: could not read: No such file or directory",)


def test_nothing_there_is_none_but_nothing_whole_is_an_error(tmp_path):
    assert checkpoints.load_newest(tmp_path / "missing") is None
    assert checkpoints.load_newest(tmp_path) is None
    os.truncate(saved(tmp_path) / "MANIFEST.json", 0)
    with pytest.raises(
        InputError,
        match=r"all 1 checkpoints are damaged .*MANIFEST.json: is not plain JSON.*"
        r"restore one from a copy, or delete the folder to start again",
    ):
        checkpoints.load_newest(tmp_path)


def test_readers_do_not_sweep_and_saving_does(tmp_path):
    saved(tmp_path)
    (tmp_path / ".tmp-round-000006").mkdir()
    shutil.copytree(tmp_path / "round-000005", tmp_path / ".old-round-000004")
    (tmp_path / ".old-round-000003").symlink_to("/")
    (tmp_path / "notes.txt").write_text("mine")
    checkpoints.load_newest(tmp_path)
    assert len(os.listdir(tmp_path)) == 5
    saved(tmp_path, (6,))
    assert sorted(os.listdir(tmp_path)) == ["notes.txt", "round-000005", "round-000006"]


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


@pytest.mark.parametrize(
    "arrays, info, keep, number, text",
    [
        ({"x": np.array([{}])}, {}, 1, 0, r"array 'x' must hold numbers or bools. Received: dtype=\|O"),
        ({"x": np.array(["a"])}, {}, 1, 0, "array 'x' must hold numbers or bools. Received: dtype=<U1"),
        ({"x": np.zeros(2, ">f4")}, {}, 1, 0, "Received: dtype=>f4"),
        ({"x": np.zeros(2, "f4,i4")}, {}, 1, 0, r"Received: dtype=\|V8"),
        ({3: KERNEL}, {}, 1, 0, "array names must be text. Received: name=3"),
        ({}, {"loss": np.nan}, 1, 0, "`info` must hold finite numbers.*Out of range float"),
        ({}, {"loss": np.float32(1)}, 1, 0, "`info` must hold finite numbers.*float32"),
        ({}, {0: "a"}, 1, 0, "keys .0. that are not all text"),
        ({}, {}, 0, 0, "`keep` must be at least 1.*keep=0, round_number=0"),
        ({}, {}, 1, -1, "`round_number` at least 0.*round_number=-1"),
    ],
)
def test_invalid_arguments_are_refused_before_the_first_write(tmp_path, arrays, info, keep, number, text):
    with pytest.raises(InputError, match=text):
        checkpoints.save(tmp_path / "new", number, arrays, info, keep)
    assert os.listdir(tmp_path) == []


# A stranger's folder: the manifest is consistent, since everybody can compute a checksum.


def npz(**members):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, data in members.items():
            archive.writestr(name + ".npy", data)
    return file.getvalue()


def npy(header, data=b""):
    text = header.ljust(117) + "\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode() + data


def reseal(path, change=None, arrays=None):
    """Rewrites a round as somebody who knows the format would, with right checksums."""
    if arrays is not None:
        (path / "arrays.npz").write_bytes(arrays)
    body = json.loads((path / "MANIFEST.json").read_text())["contents"]
    for name, about in body["files"].items():
        data = (path / name).read_bytes()
        about.update(bytes=len(data), sha256=hashlib.sha256(data).hexdigest())
    if change:
        change(body)
    text = json.dumps(body, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    sealing = {"contents": body, "sha256": hashlib.sha256(text.encode()).hexdigest()}
    (path / "MANIFEST.json").write_text(json.dumps(sealing))


def assert_refused(path, text):
    """Reading raises Damaged with the text and takes less than 20 MB on the way."""
    tracemalloc.start()
    try:
        with pytest.raises(Damaged, match=text):
            checkpoints.read(path)
        assert tracemalloc.get_traced_memory()[1] < 20 * 2**20
    finally:
        tracemalloc.stop()


def test_reseal_itself_is_accepted(tmp_path):
    path = saved(tmp_path)
    reseal(path)
    assert checkpoints.read(path).round == 5


@pytest.mark.parametrize(
    "change, text",
    [
        (lambda body: body["arrays"][0].update(shape=[2**39, 2**39]), "its arrays take 12089258196.*but its arrays"),
        (lambda body: body["arrays"][0].update(shape=[2**41]), "impossible shape"),
        (lambda body: body["arrays"][0].update(shape=[-2, -3]), "impossible shape"),
        (lambda body: body["arrays"][0].update(shape=[2, 3] + [1] * 31), "impossible shape"),
        (lambda body: body["arrays"][0].update(shape=[True, 6]), "impossible shape"),
        (lambda body: body["arrays"][0].update(shape=[2.0, 3]), "impossible shape"),
        (lambda body: body["arrays"][0].update(shape=[3, 2]), r"is <f4\[2, 3\], the manifest says float32\[3, 2\]"),
        (lambda body: body["arrays"][0].update(dtype="<i4"), r"'dense/kernel' is <f4\[2, 3\], the manifest says int32"),
        (lambda body: body["arrays"][0].update(dtype="|O"), r"has dtype '\|O', allowed: \|b1"),
        (lambda body: body["arrays"][0].update(dtype="O" * 10**6), "has dtype 'O{50}', allowed"),
        (lambda body: body["arrays"][0].update(name=7), "'name' is missing or not of type str"),
        (lambda body: body["arrays"][0].update(name="step"), "one array name appears twice"),
        (lambda body: body["arrays"].append("x"), "'name' is missing or not of type str"),
        (lambda body: body["arrays"].append({"name": "x", "shape": [0], "dtype": "<f4"}), "its members are not the 3"),
        (lambda body: body.update(arrays={}), "'arrays' is missing or not of type list"),
        (lambda body: body.update(round=6), "its manifest belongs to round 6"),
        (lambda body: body.update(round="5"), "'round' is missing or not of type int"),
        (lambda body: body.update(format="hetero_tf sealed folder 9"), "unknown format 'hetero_tf sealed folder 9'"),
        (lambda body: body["files"].update({"../../x": body["files"]["info.json"]}), "lists files .*'../../x'"),
        (lambda body: body["files"].pop("info.json"), "lists files .*expected"),
        (lambda body: body["files"]["info.json"].update(bytes=2**50), "its info.json is larger than"),
        (lambda body: body["files"]["info.json"].update(bytes=-1), "'bytes' is negative"),
        (
            lambda body: body["files"]["arrays.npz"].update(bytes=2**50),
            "its arrays take 32 bytes, but its arrays.npz has",
        ),
    ],
)
def test_hostile_manifest(tmp_path, change, text):
    path = saved(tmp_path)
    reseal(path, change)
    assert_refused(path, text)


@pytest.mark.parametrize(
    "text, message",
    [
        (b"[" * 10**6, "nested deeper than 32"),
        (b" " * (2**22 + 1), "has 4194305 bytes, at most 4194304 are allowed"),
        (b"[]", "'contents' is missing or not of type dict"),
        (b"{}", "'contents' is missing or not of type dict"),
        (b'{"contents": {}}', "'sha256' is missing or not of type str"),
        (b'{"contents": {}, "sha256": "0"}', "its checksum does not match"),
        (b"\xff\xfe{}", "is not plain JSON: 'utf-8' codec"),
        (b"", "is not plain JSON: Expecting value"),
    ],
)
def test_hostile_manifest_text(tmp_path, text, message):
    path = saved(tmp_path)
    (path / "MANIFEST.json").write_bytes(text)
    with pytest.raises(Damaged, match=message):
        checkpoints.read(path)


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


def test_links_pipes_and_folders_are_not_followed(tmp_path):
    path, outside = saved(tmp_path / "c"), tmp_path / "outside"
    shutil.copytree(path, outside)
    for name in ("MANIFEST.json", "info.json", "arrays.npz"):
        (path / name).unlink()
        (path / name).symlink_to(outside / name)
        assert_refused(path, f"{name}: is a symbolic link, which is not followed")
        (path / name).unlink()
        os.mkfifo(path / name)
        assert_refused(path, f"{name}: expected a file. Received: ")
        (path / name).unlink()
        (path / name).mkdir()
        assert_refused(path, f"{name}: expected a file. Received: ")
        (path / name).rmdir()
        shutil.copy(outside / name, path / name)
    shutil.rmtree(path)
    path.symlink_to(outside)
    assert_refused(path, "could not read: Not a directory|symbolic link")


def test_a_linked_checkpoints_folder_is_neither_read_nor_written(tmp_path):
    saved(tmp_path / "outside")
    (tmp_path / "link").symlink_to(tmp_path / "outside")
    for action in (lambda: saved(tmp_path / "link", (6,)), lambda: checkpoints.load_newest(tmp_path / "link")):
        with pytest.raises(InputError, match="link: expected a folder or nothing. Received: a symbolic link"):
            action()
    assert os.listdir(tmp_path / "outside") == ["round-000005"]


def test_info_that_is_not_a_dict_is_refused(tmp_path):
    path = saved(tmp_path)
    (path / "info.json").write_text("[1]")
    reseal(path)
    assert_refused(path, "info.json: holds no dict")
