"""Locates data files and folders of the user."""

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from hetero_tf.base.errors import InputError
from hetero_tf.base.files import check_utf8
from hetero_tf.data.dataset import NotAvailable

LOADERS = (
    "data: npz reads .npz files with x_train, y_train, x_test and y_test, data: npy a folder of these as .npy files, "
    "data: csv tables (text, JSON, Excel), data: parquet .parquet and .arrow files and Hugging Face folders, data: "
    "folder reads one folder of pictures per class, data: audio one folder of WAV files per class, data: masks reads "
    "pictures with masks, data: text reads plain text, data: labelled_text a table, or one folder of texts per class"
)
# Names of the folder or files of the training split, and of the test split in order of preference.
TRAIN_NAMES = ("train", "training")
TEST_NAMES = ("test", "testing", "val", "validation", "valid")


@dataclass(frozen=True)
class FileKind:
    """Files that are examples; other files, such as notes, are skipped.

    Attributes:
        loader: Name of the loader.
        noun: Plural noun.
        formats: Names of the supported formats.
        endings: Supported file extensions.
        unsupported: Extensions of other formats: rejected, because skipping them silently would shrink a class.
    """

    loader: str
    noun: str
    formats: str
    endings: tuple[str, ...]
    unsupported: tuple[str, ...]

    def includes(self, file: Path) -> bool:
        """Return True for a file to read; raise `InputError` for an unsupported format."""
        ending = file.suffix.lower()
        if ending in self.unsupported and file.is_file():
            raise InputError(f"{file}: {ending} files are not supported; convert it to {self.formats}")
        if ending not in self.endings or not file.is_file():
            return False
        check_utf8(file)
        return True


def find_split_names(names: Iterable[str]) -> tuple[list[str], list[str]]:
    """Return the names of folders or files of the training and the test split, such as Train and test_set.

    Shards such as train-00000-of-00002.parquet are one split. A name of several words is that of a split if each split
    has one. Without a training split, both are empty.
    """
    shards: dict[str, list[str]] = {}
    for name in sorted(names, key=lambda name: (len(name), name)):
        shards.setdefault(re.sub(r"(-\d+(-of-\d+.*)?)?(\..*)?$", "", name.lower()), []).append(name)
    words = {stem: re.split(r"[\W_]+", stem) for stem in shards}
    trains = [stem for each in TRAIN_NAMES for stem in shards if each in words[stem]]
    tests = [stem for each in TEST_NAMES for stem in shards if each in words[stem] and stem not in trains]
    if not trains or ((len(trains) > 1 or not tests) and trains[0] != "train"):
        return [], []
    return shards[trains[0]], shards[tests[0]] if tests else []


def find(data_dir: Path | None, name: str, argument: str, is_folder: bool | None = None, advice: str = "") -> Path:
    """Return the path of `name`, searched in `data_dir` (unless None) and then in the working folder.

    Args:
        data_dir: Data folder or None.
        name: Path from a recipe.
        argument: Name of the option, for the message.
        is_folder: Whether it must be a folder or a file. None: either.
        advice: End of the message for a missing path.

    Raises:
        NotAvailable: The path does not exist.
        InputError: The path is not what `is_folder` says.
    """
    candidates = [Path(name)] if data_dir is None else [Path(data_dir) / name, Path(name)]
    for candidate in candidates:
        # Unlike Path.exists, os.path.exists returns False for names that are too long.
        if os.path.exists(candidate):
            if is_folder not in (None, candidate.is_dir()):
                expected = "a folder. Received: a file" if is_folder else "a file. Received: a folder"
                raise InputError(f"{candidate}: expected {expected}; {LOADERS}")
            return candidate
    searched = ", ".join(str(candidate.absolute()) for candidate in dict.fromkeys(candidates))
    raise NotAvailable(
        f"`{argument}` must name an existing file. Received: {argument}={name!r}; searched: {searched}{advice}"
    )


def find_files(data_dir: Path | None, **names: str | None) -> list[Path]:
    """Return the files that options name, without the options that are None; see `find`."""
    return [find(data_dir, name, option, is_folder=False) for option, name in names.items() if name is not None]
