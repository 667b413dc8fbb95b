"""Loads pictures of the user with masks: PNG files whose pixel values are classes."""

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import numpy as np

from hetero_tf.base.constraints import Pixels, Range, TestShare
from hetero_tf.base.errors import InputError
from hetero_tf.base.files import read_bytes
from hetero_tf.base.hardware import check_memory
from hetero_tf.data.codecs import picture
from hetero_tf.data.codecs.picture import PICTURES
from hetero_tf.data.data_files import find
from hetero_tf.data.dataset import Dataset, Split, hold_out
from hetero_tf.data.decoded import load_cached
from hetero_tf.data.folder import iterate_files, read_pictures, split_folders
from hetero_tf.data.picture_files import LARGEST_FILE, open_picture, picture_header

# Position of the bits per value in a PNG, and values of an error message.
BIT_DEPTH, LISTED = 24, 10
Value = Annotated[int, Range(low=0, high=255)]


def load(
    data_dir: Path | None,
    *,
    path: str,
    size: Pixels,
    channels: Literal[1, 3] = 3,
    values: tuple[Value, ...] | None = None,
    class_names: tuple[str, ...] | None = None,
    test_share: TestShare = 0.2,
) -> Dataset:
    """Load pictures and masks of equal names for the task segmentation: FOLDER/images/1.jpg and FOLDER/masks/1.png.

    A mask is a grey or palette PNG of the size of its upright picture; its grey values or palette indices are the
    classes. Every value is a class, also 255, which marks borders in some data sets.
    Pictures are read like those of `data: folder`; masks are resized to the nearest pixel.

    Args:
        path: the folder, with images/ and masks/, or with train/ and test/ that have both
        size: height and width to which every picture is resized
        channels: 1 (grey) or 3 (colour)
        values: pixel value of each class, such as [0, 255]; null: the values 0, 1, 2, ... of the training masks
        class_names: name of each class; null: their numbers
        test_share: share of the pictures for the test split; no effect if the folder has train and one of test, val,
            validation or valid
    """
    folder = find(data_dir, path, "path", is_folder=True)
    train, test = split_folders(folder)
    read = functools.partial(_read_split, size=size, channels=channels)
    splits = [read(train)] if test is None else [read(train), read(test)]
    pixel_values = _class_values(train, splits[0].y, values, class_names)
    splits = [_with_classes(part, split, pixel_values) for part, split in zip((train, test), splits)]
    training, tests = hold_out(splits[0], test_share, str(folder)) if test is None else splits
    source = f"pictures with masks ({folder})"
    fields = (picture.field(training.x),)
    return Dataset(training, tests, fields, len(pixel_values), source, class_names=class_names)


def _read_split(folder, size, channels):
    """Return the pictures of a folder with the pixel values of their masks as targets, uint8 `[n, size, size]`."""
    pictures, masks = _list_pairs(folder)
    check_memory(str(folder), 5 * len(masks) * size**2)
    x = read_pictures(folder / "images", pictures, size, channels)

    def read():
        return {"y": np.stack([_read_mask(*pair, size) for pair in zip(pictures, masks)])}

    return Split(x, load_cached(f"masks-{size}", [], folder / "masks", ("y",), read, [*pictures, *masks])["y"])


def _list_pairs(folder):
    """Return the paths of the pictures and of their masks, in the order of their names."""
    paths = []
    for name in ("images", "masks"):
        if not (folder / name).is_dir():
            raise InputError(f"{folder}: expected the folders images and masks. Received: no folder {name}")
        files = sorted(filter(PICTURES.includes, iterate_files(folder / name)))
        paths.append({str(file.relative_to(folder / name).with_suffix("")): str(file) for file in files})
    pictures, masks = paths
    if (unpaired := sorted(pictures.keys() ^ masks.keys())) or not pictures:
        name = unpaired[0] if unpaired else "none"
        raise InputError(
            f"{folder}: every picture of images/ must have a mask of its name in masks/, and every mask a picture. "
            f"Received: {pictures.get(name) or masks.get(name) or 'no picture'}"
        )
    return list(pictures.values()), [masks[name] for name in pictures]


def _read_mask(picture_path, mask_path, size):
    """Return the pixel values of a mask, uint8 `[size, size]`."""
    mask = decode_mask(mask_path, read_bytes(mask_path, LARGEST_FILE, follow=True))
    height, width = mask.shape
    expected = picture_header(picture_path) or (0, 0)
    if (width, height) != expected[:2]:
        raise InputError(
            f"{mask_path}: a mask must have the size of its upright picture, {expected[0]} x {expected[1]} pixels. "
            f"Received: {width} x {height}"
        )
    rows, columns = (((np.arange(size) + 0.5) * length / size).astype(int) for length in (height, width))
    return mask[np.ix_(rows, columns)]


def decode_mask(path: str, content: bytes) -> np.ndarray:
    """Decode a grey or palette PNG to its grey values or palette indices, uint8 `[height, width]`.

    Raises:
        InputError: The file is damaged, or has another format, colours, alpha or 16 bits.
    """
    try:
        image = open_picture(content)
        if image.format != "PNG":
            raise InputError("is not a PNG file; save the mask as PNG, which keeps every value")
        bits = content[BIT_DEPTH]
        if image.mode not in ("1", "L", "P"):
            kind = "more than 8 bits per value" if bits > 8 else "colours or alpha"
            raise InputError(f"has {kind}; save the mask as grey or palette PNG with a value for each class")
        values = np.asarray(image).astype(np.uint8)
    except InputError as error:
        raise InputError(f"{path}: {error}") from error
    except (OSError, SyntaxError, ValueError) as error:
        raise InputError(f"{path}: is damaged; save or copy it again") from error
    # Pillow stretches grey values of 2 and 4 bits to 0..255.
    return values // (255 // (2**bits - 1)) if image.mode == "L" else values


def _class_values(folder, masks, values, class_names):
    if values is not None:
        return values
    present = np.unique(masks).tolist()
    count = present[-1] + 1 if class_names is None else len(class_names)
    if class_names is None and len(present) < count or present[-1] >= count:
        listed = ", ".join(map(str, present[:LISTED])) + ", ..." * (len(present) > LISTED)
        raise InputError(
            f"{folder / 'masks'}: the pixel values must be the classes 0, 1, 2, ...; set `values` to the value of each "
            f"class, such as values: [0, 255]. Received: the values {listed}"
        )
    return tuple(range(max(count, 2)))


def _with_classes(folder, split, values: Sequence[int]):
    """Replace the pixel values of masks by classes, int32."""
    class_of = np.full(256, -1, np.int32)
    class_of[list(values)] = np.arange(len(values))
    y = class_of[split.y]
    if (y < 0).any():
        raise InputError(
            f"{folder / 'masks'}: every pixel value must be one of the {len(values)} classes "
            f"{', '.join(map(str, values[:LISTED]))}. Received: {split.y[y < 0][0]}"
        )
    return Split(split.x, y)
