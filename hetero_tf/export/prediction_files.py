"""Writes predictions as CSV, TSV or JSON lines."""

import csv
import io
import itertools
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from hetero_tf.base.errors import InputError
from hetero_tf.base.files import check_write_target, disk_errors, replace_file, write_atomic
from hetero_tf.data.masks import encode_mask
from hetero_tf.data.targets import LABEL_MAP, MAP
from hetero_tf.export.predictions import Item, ItemForm

DELIMITERS = {".csv": ",", ".tsv": "\t"}
JSON_LINES = (".jsonl", ".ndjson")


def check_output(path: Path, inputs: Sequence[str]) -> None:
    """Check the path of a file of predictions before anything is computed."""
    if path.suffix.lower() not in (*DELIMITERS, *JSON_LINES):
        endings = ", ".join((*DELIMITERS, *JSON_LINES))
        raise InputError(f"--out must end in one of {endings}. Received: --out={path}")
    check_write_target(path)
    for name in inputs:
        if path.exists() and os.path.exists(name) and os.path.samefile(path, name):
            raise InputError(f"--out must not be an input, which would be lost. Received: --out={path}")


def write(path: Path, rows: Iterable[dict[str, Any]]) -> None:
    """Write rows to a file, which replaces an earlier one when it is complete.

    Args:
        path: Path whose ending selects the format. JSON lines have lists as lists; in tables their entries are
            separated by semicolons.
        rows: At least one row; a table has the columns of the first one.
    """
    delimiter = DELIMITERS.get(path.suffix.lower())
    with replace_file(path) as file:
        # Names of files may have bytes outside UTF-8.
        text = io.TextIOWrapper(file, "utf-8", errors="backslashreplace", newline="")
        if delimiter is None:
            text.writelines(f"{json.dumps(row, ensure_ascii=False)}\n" for row in rows)
        else:
            _write_table(text, rows, delimiter)
        text.detach()


def _write_table(file, rows, delimiter):
    writer = None
    for row in rows:
        if writer is None:
            writer = csv.DictWriter(file, list(row), "", "ignore", delimiter=delimiter, lineterminator="\n")
            writer.writeheader()
        writer.writerow({name: _join(value) for name, value in row.items()})


def _join(value):
    return "; ".join(map(str, value)) if isinstance(value, list) else value


MAX_CLASSES = 256


def encode_class_map(classes: np.ndarray, size: tuple[int, int]) -> bytes:
    """Return a palette PNG of width and height `size`, of which each pixel has the nearest class [height, width]."""
    rows, columns = (
        ((np.arange(new) + 0.5) * old / new).astype(int) for new, old in zip(size[::-1], classes.shape, strict=True)
    )
    return encode_mask(classes.astype(np.uint8)[np.ix_(rows, columns)], palette())


def palette() -> np.ndarray:
    """Return the colors of the classes, uint8 [256, 3]: class 0 black, neighbours different.

    Bits 0, 1 and 2 of a class are the highest bits of red, green and blue, bits 3, 4 and 5 the next ones, and so on.
    Reference: the color map of the PASCAL VOC devkit.
    """
    classes = np.arange(MAX_CLASSES)[:, None] >> np.arange(3)
    return np.sum([(classes >> 3 * bit & 1) << 7 - bit for bit in range(3)], 0).astype(np.uint8)


def write_maps(folder: Path, form: ItemForm, predictions: Iterable[Item]) -> Iterator[Item]:
    """Write the map of each prediction into a folder under the name of its picture; yield it with the field "map"."""
    if form.targets != LABEL_MAP or form.classes > MAX_CLASSES:
        raise InputError(f"--maps needs a model of the task segmentation with at most {MAX_CLASSES} classes")
    check_write_target(folder, folder=True)
    with disk_errors(folder, "create"):
        folder.mkdir(parents=True, exist_ok=True)
    names: set[str] = set()
    for prediction in predictions:
        path = None
        if prediction.class_map is not None and prediction.size is not None:
            # Pictures of equal names get the endings _2, _3 and so on.
            stem = Path(prediction.source).stem
            candidates = itertools.chain([f"{stem}.png"], (f"{stem}_{number}.png" for number in itertools.count(2)))
            path = folder / next(name for name in candidates if name not in names)
            names.add(path.name)
            write_atomic(path, encode_class_map(prediction.class_map, prediction.size), is_one_of_many=True)
        yield replace(prediction, fields={**prediction.fields, MAP: path and str(path)})
