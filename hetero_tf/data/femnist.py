"""FEMNIST: handwritten characters with their writers, from the JSON files of LEAF's preprocessing scripts."""

import json
import os
from pathlib import Path

import numpy as np

from hetero_tf.base.errors import InputError, shorten_repr
from hetero_tf.base.files import open_file
from hetero_tf.base.hardware import check_memory
from hetero_tf.data.codecs import picture
from hetero_tf.data.data_files import find
from hetero_tf.data.dataset import Dataset, Split
from hetero_tf.data.decoded import load_cached

CHARACTERS = tuple("0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz")
SIDE = 28
ADVICE = (
    "; create its train/ and test/ with LEAF's scripts: github.com/TalwalkarLab/leaf, data/femnist, preprocess.sh "
    "-s niid --sf 1.0 -k 0 -t sample"
)
ARRAYS = ("x", "y", "sizes", "writers")
# A number of 4 characters, such as "1.0,", becomes a Python object of 32 bytes.
GROWTH = 8


def load(data_dir: Path | None, *, path: str = "femnist") -> Dataset:
    """Load the images of every writer from `path/train/*.json` and `path/test/*.json`, 28 x 28 on white background.

    Each writer is in both splits, as LEAF splits with `-t sample`. Writers are numbered in alphabetical order, and
    `Split.owners` has the writer's number of each image.

    Args:
        path: folder with LEAF's train/ and test/
    """
    folder = find(data_dir, path, "path", advice=ADVICE)
    train, test = (_load_arrays(folder / part) for part in ("train", "test"))
    number = {name: index for index, name in enumerate(train["writers"].tolist())}
    unknown = [name for name in test["writers"].tolist() if name not in number]
    if unknown:
        raise InputError(f"{folder}: {unknown[0]!r} is a writer of test/ only; let LEAF split by sample (-t sample)")
    training = _build_split(train, number)
    fields, source = (picture.field(training.x),), f"FEMNIST, {len(number)} writers ({folder})"
    return Dataset(training, _build_split(test, number), fields, len(CHARACTERS), source, class_names=CHARACTERS)


def _build_split(arrays, number):
    """Return the `Split` of cached arrays; `number` maps a writer's name to its number."""
    owners = np.repeat([number[name] for name in arrays["writers"].tolist()], arrays["sizes"])
    return Split(arrays["x"].reshape(-1, SIDE, SIDE, 1), arrays["y"], owners=owners.astype(np.int32))


def _load_arrays(folder):
    """Return the arrays `ARRAYS` of one split, grouped by writer; the JSON is parsed only once."""
    files = sorted(folder.glob("*.json"))
    if not files:
        raise InputError(f"{folder}: expected LEAF's .json files. Received: none")
    return load_cached("femnist", [], folder, ARRAYS, lambda: _read_files(files))


def _read_files(files):
    """Return the arrays of a split; each writer has pixels in 0..1 and labels."""
    images, labels = {}, {}
    for file in files:
        with open_file(file) as content:
            check_memory(file, GROWTH * os.fstat(content.fileno()).st_size)
            text = content.read()
        try:
            for writer, examples in json.loads(text)["user_data"].items():
                pixels = np.array(examples["x"], np.float32).reshape(-1, SIDE**2)
                images[writer] = np.round(pixels * 255).astype(np.uint8)
                labels[writer] = np.array(examples["y"], np.int32)
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
            raise InputError(f"{file}: is damaged, or not one of LEAF's JSON files: {shorten_repr(error)}") from error
    if not images:
        raise InputError(f"{files[0].parent}: expected writers. Received: none")
    writers = sorted(images)
    return {
        "x": np.concatenate([images[name] for name in writers]),
        "y": np.concatenate([labels[name] for name in writers]),
        "sizes": np.array([len(labels[name]) for name in writers], np.int64),
        "writers": np.array(writers),
    }
