"""Tiny ImageNet: 200 classes of JPEG images, read from the unpacked archive."""

from pathlib import Path

import numpy as np

from hetero_tf.base.constraints import Pixels
from hetero_tf.base.errors import InputError
from hetero_tf.data.codecs import picture
from hetero_tf.data.data_files import find
from hetero_tf.data.dataset import Dataset, Split
from hetero_tf.data.folder import list_folders, read_pictures
from hetero_tf.data.table_files import read_text


def load(data_dir: Path | None, *, path: str = "tiny-imagenet-200", size: Pixels = 64) -> Dataset:
    """Load `train/WNID/images/*.JPEG` for training and `val/images/*.JPEG` for testing.

    The classes are the folders of train/ in alphabetical order; `val/val_annotations.txt` lists the class of each image
    in val/. The images of test/ have no labels and are not used. Decoded pixels are cached, see `decoded`.

    Args:
        path: folder of the unpacked archive
        size: height and width; images of another size are scaled to it by area averaging
    """
    advice = "; unpack http://cs231n.stanford.edu/tiny-imagenet-200.zip there"
    folder = find(data_dir, path, "path", advice=advice)
    classes = list_folders(folder / "train") if (folder / "train").is_dir() else []
    pictures = {name: sorted((folder / "train" / name / "images").glob("*.JPEG")) for name in classes}
    if not all(pictures.values()) or len(classes) < 2:
        raise InputError(
            f"{folder}: expected train/WNID/images/*.JPEG of at least two classes. Received: {', '.join(classes[:10])}"
        )
    train = [(file, label) for label, name in enumerate(classes) for file in pictures[name]]
    training = _read_split(folder / "train", train, size)
    test = _read_split(folder / "val", _list_val(folder, classes), size)
    fields = (picture.field(training.x),)
    return Dataset(training, test, fields, len(classes), f"Tiny ImageNet ({folder})", class_names=tuple(classes))


def _list_val(folder, classes):
    """Return the files of the test split and their labels, in the order of val_annotations.txt."""
    annotations, listed = folder / "val" / "val_annotations.txt", []
    images = {path.name: path for path in (folder / "val" / "images").glob("*.JPEG")}
    for line in read_text(annotations).splitlines():
        name, label = (line.split("\t") + [""])[:2]
        if label not in classes or name not in images:
            raise InputError(
                f"{annotations}: expected an image of images/ and its class (a folder of train/), separated by a tab. "
                f"Received: {line[:80]!r}"
            )
        listed.append((images[name], classes.index(label)))
    if not listed:
        raise InputError(f"{annotations}: expected a line for each image. Received: none")
    return listed


def _read_split(folder, listed, size):
    files, labels = zip(*listed)
    return Split(read_pictures(folder, list(map(str, files)), size, 3), np.array(labels, np.int32))
