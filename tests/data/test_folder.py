"""A folder of pictures for each class: which picture has which label, size and colour; what is refused and how."""

import os

import numpy as np
import pytest
import tensorflow as tf
from refusals import refusal

from hetero_tf.base.errors import InputError
from hetero_tf.data import decoded, folder
from hetero_tf.data.dataset import held_out

SHADES = {"bat": 40, "cat": 120, "dog": 200}


def png(shade, height=6, width=6, channels=3):
    return tf.io.encode_png(np.full((height, width, channels), shade, np.uint8)).numpy()


def write(root, count=5, classes=SHADES):
    """Pictures of mixed sizes and formats, all of one shade for each class."""
    for name, shade in classes.items():
        (root / name).mkdir(parents=True, exist_ok=True)
        for number in range(count):
            if number % 2:
                picture = np.full((5 + number, 9, 3), shade, np.uint8)
                (root / name / f"{number}.JPG").write_bytes(tf.io.encode_jpeg(picture, quality=100).numpy())
            else:
                (root / name / f"{number}.png").write_bytes(png(shade, 4 + number, 7, 1 if number else 3))


@pytest.fixture
def root(tmp_path):
    write(tmp_path / "own")
    (tmp_path / "own" / "bat" / ".DS_Store").write_bytes(b"x")
    (tmp_path / "own" / "notes.txt").write_text("not a picture")
    return tmp_path / "own"


def load(root, **options):
    return folder.load(root.parent, **{"path": root.name, "size": 4, "channels": 1, **options})


def check(split, names=tuple(SHADES)):
    assert split.y.dtype == np.int32 and len(split.x) == len(split.y)
    for image, label in zip(split.x, split.y):
        assert abs(image.astype(int) - SHADES[names[label]]).max() <= 2


def test_folders_are_classes_and_a_share_of_each_is_the_test_split(root):
    dataset = load(root)
    assert (dataset.codec.KIND, dataset.class_names, dataset.classes) == ("images", ("bat", "cat", "dog"), 3)
    assert dataset.source == f"pictures ({root})"
    assert dataset.train.x.shape == (12, 4, 4, 1) and dataset.test.x.shape == (3, 4, 4, 1)
    assert np.bincount(dataset.test.y).tolist() == [1, 1, 1]
    for split in (dataset.train, dataset.test):
        check(split)
    assert load(root, test_share=0.5).test.x.shape == (6, 4, 4, 1)
    assert load(root, channels=3, size=7).train.x.shape == (12, 7, 7, 3)


@pytest.mark.parametrize(("train", "tests"), [("train", "test"), ("train", "val"), ("Train", "test_set")])
def test_train_and_test_folders_are_the_splits(tmp_path, train, tests):
    write(tmp_path / "own" / train, 3)
    write(tmp_path / "own" / tests, 2, {"dog": 200})
    dataset = load(tmp_path / "own")
    assert dataset.train.y.tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    assert dataset.test.y.tolist() == [2, 2]
    check(dataset.test)
    (tmp_path / "own" / tests / "eel").mkdir()
    assert "eel: is not a class of the training pictures: bat, cat, dog" in refusal(load, tmp_path / "own")
    (tmp_path / "own" / tests).rename(tmp_path / "elsewhere")
    assert len(load(tmp_path / "own", test_share=0.4).test.x) == 3


def test_equal_shares_are_drawn_each_time_and_no_label_is_lost():
    labels = np.array([0] * 10 + [1] * 2 + [2])
    one = held_out(labels, 0.6, "s")
    assert (one == held_out(labels, 0.6, "s")).all()
    assert [int(one[labels == label].sum()) for label in range(3)] == [6, 1, 0]
    message = "s: `test_share` is too small for any test example; use a larger share .* test_share=0.01 of 13 examples"
    with pytest.raises(InputError, match=message):
        held_out(labels, 0.01, "s")


def test_pixels_are_decoded_once(root, tmp_path, monkeypatch):
    monkeypatch.setattr(decoded, "FOLDER", tmp_path / "cache")
    monkeypatch.setattr(decoded, "SMALLEST", 1)
    first = load(root)
    (cache_file,) = (tmp_path / "cache").iterdir()
    assert cache_file.name.startswith("folder-")
    monkeypatch.setattr(folder, "decode_blocks", None)
    assert load(root).sha256 == first.sha256
    (root / "bat" / "0.png").write_bytes(png(41))
    with pytest.raises(TypeError):
        load(root)


def test_invalid_pictures_and_names_are_reported(root):
    for name, message in (
        (b"1.tiff", r"bat/1.tiff: .tiff files are not supported; convert it to PNG, JPEG, BMP, GIF or WebP"),
        (b"z.jpg", r"bat/z.jpg: is empty; copy it again"),
        (b"caf\xe9.png", r"udce\d.*': the name is not UTF-8; rename it"),
        (b"\xe7/0.png", r"udce\d.*': the name is not UTF-8; rename it"),
    ):
        path = root / "bat" / os.fsdecode(name)
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"")
        with pytest.raises(InputError, match=message):
            load(root)
        path.unlink()


def test_system_files_are_skipped(root):
    before = load(root).sha256
    for name in (".ipynb_checkpoints", ".Trash-1000/a", "@eaDir/0.png", "__MACOSX", "lost+found", "$RECYCLE.BIN"):
        for parent in (root, root / "cat", root / "cat" / "deeper"):
            (parent / name).mkdir(parents=True)
            (parent / name / "0.png").write_bytes(png(9))
    for name in ("._0.png", "Thumbs.db", "desktop.ini"):
        (root / "cat" / name).write_bytes(b"x")
    assert load(root).sha256 == before


def test_invalid_class_folders_are_rejected(root, tmp_path):
    assert "expected a folder. Received: a file; data: npz reads .npz files" in refusal(load, root / "notes.txt")
    (tmp_path / "one" / "bat").mkdir(parents=True)
    with pytest.raises(
        InputError, match=r"per class, at least two classes, such as .* Received: bat; if .*in it, name .*/one/bat"
    ):
        load(tmp_path / "one")
    (root / "eel").mkdir()
    assert "eel: expected .png, .jpg, .jpeg, .bmp, .gif, .webp files. Received: none" in refusal(load, root)
    write(root / "train", 2)
    (root / "test").mkdir()
    assert "test: expected one folder of pictures per class. Received: no folder" in refusal(load, root)
