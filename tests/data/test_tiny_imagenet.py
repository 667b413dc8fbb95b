"""Tiny ImageNet from its folders: order, classes and pixels; what is missing or damaged is one sentence."""

import os
import shutil

import folders
import numpy as np
import pytest

from hetero_tf.base.errors import InputError, MemoryProblem
from hetero_tf.data import decoded, tiny_imagenet
from hetero_tf.data.dataset import NotAvailable


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    folders.write_tiny_imagenet(folder / "tiny-imagenet-200")
    return folder


@pytest.fixture
def copied(written, tmp_path):
    """A copy of the folder that may be damaged, and its val_annotations.txt."""
    shutil.copytree(written, tmp_path / "copy")
    root = tmp_path / "copy" / "tiny-imagenet-200"
    return root, root / "val" / "val_annotations.txt"


def load(root, **options):
    return tiny_imagenet.load(root.parent, **{"size": 8, **options})


def test_classes_are_the_folders_and_the_list_gives_the_test_labels(written):
    dataset = tiny_imagenet.load(written, size=8)
    assert dataset.classes == 3 and dataset.class_names == ("n01", "n02", "n10")
    assert dataset.train.y.tolist() == [0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2]
    assert dataset.test.y.tolist() == [2, 1, 0, 2, 1, 0]
    assert dataset.source == f"Tiny ImageNet ({written}/tiny-imagenet-200)"
    for split in (dataset.train, dataset.test):
        assert split.x.shape == (len(split.y), 8, 8, 3) and split.owners is None
        shade = 60 * split.y[:, None, None, None] + 40 + np.arange(8)[None, None, :, None]
        assert np.abs(split.x - shade.astype(int)).max() <= 3


def test_other_sizes_are_scaled_and_gray_images_get_three_channels(copied):
    root, _ = copied
    folders.write_jpeg(root / "train" / "n01" / "images" / "n01_0.JPEG", 1, 12, channels=1)
    x = load(root, size=4).train.x
    assert x.shape == (12, 4, 4, 3)
    assert (x[0] == x[0, :, :, :1]).all() and abs(int(x[0].mean()) - 105) <= 3
    assert np.ptp(x[1].astype(int)) < 8


def test_images_are_decoded_once(copied, tmp_path, monkeypatch):
    root, _ = copied
    monkeypatch.setattr(decoded, "FOLDER", tmp_path / "cache")
    monkeypatch.setattr(decoded, "SMALLEST", 1)
    first = load(root)
    names = sorted(path.name.rpartition("-")[0] for path in (tmp_path / "cache").iterdir())
    assert names == ["tiny_imagenet-train", "tiny_imagenet-val"]
    with monkeypatch.context() as context:
        context.setattr(tiny_imagenet, "_decode_image", None)
        assert load(root).sha256 == first.sha256
    # One changed image deep inside makes all of them stale.
    folders.write_jpeg(root / "train" / "n10" / "images" / "n10_3.JPEG", 0, 8)
    assert load(root).train.x[-1].mean() < 60 < first.train.x[-1].mean()


def test_damaged_image_is_named(copied):
    root, _ = copied
    file = root / "train" / "n02" / "images" / "n02_1.JPEG"
    for content in (file.read_bytes()[:200], b"", b"text"):
        file.write_bytes(content)
        with pytest.raises(InputError, match=f"{file}: is not a complete JPEG image; copy it again"):
            load(root)


def test_pipe_instead_of_an_image_is_rejected(copied):
    root, _ = copied
    file = root / "train" / "n02" / "images" / "n02_1.JPEG"
    file.unlink()
    os.mkfifo(file)
    with pytest.raises(InputError, match=f"{file}: expected a file. Received: a pipe, device or socket"):
        load(root)


LIST = "val_annotations.txt"
LINE = f"{LIST}:1: expected an image and its class .a folder of train/.,"
LISTED = "is listed, but missing in images/"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("val_0.JPEG n01\n", f"{LINE} separated by a tab. Received: 'val_0.JPEG n01'"),
        ("val_0.JPEG\tn01\nval_1.JPEG\tn99\t0\n", rf"{LIST}:2: expected .* Received: 'val_1.JPEG\\tn99\\t0'"),
        ("val_0.JPEG\tn01\nval_0.JPEG\tn02\n", f"{LIST}:2: image 'val_0.JPEG' is listed twice"),
        ("val_9.JPEG\tn01\n", f"val_9.JPEG {LISTED}; unpack the archive again. Received: 1 such"),
        ("val_0.JPEG\tn01\n", "val_1.JPEG is in images/, but not listed; .* Received: 5 such images"),
    ],
)
def test_lists_that_do_not_fit_are_rejected(copied, text, message):
    root, annotations = copied
    annotations.write_text(text)
    with pytest.raises(InputError, match=message):
        load(root)


def test_missing_folders_and_files_are_reported(copied, tmp_path):
    root, annotations = copied
    with pytest.raises(NotAvailable, match="searched: .*/absent; unpack http://cs231n.stanford.edu/tiny-"):
        load(root, path="absent")
    annotations.write_bytes(b"\xff")
    with pytest.raises(InputError, match="val_annotations.txt: is not UTF-8 text .byte 0.; save it as UTF-8"):
        load(root)
    annotations.unlink()
    with pytest.raises(InputError, match="val_annotations.txt: could not read: No such file"):
        load(root)
    shutil.rmtree(root / "train" / "n02" / "images")
    with pytest.raises(InputError, match="train/n02/images: expected .JPEG images. Received: none"):
        load(root)
    for name in ("n02", "n10"):
        shutil.rmtree(root / "train" / name)
    with pytest.raises(InputError, match="train: expected a folder for each class, train/WNID/images. Received: n01"):
        load(root)


def test_sizes_beyond_memory_are_rejected(written, monkeypatch):
    monkeypatch.setattr(os, "sysconf", lambda name: 2)
    with pytest.raises(MemoryProblem, match="tiny_imagenet-train: needs"):
        tiny_imagenet.load(written, size=8)
