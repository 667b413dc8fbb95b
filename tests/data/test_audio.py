"""A folder of WAV files for each class: which clip has which label and length; what is rejected and how."""

import functools
import json

import folders
import numpy as np
import pytest
from refusals import refusal

from hetero_tf.data import audio
from hetero_tf.data.described import describe, from_description
from hetero_tf.data.in_memory import from_arrays


@pytest.fixture
def root(tmp_path):
    folders.write_sounds(tmp_path / "own")
    (tmp_path / "own" / "low" / "notes.txt").write_text("not a clip")
    return tmp_path / "own"


def load(root, **options):
    return audio.load(root.parent, **{"path": root.name, "rate": 8000, "seconds": 0.25, **options})


def test_folders_are_classes_and_a_share_of_each_is_the_test_split(root):
    dataset = load(root)
    assert (dataset.codec.KIND, dataset.class_names, dataset.codec.rate) == ("audio", ("high", "low"), 8000)
    assert dataset.train.x.shape == (8, 2000) and dataset.test.x.shape == (2, 2000)
    for split in (dataset.train, dataset.test):
        for clip, label in zip(split.x, split.y):
            np.testing.assert_allclose(clip / 2**15, folders.tone((600, 300)[label], 8000, 2000), atol=2**-14)
    assert dataset.source == f"audio ({root})"
    assert dataset.describe() == [
        "audio: 8 training clips of 0.25 s at 8,000 Hz",
        "  files: 0.25 to 0.3 s, 8,000 Hz",
        "classes: high 50.0 %, low 50.0 % of 8 examples",
    ]
    described = from_description(json.loads(json.dumps(describe(dataset))), "data")
    assert (described.fields, described.sha256) == (dataset.fields, dataset.sha256)
    assert described.train.x.dtype == np.int16 and described.train.x.min() < -9000
    (root / "low" / "5.wav").write_bytes(folders.wav(folders.tone(300, 16_000), 16_000))
    (root / "low" / "5_label.wav").write_bytes((root / "low" / "5.wav").read_bytes())
    again = load(root)
    assert again.describe()[1].endswith(" s, 8,000 Hz, 16,000 Hz")
    # Only pictures have masks, whose names end in such words.
    assert len(again.train.x) + len(again.test.x) == 12


def test_train_and_test_folders_rate_and_seconds_determine_the_splits(root):
    for part in ("train", "test"):
        folders.write_sounds(root.parent / "parts" / part, clips=2 if part == "test" else 3)
    dataset = load(root.parent / "parts")
    assert (len(dataset.train.x), len(dataset.test.x)) == (6, 4)
    assert load(root, rate=4000).train.x.shape == (8, 1000)
    long = load(root, seconds=1.0).train.x
    assert long.shape == (8, 8000) and long[:, :2000].any() and not long[:, 2500:].any()
    assert len(load(root, test_share=0.4).test.x) == 4


def test_bad_files_and_folders_without_clips_are_named(root, tmp_path):
    bad = root / "low" / "bad.wav"
    bad.write_bytes(b"RIFF")
    assert refusal(load, root).startswith(f"{bad}: is not a readable WAV file: ")
    bad.rename(bad.with_suffix(".mp3"))
    assert refusal(load, root) == f"{bad.with_suffix('.mp3')}: .mp3 files are not supported; convert it to WAV"
    (root / "empty").mkdir()
    assert refusal(load, root) == f"{root / 'empty'}: expected .wav, .wave files. Received: none"
    assert "expected one folder of WAV files per class, at least two classes, such as" in refusal(load, root / "low")


def test_arrays_of_clips_in_memory():
    floats = np.array([[0, 0.5, -1, 1]], np.float32)
    y = np.zeros(1, np.int32)
    dataset = from_arrays(floats, y, (floats * 2**14).astype(np.int16), y, kind="audio", rate=8000)
    assert dataset.train.x.tolist() == [[0, 2**14, -(2**15), 2**15 - 1]] and dataset.codec.rate == 8000
    assert dataset.test.x.tolist() == [[0, 2**13, -(2**14), 2**14]]
    read = functools.partial(from_arrays, kind="audio", rate=8000)
    rows, missing = (
        np.ones((2, 9), np.float32),
        "`rate` must be the samples per second of audio, and None for other data.",
    )
    assert f"{missing} Received: rate=None, audio" in refusal(
        functools.partial(from_arrays, kind="audio"), floats, y, floats, y
    )
    assert f"{missing} Received: rate=8000, table" in refusal(from_arrays, rows, y, rows, y, rate=8000)
    assert read(floats, y, floats, y).sha256 != from_arrays(floats, y, floats, y, kind="audio", rate=9000).sha256
    for x in (2 * floats, floats[0], floats > 0):
        message = refusal(read, x, y, x, y)
        assert message.startswith("arrays: x_train must be clips [n, samples], int16 or floats in -1..1, all ")
