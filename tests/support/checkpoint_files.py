"""Checkpoints, and their files as a stranger would change them."""

import hashlib
import io
import json
import tracemalloc
import zipfile

import numpy as np
import pytest

from hetero_tf.base.files import Damaged
from hetero_tf.runs import checkpoints

KERNEL = np.arange(6, dtype="f4").reshape(2, 3)


def saved(folder, numbers=(5,), keep=2):
    for number in numbers:
        checkpoints.save(
            folder, number, {"dense/kernel": KERNEL + number, "step": np.int64(number)}, {"r": number}, keep
        )
    return folder / f"round-{numbers[-1]:06d}"


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
