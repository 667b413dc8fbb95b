"""Loads pictures of the user from one folder per class; lists the files of such folders."""

import functools
import math
import re
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from hetero_tf.base.constraints import Pixels, TestShare
from hetero_tf.base.errors import InputError
from hetero_tf.base.files import check_utf8, read_bytes
from hetero_tf.data.codecs import picture
from hetero_tf.data.codecs.picture import PICTURES
from hetero_tf.data.data_files import TEST_NAMES, FileKind, find, find_split_names
from hetero_tf.data.dataset import Dataset, Split, hold_out
from hetero_tf.data.decoded import decode_blocks, is_large, load_cached
from hetero_tf.data.disk_array import DiskArray
from hetero_tf.data.inspection import describe_pictures
from hetero_tf.data.picture_files import LARGEST_FILE, decode_pixels

# Subfolders on the way to a picture's class: the split and the class.
CLASS_LEVELS = 2
# Folders of thumbnails and deleted files made by operating systems and file servers. Hidden folders are skipped too.
SYSTEM_FOLDERS = frozenset(
    ("__macosx", "@eadir", "@recycle", "#recycle", "$recycle.bin", "lost+found", "system volume information")
)
# Words in the path of a mask, such as 1_mask.png or masks/1.png, and in that of its picture.
MASK = re.compile(r"(^|[/ _.-])(mask|seg|segmentation|gt|label|annotation)s?(_?\d+)?(?=/|$)", re.IGNORECASE)
IMAGE = re.compile(r"(^|[/ _.-])(image|img)s?(?=/|$)", re.IGNORECASE)


@dataclass(frozen=True)
class ClassFolder:
    """The files of a split, ordered by class and then by path.

    Attributes:
        folder: The folder with one folder per class.
        files: Paths; strings take a third of the memory of paths.
        labels: Class of each file.
    """

    folder: Path
    files: list[str]
    labels: list[int]


def load(
    data_dir: Path | None, *, path: str, size: Pixels, channels: Literal[1, 3] = 3, test_share: TestShare = 0.2
) -> Dataset:
    """Load PNG, JPEG, BMP, GIF and WebP pictures of any size; the names of their folders are the class names.

    The layout is FOLDER/train/CLASS/*.png and FOLDER/test/CLASS/*.png, or FOLDER/CLASS/*.png, where a share of each
    class becomes the test split. Masks such as 1_mask.png beside 1.png are left out. Pictures are resized by area
    averaging, rotated by their Exif orientation, and converted to grey or colour, of 16 bits the upper 8; exports
    resize and convert alike. Decoded pixels are cached, see `decoded`; above 2 GiB, or a quarter of memory, the pixels
    of a split stay on disk.

    Args:
        path: the folder
        size: height and width to which every picture is resized
        channels: 1 (grey) or 3 (colour)
        test_share: share of each class for the test split; no effect if the folder has train and one of test, val,
            validation or valid
    """
    folder = find(data_dir, path, "path", is_folder=True)
    names, train, test = list_class_folders(folder, PICTURES)
    read = functools.partial(_read_split, size=size, channels=channels)
    splits = (read(train), read(test)) if test else hold_out(read(train), test_share, str(folder))
    sizes = [split.x.nbytes for split in splits if isinstance(split.x, DiskArray)]
    on_disk = f"; {sum(sizes) / 2**30:.1f} GiB of pixels stay on disk" if sizes else ""
    pictures = describe_pictures(train.files)
    source = f"pictures ({folder}{on_disk})"
    fields = (picture.field(splits[0].x),)
    return Dataset(splits[0], splits[1], fields, len(names), source, class_names=names, summary=pictures)


def split_folders(folder: Path) -> tuple[Path, Path | None]:
    """Return the folders of the training and the test split; the latter is None if one folder has both."""
    names = list_folders(folder)
    (train, *_), (test, *_) = (split or [""] for split in find_split_names(names))
    # Beside several classes, a folder without folders is the class of trains.
    is_class = len(names) > 2 and not any(name.lower().startswith(TEST_NAMES) for name in names)
    train = train if not is_class or list_folders(folder / train) else ""
    return folder / train, folder / test if test else None


