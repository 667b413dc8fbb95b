"""FEMNIST: handwritten characters with their writers, from the JSON files of LEAF's preprocessing scripts."""

import json
import os
from pathlib import Path

import numpy as np

from hetero_tf.base.errors import InputError
from hetero_tf.base.files import open_file
from hetero_tf.base.hardware import check_memory
from hetero_tf.data.codecs import picture
from hetero_tf.data.data_files import find
from hetero_tf.data.dataset import Dataset, NotAvailable, Split
from hetero_tf.data.decoded import load_cached

CHARACTERS = tuple("0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz")
SIDE = 28
ARRAYS = ("x", "y", "sizes", "writers")
# A number of 4 characters, such as "1.0,", becomes a Python object of 32 bytes.
GROWTH = 8


def load(data_dir: Path | None, *, path: str = "femnist") -> Dataset:
    """Loads the images of every writer from `path/train/*.json` and `path/test/*.json`, 28 x 28 on white background.

    Each writer is in both splits, as LEAF splits with `-t sample`. Writers are numbered in alphabetical order, and
    `Split.owners` has the writer's number of each image.

    Args:
        path: folder with LEAF's train/ and test/
    """
    try:
        folder = find(data_dir, path, "path")
    except NotAvailable as error:
        raise NotAvailable(
            f"{error}; create its train/ and test/ with LEAF's scripts: github.com/TalwalkarLab/leaf, "
            "data/femnist, preprocess.sh -s niid --sf 1.0 -k 0 -t sample"
        ) from error
    train, test = (_load_arrays(folder / part) for part in ("train", "test"))
    number = {name: index for index, name in enumerate(train["writers"].tolist())}
    unknown = [name for name in test["writers"].tolist() if name not in number]
    if unknown:
        raise InputError(
            f"{folder}: every writer in test/ must also be in train/; let LEAF split by sample "
            f"(-t sample). Received: {unknown[0]!r} in test/ only"
        )
    training = _build_split(train, number)
    return Dataset(
        training,
        _build_split(test, number),
        (picture.field(training.x),),
        len(CHARACTERS),
        f"FEMNIST, {len(number)} writers ({folder})",
        class_names=CHARACTERS,
    )


def _build_split(arrays, number):
    """Returns the `Split` of cached arrays; `number` maps a writer's name to its number."""
    owners = np.repeat([number[name] for name in arrays["writers"].tolist()], arrays["sizes"])
    return Split(arrays["x"].reshape(-1, SIDE, SIDE, 1), arrays["y"], owners=owners.astype(np.int32))


def _load_arrays(folder):
    """Returns the arrays `ARRAYS` of one split, grouped by writer; the JSON is parsed only once."""
    files = sorted(folder.glob("*.json"))
    if not files:
        raise InputError(f"{folder}: expected LEAF's .json files. Received: none")
    return load_cached(f"femnist-{folder.name}", ["femnist"], folder, ARRAYS, lambda: _read_files(files))


def _read_files(files):
    images, labels = {}, {}
    for file in files:
        document = _parse_json(file)
        for writer in _check_writers(file, document):
            if writer in images:
                raise InputError(
                    f"{file}: writer {writer!r} appears in two files; use the files of a single LEAF export"
                )
            images[writer], labels[writer] = _read_examples(f"{file}, writer {writer!r}", document["user_data"][writer])
    writers = sorted(images)
    return {
        "x": np.concatenate([images[name] for name in writers]),
        "y": np.concatenate([labels[name] for name in writers]),
        "sizes": np.array([len(labels[name]) for name in writers], np.int64),
        "writers": np.array(writers),
    }


def _parse_json(file):
    """Parses the JSON of a file."""
    with open_file(file) as content:
        check_memory(file, GROWTH * os.fstat(content.fileno()).st_size)
        try:
            return json.load(content)
        except (ValueError, RecursionError) as error:
            raise InputError(
                f"{file}: cannot be parsed as JSON; it is damaged or has another format: {str(error).splitlines()[0]}"
            ) from error


def _check_writers(file, document):
    """Returns the writers' names in a LEAF file, after a check of its structure."""
    keys = sorted(document) if isinstance(document, dict) else type(document).__name__
    if not isinstance(document, dict) or not {"users", "user_data"} <= set(keys):
        raise InputError(f"{file}: expected LEAF's keys users and user_data. Received: {keys}")
    names, of_writers = document["users"], document["user_data"]
    texts = isinstance(names, list) and all(isinstance(name, str) for name in names)
    if not texts or not isinstance(of_writers, dict) or sorted(names) != sorted(of_writers):
        raise InputError(
            f"{file}: users must equal the keys of user_data. "
            f"Received: users {str(names)[:60]}, user_data {str(of_writers)[:60]}"
        )
    return names


def _read_examples(location, document):
    """Returns the images uint8 [n, 784] and labels int32 [n] of one writer."""
    x, y = (document.get(name) if isinstance(document, dict) else None for name in ("x", "y"))
    pixels, labels = _to_array(x, np.float32, (0, SIDE**2)), _to_array(y, None, (0,))
    if pixels is None or pixels.ndim != 2 or pixels.shape[1] != SIDE**2:
        raise InputError(
            f"{location}: x must have {SIDE**2} numbers for each image. "
            f"Received: {None if pixels is None else pixels.shape}"
        )
    if not ((pixels >= 0) & (pixels <= 1)).all():
        raise InputError(f"{location}: pixels must be in 0..1. Received: {pixels.min()} to {pixels.max()}")
    if labels is None or labels.dtype.kind != "i" or labels.shape != pixels.shape[:1]:
        raise InputError(
            f"{location}: y must have one integer for each of {len(pixels)} images. "
            f"Received: {None if labels is None else f'{labels.dtype} {labels.shape}'}"
        )
    if ((labels < 0) | (labels >= len(CHARACTERS))).any():
        raise InputError(
            f"{location}: labels must be in 0..{len(CHARACTERS) - 1}. Received: {labels.min()} to {labels.max()}"
        )
    return np.round(pixels * 255).astype(np.uint8), labels.astype(np.int32)


def _to_array(values, dtype, empty):
    """Converts a JSON list to an array, of shape `empty` if the list is empty; None if it is not a regular list."""
    if not isinstance(values, list):
        return None
    try:
        return np.array(values, dtype) if values else np.zeros(empty, dtype or np.int64)
    except (ValueError, TypeError, OverflowError):
        return None
