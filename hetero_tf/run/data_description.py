"""The description of the data in a run folder, with its own sha256."""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hetero_tf.base import files
from hetero_tf.data.dataset import Dataset
from hetero_tf.data.described import DescribedDataset, describe, from_description
from hetero_tf.runs import plain_json

ADVICE = "; put it back, or delete it to use the data themselves"


def save(path: Path, dataset: Dataset) -> None:
    """Write the description of a data set as one JSON file, atomically.

    Raises:
        InputError: The description is larger than `plain_json.LIMIT`, or a name is not valid Unicode.
        DiskProblem: The write failed.
    """
    value = describe(dataset)
    files.write_atomic(path, plain_json.dump(value | {"sha256": _digest(value)}, "the description of the data"))


def load(path: Path) -> DescribedDataset:
    """Read a file that `save` wrote.

    Raises:
        InputError: The file is missing, damaged or changed.
    """
    value: Any = plain_json.parse(files.read_bytes(path, plain_json.LIMIT), path)
    if not isinstance(value, dict) or value.get("sha256") != _digest(value):
        raise files.Damaged(
            f"{path}: its content differs from its sha256, so the file was changed or is damaged{ADVICE}"
        )
    try:
        return from_description(value)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise files.Damaged(f"{path}: does not describe a data set: {error}{ADVICE}") from error


def _digest(value: Mapping[str, Any]) -> str:
    """Hex digest of all entries except the digest itself."""
    return hashlib.sha256(plain_json.dump({name: value[name] for name in value if name != "sha256"}, "it")).hexdigest()