def list_folders(folder: Path) -> list[str]:
    """Return the sorted names of the folders in a folder, without hidden and system folders."""
    names = sorted(entry.name for entry in folder.iterdir() if entry.is_dir() and not _is_system(entry.name))
    for name in names:
        check_utf8(folder / name)
    return names


def _is_system(name):
    return name.startswith(".") or name.lower() in SYSTEM_FOLDERS


def list_class_folders(folder: Path, kind: FileKind) -> tuple[tuple[str, ...], ClassFolder, ClassFolder | None]:
    """Return the names of the classes, and the files of the training and the test split; see `split_folders`.

    Raises:
        InputError: A folder has fewer than two classes, no files or an unknown class.
    """
    train, test = split_folders(folder)
    names = tuple(list_folders(train))
    if len(names) < 2:
        raise InputError(
            f"{train}: expected one folder of {kind.noun} per class, at least two classes, such as "
            f"{train}/cat/1{kind.endings[0]}. Received: {', '.join(names) or 'no folder'}"
            + "".join(f"; if the classes are in it, name {train / name}" for name in names)
        )
    kinds = {name.lower().rstrip("s") for name in names}
    if len(names) == 2 and kinds & {"image", "img"} and kinds & {"annotation", "gt", "label", "mask"}:
        raise InputError(
            f"{train}: {'/ and '.join(names)}/ are pictures with masks, not two classes; name them images and masks; "
            f"use data: masks and task: segmentation. Received: data: {kind.loader}"
        )
    files = _list_files(train, names, kind)
    if all((inner := Path(file).parent).parent != train for file in files.files):
        warnings.warn(
            f"{train}: folders inside of classes, such as {inner.name}, are not read as classes", stacklevel=2
        )
    return names, files, None if test is None else _list_files(test, names, kind)


def _list_files(folder, names, kind):
    number = {name: label for label, name in enumerate(names)}
    listed, masks = list[tuple[str, int]](), set[Path]()
    for name in list_folders(folder):
        if name not in number:
            raise InputError(f"{folder / name}: is not a class of the training {kind.noun}: {', '.join(names[:10])}")
        examples = sorted(filter(kind.includes, iterate_files(folder / name)))
        if not examples:
            raise InputError(f"{folder / name}: expected {', '.join(kind.endings)} files. Received: none")
        start = len(str(folder / name)) + 1
        stems = {str(file)[start:].rpartition(".")[0]: file for file in examples}
        if kind is PICTURES and (marked := set(filter(MASK.search, stems))):
            pictures = {IMAGE.sub("", stem) for stem in stems.keys() - marked}
            masks |= {stems[stem] for stem in marked if MASK.sub("", stem) in pictures}
        listed += ((str(file), number[name]) for file in examples if file not in masks)
    if not listed:
        raise InputError(f"{folder}: expected one folder of {kind.noun} per class. Received: no folder")
    if masks:
        warnings.warn(f"{folder}: {len(masks):,} masks such as {min(masks)} are left out", stacklevel=2)
    return ClassFolder(folder, *map(list, zip(*listed)))


def iterate_files(folder: Path, linked_levels: int = 0) -> Iterator[Path]:
    """Yield the files in a folder and its subfolders, without hidden and system folders.

    Args:
        folder: The folder.
        linked_levels: Levels of subfolders that may be symbolic links, such as `CLASS_LEVELS`.
    """
    for entry in folder.iterdir():
        if _is_system(entry.name):
            continue
        if entry.is_dir() and (linked_levels > 0 or not entry.is_symlink()):
            yield from iterate_files(entry, linked_levels - 1)
        else:
            yield entry


def _read_split(part, size, channels):
    return Split(read_pictures(part.folder, part.files, size, channels), np.array(part.labels, np.int32))


def read_pictures(folder: Path, files: Sequence[str], size: int, channels: int) -> np.ndarray | DiskArray:
    """Return the pixels uint8 `[n, size, size, channels]` of picture files, from the cache if they are unchanged."""
    readers = ((path, functools.partial(read_bytes, path, LARGEST_FILE, follow=True)) for path in files)
    name, shape = f"folder-{size}x{size}x{channels}", (len(files), size, size, channels)
    decode = functools.partial(decode_pixels, size=size, channels=channels)
    large = shape if is_large(math.prod(shape)) else None
    return load_cached(name, [], folder, ("x",), lambda: {"x": decode_blocks(readers, decode)}, files, large)["x"]
