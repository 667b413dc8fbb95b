"""Tiny ImageNet from its folders: order, classes and pixels; what is missing or damaged is one sentence."""

import re
import shutil

import folders
import numpy as np
import pytest
from refusals import refusal

from hetero_tf.base.errors import InputError
from hetero_tf.data import tiny_imagenet
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


def test_gray_images_get_three_channels_and_damaged_ones_are_named(copied):
    root, _ = copied
    file = root / "train" / "n01" / "images" / "n01_0.JPEG"
    folders.write_jpeg(file, 1, 12, channels=1)
    x = load(root, size=4).train.x
    assert x.shape == (12, 4, 4, 3)
    assert (x[0] == x[0, :, :, :1]).all() and abs(int(x[0].mean()) - 105) <= 3
    file.write_bytes(b"text")
    assert f"{file}: is not a readable PNG, JPEG" in refusal(load, root)


def test_lists_that_do_not_fit_and_missing_files_are_rejected(copied):
    root, annotations = copied
    for line in ("val_1.JPEG\tn99\t0", "val_9.JPEG\tn01"):
        annotations.write_text(f"val_0.JPEG\tn01\n{line}\n")
        with pytest.raises(InputError, match=f"val_annotations.txt: expected .* Received: {re.escape(repr(line))}"):
            load(root)
    with pytest.raises(NotAvailable, match="searched: .*/absent; unpack http://cs231n.stanford.edu/tiny-"):
        load(root, path="absent")
    shutil.rmtree(root / "train" / "n02" / "images")
    message = "expected train/WNID/images/*.JPEG of at least two classes. Received: n01, n02, n10"
    assert message in refusal(load, root)
