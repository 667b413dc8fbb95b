"""Loads image classification sets of TensorFlow Datasets: mnist, cifar10, emnist/balanced..."""

import contextlib
import functools
import io
import logging
import re
import urllib.error
import urllib.request
from pathlib import Path

import numpy as np

from hetero_tf.base.constraints import Pixels
from hetero_tf.base.errors import InputError, UserError
from hetero_tf.base.hardware import check_memory
from hetero_tf.data.codecs import picture
from hetero_tf.data.dataset import Dataset, NotAvailable, Split
from hetero_tf.data.decoded import load_cached

REACH_SECONDS = 10
ARRAYS = ("x_train", "y_train", "x_test", "y_test")
# NAME, NAME/CONFIG, NAME:VERSION and NAME/CONFIG:VERSION. Other forms that TensorFlow Datasets accepts load community
# code, which installs and runs packages, or pass arguments to the builder class.
NAME = re.compile(r"[a-zA-Z]\w*(/[\w+.-]+)?(:\d+\.\d+\.\d+)?", re.ASCII)


def load(
    data_dir: Path | None,
    *,
    dataset: str,
    image: str = "image",
    label: str = "label",
    train: str = "train",
    test: str = "test",
    size: Pixels | None = None,
    transpose: bool = False,
    download: bool = True,
) -> Dataset:
    """Load a prepared image set from the data folder, or download and prepare it.

    Args:
        data_dir: Folder with `tfds/`; None: the default folder of TensorFlow Datasets.
        dataset: name in TensorFlow Datasets, such as mnist, cifar10 or emnist/balanced
        image: name of the image feature
        label: name of the label feature
        train: name of the training split
        test: name of the test split
        size: scale all images to this height and width (bilinear); required if their sizes differ
        transpose: swap rows and columns; needed for emnist, whose images are stored transposed
        download: download the set if it is not prepared

    Returns:
        `Dataset` in the order of the prepared files.
    """
    if not NAME.fullmatch(dataset):
        raise InputError(
            "`dataset` must be a name of TensorFlow Datasets, such as mnist, emnist/balanced or mnist:3.0.1, without a "
            f"namespace, a path or arguments. Received: dataset={dataset!r}"
        )
    location = None if data_dir is None else str(Path(data_dir) / "tfds")
    with _suppress_output(), _described_errors(dataset, location):
        builder = _open_builder(location, dataset)
        if not builder.is_prepared():
            _fetch(builder, dataset, download)
        shape, classes, names = _read_features(builder, image, label, size)
        read = functools.partial(_read_split, builder, image=image, label=label, shape=shape, size=size)
        name, folder, options = builder.info.full_name, Path(builder.data_path), [image, label, train, test, size]
        arrays = load_cached(name, options, folder, ARRAYS, lambda: dict(zip(ARRAYS, (*read(train), *read(test)))))
    if transpose:
        for name in ("x_train", "x_test"):
            arrays[name] = np.ascontiguousarray(np.swapaxes(arrays[name], 1, 2))
    splits = (Split(arrays["x_train"], arrays["y_train"]), Split(arrays["x_test"], arrays["y_test"]))
    fields, source = (picture.field(splits[0].x),), f"{builder.info.full_name} ({builder.data_path})"
    return Dataset(*splits, fields, classes, source, class_names=names)


@contextlib.contextmanager
def _suppress_output():
    level = logging.root.manager.disable
    logging.disable(logging.ERROR)
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            yield
    finally:
        logging.disable(level)


@contextlib.contextmanager
def _described_errors(dataset, location):
    """Turn the many exceptions of TensorFlow Datasets for unknown names and damaged files into one sentence."""
    try:
        yield
    except (UserError, MemoryError):
        raise
    except Exception as error:
        raise InputError(
            f"{dataset} cannot be read in {location or 'the folder of TensorFlow Datasets'}: {_first_line(error)}; "
            "correct the name of the set or split, or delete its folder and prepare it again"
        ) from error


def _open_builder(location, dataset):
    import tensorflow_datasets as tfds

    return tfds.builder(dataset, data_dir=location, try_gcs=False)


def _fetch(builder, dataset, download):
    reason = _check_reachable(builder) if download else "downloads are disabled (download: false)"
    if reason is None:
        try:
            builder.download_and_prepare()
            return
        # Any failure (network, checksum, disk, a missing module) means that the set is not available.
        except Exception as error:
            reason = _first_line(error)
    raise NotAvailable(
        f"{dataset} is not prepared in {builder.data_path} and could not be downloaded: {reason}; put the prepared set "
        "there, set --data_dir or HETERO_TF_DATA to the folder that contains tfds/, or set a fallback in the recipe: "
        f"data: {{name: tfds, dataset: {dataset}, fallback: digits}}"
    )


def _check_reachable(builder):
    """Return the reason if the server of a set does not respond, else None; TFDS itself retries for minutes."""
    for url in list(builder.url_infos)[:1]:
        try:
            with urllib.request.urlopen(urllib.request.Request(url, method="HEAD"), timeout=REACH_SECONDS):
                return None
        except urllib.error.HTTPError:
            return None
        except (OSError, ValueError) as error:
            return f"{url.split('/')[2]} does not respond ({getattr(error, 'reason', error)})"
    return None


def _read_features(builder, image, label, size):
    """Return (image shape, number of classes, class names or None) from the metadata of the set."""
    features, name = builder.info.features, builder.info.full_name
    if not {image, label} <= set(features):
        raise InputError(
            f"`image` and `label` must be features of {name}: {', '.join(sorted(features))}. "
            f"Received: {image=}, {label=}"
        )
    shape, classes = features[image].shape, getattr(features[label], "num_classes", None)
    if len(shape) != 3 or shape[2] is None or features[image].np_dtype != np.uint8 or not classes:
        raise InputError(
            "`image` must be a feature of uint8 images with 3 axes, and `label` one of class labels. "
            f"Received: {image=}, {features[image]}, {label=}, {features[label]}"
        )
    if size is not None:
        shape = (size, size, shape[2])
    if None in shape:
        raise InputError(f"{name} has images of different sizes; set `size` to scale them. Received: size=None")
    names = features[label].names
    return shape, classes, tuple(names) if names and len(names) == classes else None


def _read_split(builder, split, image, label, shape, size):
    count = builder.info.splits[split].num_examples
    check_memory(f"{builder.info.full_name}, split {split}", 2 * count * int(np.prod(shape)))
    x, y = _read_examples(builder, split, image, label, size, count)
    return x, y.astype(np.int32)


def _read_examples(builder, split, image, label, size, count):
    import tensorflow as tf
    import tensorflow_datasets as tfds

    decoders = tfds.decode.PartialDecoding({image: builder.info.features[image], label: builder.info.features[label]})
    # Read one file at a time: with interleaving, the order depends on the number of files.
    order = tfds.ReadConfig(interleave_cycle_length=1, try_autocache=False)
    examples = builder.as_dataset(split=split, shuffle_files=False, read_config=order, decoders=decoders)

    def scaled(one):
        pixels = tf.round(tf.image.resize(one[image], (size, size)))
        return {image: tf.cast(pixels, tf.uint8), label: one[label]}

    if size is not None:
        examples = examples.map(scaled)
    # Another number of examples than that of the metadata raises an error at the end.
    (batch,) = examples.batch(max(count, 1)).as_numpy_iterator()
    return batch[image], batch[label]


def _first_line(error):
    line = (str(error).strip().splitlines() or [type(error).__name__])[0]
    return line.rpartition('}": ')[2].rstrip(".")
