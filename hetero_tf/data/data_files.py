"""Finding a person's own data file or folder."""

import os
from pathlib import Path

from hetero_tf.base.errors import InputError
from hetero_tf.data.dataset import NotAvailable

READS = (
    "data: npz reads .npz files, data: npy a folder of .npy files, data: csv tables as text, data: parquet .parquet "
    "and .arrow files and Hugging Face's folders, data: folder a folder of pictures for each class, data: text plain "
    "text"
)


def find(data_dir: Path | None, name: str, argument: str) -> Path:
    """Returns the path of `name`, looked for in `data_dir` (unless None) and then in the working folder.

    Args:
        data_dir: Data folder or None.
        name: Path from a recipe.
        argument: Option that the path was given for, for the sentence.

    Raises:
        NotAvailable: There is nothing of that name.
    """
    candidates = [Path(name)] if data_dir is None else [Path(data_dir) / name, Path(name)]
    for candidate in candidates:
        # Unlike Path.exists, this is False for names that are too long.
        if os.path.exists(candidate):
            return candidate
    looked = " or ".join(str(candidate.absolute()) for candidate in dict.fromkeys(candidates))
    raise NotAvailable(f"`{argument}` must name an existing file. Received: {argument}={name!r}; there is no {looked}")


def find_file(data_dir: Path | None, name: str, argument: str) -> Path:
    """As `find`, for a loader that reads no folder; `InputError` says which one does."""
    path = find(data_dir, name, argument)
    if path.is_dir():
        raise InputError(f"{path}: expected a file. Received: a folder; {READS}")
    return path


def find_folder(data_dir: Path | None, name: str, argument: str) -> Path:
    """As `find`, for a loader that reads a folder; `InputError` says what reads a file."""
    path = find(data_dir, name, argument)
    if not path.is_dir():
        raise InputError(f"{path}: expected a folder. Received: a file; {READS}")
    return path
