"""A person's own pictures: a folder for each class."""

import functools
import hashlib
import math
import os
from pathlib import Path
from typing import Literal

import numpy as np

from hetero_tf.base.constraints import Pixels, TestShare
from hetero_tf.base.errors import InputError
from hetero_tf.base.files import check_utf8, read_bytes
from hetero_tf.base.picture_files import FORMATS, GIF, WEBP
from hetero_tf.data.data_files import find_folder
from hetero_tf.data.dataset import Dataset, Split
from hetero_tf.data.decoded import cached
from hetero_tf.data.decoded_to_disk import cached_on_disk, is_large
from hetero_tf.data.disk_array import DiskArray
from hetero_tf.data.held_out import held_out
from hetero_tf.data.picture_arrays import ENDINGS, LARGEST_FILE, decode_pictures, decoded_blocks

# Names of the folder of test pictures, the first that is there.
TESTS = ("test", "val", "validation", "valid")
# Pictures of other formats: leaving them out without a word would make a class smaller than a person thinks.
OTHERS = (".tif", ".tiff", ".heic", ".heif", ".avif", ".svg", ".ppm", ".pgm", ".jp2", ".jxl", ".ico")
# Folders of thumbnails and deleted files that systems and file servers make. Hidden ones, which begin with a dot, are
# skipped too.
SYSTEM_FOLDERS = frozenset(
    ("__macosx", "@eadir", "@recycle", "#recycle", "$recycle.bin", "lost+found", "system volume information")
)


def load(
    data_dir: Path | None, *, path: str, size: Pixels, channels: Literal[1, 3] = 3, test_share: TestShare = 0.2
) -> Dataset:
    """Loads PNG, JPEG, BMP, GIF and WebP pictures of any size; the names of their folders are the class names.

    FOLDER/train/CLASS/*.png and FOLDER/test/CLASS/*.png, or FOLDER/CLASS/*.png, of which a share of each class becomes
    the test split. Pictures are resized by area means, turned as their Exif entry says, and made grey or coloured;
    exports treat pictures in the same way. Decoded pixels are cached, see `decoded`; above 2 GiB, or a quarter of
    memory, those of a split stay on disk, see `decoded_to_disk`.

    Args:
        data_dir: Folder in which a relative path is looked for first, then the working folder; None: only the latter.
        path: the folder
        size: height and width that every picture is resized to
        channels: 1 (grey) or 3 (coloured)
        test_share: share of each class that is for testing; has no effect where there is a folder test, val,
            validation or valid beside train

    Raises:
        NotAvailable: There is no such folder.
        InputError: A folder is no class, or a picture is damaged or of another format.
        DiskProblem: Pictures that stay on disk cannot be written there.
    """
    folder = find_folder(data_dir, path, "path")
    train, test = _parts(folder)
    names = _classes(train)
    read = functools.partial(_read, size=size, channels=channels)
    files, labels = _listed(train, names)
    if test is not None:
        splits = read(train, files, labels), read(test, *_listed(test, names))
    else:
        whole, tested = read(train, files, labels), held_out(np.array(labels), test_share, str(folder))
        splits = whole.of(~tested), whole.of(tested)
    kept = {split.x.path: split.x.file_bytes for split in splits if isinstance(split.x, DiskArray)}
    on_disk = f"; {sum(kept.values()) / 2**30:.1f} GiB of pixels stay on disk" if kept else ""
    return Dataset(splits[0], splits[1], len(names), f"pictures ({folder}{on_disk})", class_names=tuple(names))


def _parts(folder):
    """The folders of the training and the test split; None for the latter where there is one folder for both."""
    if not (folder / "train").is_dir():
        return folder, None
    tests = [folder / name for name in TESTS if (folder / name).is_dir()]
    return folder / "train", tests[0] if tests else None


def _folders(folder):
    names = sorted(entry.name for entry in folder.iterdir() if entry.is_dir() and not _is_system(entry.name))
    for name in names:
        check_utf8(folder / name)
    return names


def _is_system(name):
    return name.startswith(".") or name.lower() in SYSTEM_FOLDERS


def _classes(folder):
    names = _folders(folder)
    if len(names) < 2:
        raise InputError(
            f"{folder}: expected a folder of pictures for each of at least two classes, such as {folder}/cat/1.png. "
            f"Received: {', '.join(names) or 'no folder'}"
        )
    return names


def _listed(folder, names):
    """(files, labels), class by class; those of a class in the order of their paths."""
    number = {name: label for label, name in enumerate(names)}
    files, labels = [], []
    for name in _folders(folder):
        if name not in number:
            raise InputError(f"{folder / name}: is no class of the training pictures: {', '.join(names[:10])}")
        own = sorted(_pictures_in(folder / name))
        if not own:
            raise InputError(f"{folder / name}: expected pictures that end in {', '.join(ENDINGS)}. Received: none")
        # As text they take a third of the memory.
        files += map(str, own)
        labels += [number[name]] * len(own)
    if not files:
        raise InputError(f"{folder}: expected a folder of pictures for each class. Received: no folder")
    return files, labels


def _pictures_in(folder):
    """Paths of the pictures in a folder and the folders in it, without those of systems."""
    for entry in folder.iterdir():
        if _is_system(entry.name):
            continue
        if entry.is_dir() and not entry.is_symlink():
            yield from _pictures_in(entry)
        elif _is_picture(entry):
            check_utf8(entry)
            yield entry


def _is_picture(file):
    """Whether a file is to be read; other files, such as notes, are not."""
    ending = file.suffix.lower()
    if ending in OTHERS and file.is_file():
        raise InputError(f"{file}: is not read, since it ends in {ending}; convert it to {FORMATS}")
    return ending in ENDINGS and file.is_file()


def _content(path):
    """The bytes of a picture, whose ending must not hide that it is a GIF, perhaps with more frames, or a WebP."""
    content = read_bytes(path, LARGEST_FILE, follow=True)
    for is_kind, ending in ((content.startswith(GIF), ".gif"), (content[8:12] == WEBP, ".webp")):
        if is_kind and not path.lower().endswith(ending):
            raise InputError(f"{path}: is a {ending[1:]} file by its content; rename it so that it ends in {ending}")
    return content


def _read(folder, files, labels, size, channels):
    """The `Split` of pictures, from the cache if it holds those of these very files."""
    stamp = hashlib.sha256()
    for path in files:
        about = os.stat(path)
        stamp.update(f"{path} {about.st_size} {about.st_mtime_ns}\n".encode())
    readers = ((path, functools.partial(_content, path)) for path in files)
    name = f"folder-{hashlib.sha256(str(folder.absolute()).encode()).hexdigest()[:16]}"
    options, shape = [size, channels, stamp.hexdigest()], (len(files), size, size, channels)
    if is_large(math.prod(shape)):
        x = cached_on_disk(name, options, folder, shape, lambda: decoded_blocks(readers, size, channels))
    else:
        pictures = str(folder), readers, len(files), size, channels
        x = cached(name, options, folder, ("x",), lambda: {"x": decode_pictures(*pictures)})["x"]
    return Split(x, np.array(labels, np.int32))
