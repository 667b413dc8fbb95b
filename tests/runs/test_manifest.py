"""Manifests of a stranger: consistent, since everybody can compute a checksum."""

import pytest
from checkpoint_files import assert_refused, reseal, saved

from hetero_tf.base.files import Damaged
from hetero_tf.runs import checkpoints


def test_reseal_itself_is_accepted(tmp_path):
    path = saved(tmp_path)
    reseal(path)
    assert checkpoints.read(path).round == 5


@pytest.mark.parametrize(
    "change, text",
    [
        (lambda body: body["arrays"][0].update(shape=[2**39, 2**39]), "its arrays take 12089258196.*but its arrays"),
        (lambda body: body["arrays"][0].update(shape=[2**41]), r"arrays\[0\].shape\[0\] must be a number from 0 to"),
        (lambda body: body["arrays"][0].update(shape=[2, 3] + [1] * 31), r"an array has more than 32 axes"),
        (lambda body: body["arrays"][0].update(shape=[3, 2]), r"is <f4\[2, 3\], the manifest says float32\[3, 2\]"),
        (lambda body: body["arrays"][0].update(dtype="<i4"), r"'dense/kernel' is <f4\[2, 3\], the manifest says int32"),
        (lambda body: body["arrays"][0].update(dtype="|O"), r"arrays\[0\].dtype must be '\|b1', .*. Received: '\|O'"),
        (lambda body: body["arrays"][0].update(dtype="O" * 10**6), r"dtype must be .*. Received: 'O{59}\.\.\.$"),
        (lambda body: body["arrays"][0].update(name="step"), "one array name appears twice"),
        (lambda body: body["arrays"].append("x"), r"arrays\[2\] must be a mapping"),
        (lambda body: body["arrays"].append({"name": "x", "shape": [0], "dtype": "<f4"}), "its members are not the 3"),
        (lambda body: body.update(round=6), "its manifest belongs to round 6"),
        (
            lambda body: body.update(format="hetero_tf sealed folder 9"),
            "format must be 'hetero_tf sealed folder 1'. Received: 'hetero_tf sealed folder 9'",
        ),
        (lambda body: body["files"].update({"../../x": body["files"]["info.json"]}), "lists files .*'../../x'"),
        (lambda body: body["files"].pop("info.json"), "lists files .*expected"),
        (lambda body: body["files"]["info.json"].update(bytes=2**50), "its info.json is larger than"),
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
        (b"[" * 10**6, "is not plain JSON: maximum recursion"),
        (b" " * (2**22 + 1), "has 4194305 bytes, at most 4194304 are allowed"),
        (b"{}", "contents is missing"),
        (b'{"contents": {}}', "sha256 is missing"),
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
