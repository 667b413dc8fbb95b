"""FEMNIST: handwritten characters with their writers, from the JSON files that LEAF's scripts make."""

import json
import os
from pathlib import Path

import numpy as np

from hetero_tf.base.errors import InputError
from hetero_tf.base.files import opened
from hetero_tf.base.hardware import check_memory
from hetero_tf.data.data_files import find
from hetero_tf.data.dataset import Dataset, NotAvailable, Split
from hetero_tf.data.decoded import cached

CHARACTERS = tuple("0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz")
SIDE = 28
ARRAYS = ("x", "y", "sizes", "writers")
# A number of 4 letters, such as "1.0,", becomes a Python object of 32 bytes.
GROWTH = 8


def load(data_dir: Path | None, *, path: str = "femnist") -> Dataset:
    """Loads the images of every writer from `path/train/*.json` and `path/test/*.json`, 28 x 28 with white paper.

    The files hold each writer in both splits, as LEAF cuts them with `-t sample`. The writers are numbered in the
    order of their names, and `Split.owners` has the number of each image's writer.

    Args:
        data_dir: Folder in which a relative path is looked for first, then the working folder; None: only the latter.
        path: folder that holds LEAF's train/ and test/

    Raises:
        NotAvailable: There is no such folder.
        InputError: A file is damaged or not LEAF's, or a writer of test/ has no images in train/.
        MemoryProblem: A file or the images do not fit into memory.
    """
    try:
        folder = find(data_dir, path, "path")
    except NotAvailable as error:
        raise NotAvailable(
            f"{error}; LEAF's scripts make train/ and test/ for it: github.com/TalwalkarLab/leaf, "
            "data/femnist, preprocess.sh -s niid --sf 1.0 -k 0 -t sample"
        ) from error
    train, test = (_arrays(folder / part) for part in ("train", "test"))
    number = {name: index for index, name in enumerate(train["writers"].tolist())}
    strange = [name for name in test["writers"].tolist() if name not in number]
    if strange:
        raise InputError(
            f"{folder}: every writer of test/ must be one of train/, so let LEAF cut by sample "
            f"(-t sample). Received: {strange[0]!r} in test/ alone"
        )
    return Dataset(
        _split(train, number),
        _split(test, number),
        len(CHARACTERS),
        f"FEMNIST, {len(number)} writers ({folder})",
        class_names=CHARACTERS,
    )


def _split(arrays, number):
    """Returns the `Split` of cached arrays; `number` maps the name of a writer to its number."""
    owners = np.repeat([number[name] for name in arrays["writers"].tolist()], arrays["sizes"])
    return Split(arrays["x"].reshape(-1, SIDE, SIDE, 1), arrays["y"], owners=owners.astype(np.int32))


def _arrays(folder):
    """The arrays `ARRAYS` of one split, whose writers stand one after the other; read from JSON once."""
    files = sorted(folder.glob("*.json"))
    if not files:
        raise InputError(f"{folder}: expected LEAF's .json files. Received: none")
    return cached(f"femnist-{folder.name}", ["femnist"], folder, ARRAYS, lambda: _read(files))


def _read(files):
    images, labels = {}, {}
    for file in files:
        document = _document(file)
        for writer in _writers(file, document):
            if writer in images:
                raise InputError(
                    f"{file}: the writer {writer!r} stands in an earlier file too; the folder must hold the "
                    "files of one preparation"
                )
            images[writer], labels[writer] = _examples(f"{file}, writer {writer!r}", document["user_data"][writer])
    writers = sorted(images)
    return {
        "x": np.concatenate([images[name] for name in writers]),
        "y": np.concatenate([labels[name] for name in writers]),
        "sizes": np.array([len(labels[name]) for name in writers], np.int64),
        "writers": np.array(writers),
    }


def _document(file):
    """The JSON of a file."""
    with opened(file) as content:
        check_memory(file, GROWTH * os.fstat(content.fileno()).st_size)
        try:
            return json.load(content)
        except (ValueError, RecursionError) as error:
            raise InputError(
                f"{file}: cannot be read as JSON, it is damaged or something else: {str(error).splitlines()[0]}"
            ) from error


def _writers(file, document):
    """Names of the writers in a file of LEAF, after a look at its structure."""
    keys = sorted(document) if isinstance(document, dict) else type(document).__name__
    if not isinstance(document, dict) or not {"users", "user_data"} <= set(keys):
        raise InputError(f"{file}: expected LEAF's keys users and user_data. Received: {keys}")
    names, of_writers = document["users"], document["user_data"]
    texts = isinstance(names, list) and all(isinstance(name, str) for name in names)
    if not texts or not isinstance(of_writers, dict) or sorted(names) != sorted(of_writers):
        raise InputError(
            f"{file}: users must list exactly the keys of user_data. "
            f"Received: users {str(names)[:60]}, user_data {str(of_writers)[:60]}"
        )
    return names


def _examples(where, document):
    """Returns the images uint8 [n, 784] and labels int32 [n] of one writer."""
    x, y = (document.get(name) if isinstance(document, dict) else None for name in ("x", "y"))
    pixels, labels = _array(x, np.float32, (0, SIDE**2)), _array(y, None, (0,))
    if pixels is None or pixels.ndim != 2 or pixels.shape[1] != SIDE**2:
        raise InputError(
            f"{where}: x must hold {SIDE**2} numbers for each image. "
            f"Received: {None if pixels is None else pixels.shape}"
        )
    if not ((pixels >= 0) & (pixels <= 1)).all():
        raise InputError(f"{where}: pixels must be in 0..1. Received: {pixels.min()} to {pixels.max()}")
    if labels is None or labels.dtype.kind != "i" or labels.shape != pixels.shape[:1]:
        raise InputError(
            f"{where}: y must hold one whole number for each of {len(pixels)} images. "
            f"Received: {None if labels is None else f'{labels.dtype} {labels.shape}'}"
        )
    if ((labels < 0) | (labels >= len(CHARACTERS))).any():
        raise InputError(
            f"{where}: labels must be in 0..{len(CHARACTERS) - 1}. Received: {labels.min()} to {labels.max()}"
        )
    return np.round(pixels * 255).astype(np.uint8), labels.astype(np.int32)


def _array(values, dtype, empty):
    """A list of JSON as an array, of shape `empty` if there is nothing in it; None if it is no such list."""
    if not isinstance(values, list):
        return None
    try:
        return np.array(values, dtype) if values else np.zeros(empty, dtype or np.int64)
    except (ValueError, TypeError, OverflowError):
        return None
