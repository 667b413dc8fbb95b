"""Tiny ImageNet: 200 classes of JPEG images, read from the unpacked archive."""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from hetero_tf.base.constraints import Pixels
from hetero_tf.base.errors import InputError
from hetero_tf.base.files import decode, read_bytes
from hetero_tf.base.hardware import check_memory
from hetero_tf.data.codecs import picture
from hetero_tf.data.data_files import find
from hetero_tf.data.dataset import Dataset, NotAvailable, Split
from hetero_tf.data.decoded import load_cached, stamp_files

ENDING = ".JPEG"
# The published list takes 0.6 MB.
LARGEST_LIST = 2**26
LARGEST_IMAGE = 2**26


def load(data_dir: Path | None, *, path: str = "tiny-imagenet-200", size: Pixels = 64) -> Dataset:
    """Loads `train/WNID/images/*.JPEG` for training and `val/images/*.JPEG` for testing.

    The classes are the folders of train/ in alphabetical order; `val/val_annotations.txt` lists the class of each image
    in val/. The images of test/ have no labels and are not used. Decoded pixels are cached, see `decoded`.

    Args:
        path: folder of the unpacked archive
        size: height and width; images of another size are scaled to it (bilinear)
    """
    try:
        folder = find(data_dir, path, "path")
    except NotAvailable as error:
        raise NotAvailable(f"{error}; unpack http://cs231n.stanford.edu/tiny-imagenet-200.zip there") from error
    classes = _find_classes(folder / "train")
    training = _build_split("train", _list_train(folder / "train", classes), size)
    return Dataset(
        training,
        _build_split("val", _list_test(folder / "val", classes), size),
        (picture.field(training.x),),
        len(classes),
        f"Tiny ImageNet ({folder})",
        class_names=tuple(classes),
    )


def _build_split(name, listed, size):
    files, labels = listed
    return Split(_load_pixels(f"tiny_imagenet-{name}", files, size), np.array(labels, np.int32))


def _find_classes(folder):
    """Returns the sorted names of the folders in train/."""
    classes = sorted(entry.name for entry in folder.iterdir() if entry.is_dir()) if folder.is_dir() else []
    if len(classes) < 2:
        raise InputError(
            f"{folder}: expected a folder for each class, train/WNID/images. Received: {', '.join(classes) or 'none'}"
        )
    return classes


def _list_train(folder, classes):
    """Returns (files, labels) of the training split, ordered by class."""
    files, labels = [], []
    for label, name in enumerate(classes):
        images = sorted((folder / name / "images").glob(f"*{ENDING}"))
        if not images:
            raise InputError(f"{folder / name / 'images'}: expected {ENDING} images. Received: none")
        files += images
        labels += [label] * len(images)
    return files, labels


def _list_test(folder, classes):
    """Returns (files, labels) of the test split, in the order of val_annotations.txt."""
    annotations, number = folder / "val_annotations.txt", {name: label for label, name in enumerate(classes)}
    lines = decode(read_bytes(annotations, LARGEST_LIST, follow=True), annotations).splitlines()
    listed = {}
    for line, text in enumerate(lines, 1):
        name, label = (text.split("\t") + [""])[:2]
        if label not in number:
            raise InputError(
                f"{annotations}:{line}: expected an image and its class (a folder of train/), separated by "
                f"a tab. Received: {text[:80]!r}"
            )
        if name in listed:
            raise InputError(f"{annotations}:{line}: image {name!r} is listed twice")
        listed[name] = number[label]
    present = {path.name for path in (folder / "images").glob(f"*{ENDING}")}
    for names, problem in (
        (listed.keys() - present, "is listed, but missing in images/"),
        (present - listed.keys(), "is in images/, but not listed"),
    ):
        if names:
            raise InputError(
                f"{annotations}: {min(names)} {problem}; unpack the archive again. Received: {len(names)} such images"
            )
    return [folder / "images" / name for name in listed], list(listed.values())


def _load_pixels(name, files, size):
    """Returns uint8 [files, size, size, 3], from the cache if the files are unchanged."""
    if not files:
        raise InputError(f"{name}: expected {ENDING} images. Received: none")
    check_memory(name, 2 * len(files) * size**2 * 3)

    def read():
        x = np.empty((len(files), size, size, 3), np.uint8)
        with ThreadPoolExecutor(os.cpu_count()) as workers:
            for index, image in enumerate(workers.map(lambda path: _decode_image(path, size), files)):
                x[index] = image
        return {"x": x}

    return load_cached(name, [size, stamp_files(files)], files[0].parent, ("x",), read)["x"]


def _decode_image(path, size):
    """Decodes an image to uint8 [size, size, 3]; a grey image gets three equal channels."""
    import tensorflow as tf

    try:
        image = tf.io.decode_jpeg(read_bytes(path, LARGEST_IMAGE, follow=True), channels=3)
    except tf.errors.OpError as error:
        raise InputError(f"{path}: is not a complete JPEG image; copy it again") from error
    if image.shape[:2] != (size, size):
        image = tf.cast(tf.round(tf.image.resize(image, (size, size))), tf.uint8)
    return image.numpy()
