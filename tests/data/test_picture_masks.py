"""Pictures with masks: which pixel has which class at which size; what is rejected and how."""

import functools
import re
import struct
import zlib

import folders
import numpy as np
import pytest
import tensorflow as tf
from refusals import check_refusals, refusal

from hetero_tf.data import folder as image_folder
from hetero_tf.data import masks

PALETTE, GREY = 3, 0


def mask_png(values, color_type=GREY, bits=8):
    """A PNG of class numbers, written by hand: TensorFlow's encoder has neither palettes nor fewer bits."""
    height, width = values.shape
    digits = [[f"{value:0{bits}b}" for value in row] for row in values]
    rows = [int("".join(row).ljust(-(-width * bits // 8) * 8, "0"), 2) for row in digits]
    lines = b"".join(b"\0" + row.to_bytes(-(-width * bits // 8), "big") for row in rows)
    colors = np.random.default_rng(0).integers(0, 256, 3 * 2**bits, np.uint8).tobytes()
    palette = ((b"PLTE", colors), (b"tRNS", b"\0")) if color_type == PALETTE else ()
    return folders.png(width, height, zlib.compress(lines), bits, color_type, palette)


def write(root, count=6, factor=1, **options):
    """Pictures of `[6, 4]` blocks of 2 x 2 pixels, each as bright as 40 times its class, and their masks."""
    label_maps = np.random.default_rng(1).integers(0, 4, (count, 6, 4))
    label_maps[0, :2] = np.arange(4)
    for number, label_map in enumerate(label_maps):
        large = np.kron(label_map, np.ones((2, 2), int))
        for name in ("images", "masks"):
            (root / name / "a").mkdir(parents=True, exist_ok=True)
        picture = np.repeat((40 * large).astype(np.uint8)[..., None], 3, -1)
        (root / "images" / "a" / f"{number}.png").write_bytes(tf.io.encode_png(picture).numpy())
        (root / "masks" / "a" / f"{number}.png").write_bytes(mask_png(factor * large, **options))
    return root


def load(root, **options):
    return masks.load(root.parent, **{"path": root.name, "size": 12, **options})


@pytest.mark.parametrize(
    ("factor", "options"),
    [(1, {}), (1, {"color_type": PALETTE}), (1, {"color_type": PALETTE, "bits": 2}), (1, {"bits": 4}), (85, {})],
)
def test_pixel_values_are_classes(tmp_path, factor, options):
    values = None if factor == 1 else (0, 85, 170, 255)
    dataset = load(write(tmp_path / "own", factor=factor, **options), values=values)
    assert (dataset.codec.KIND, dataset.targets, dataset.classes) == ("images", "label_map", 4)
    assert dataset.train.x.shape == (5, 12, 12, 3) and dataset.test.y.shape == (1, 12, 12)
    assert dataset.train.y.dtype == np.int32
    for split in (dataset.train, dataset.test):
        # Two columns of a class become three.
        np.testing.assert_array_equal(split.x[..., 0], 40 * split.y)


def test_train_and_test_folders_are_the_splits(tmp_path):
    write(tmp_path / "own" / "train", 3)
    write(tmp_path / "own" / "val", 2)
    dataset = load(tmp_path / "own", class_names=("sky", "road", "car", "tree", "bus"), channels=1, size=4)
    assert (len(dataset.train.x), len(dataset.test.x), dataset.classes) == (3, 2, 5)
    assert dataset.class_names == ("sky", "road", "car", "tree", "bus")
    # The nearest pixels of 12 rows and 8 columns.
    np.testing.assert_array_equal(dataset.train.y, load(tmp_path / "own", size=24).train.y[:, 3::6, 3::6])


def test_a_mask_has_the_size_of_the_upright_picture(tmp_path):
    root = write(tmp_path / "own")
    data = tf.io.encode_jpeg(np.full((8, 12, 3), 90, np.uint8)).numpy()
    exif = b"Exif\0\0MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0\x06\0\0\0\0\0\0"
    (root / "images" / "a" / "1.png").unlink()
    picture = root / "images" / "a" / "1.jpg"
    picture.write_bytes(data)
    assert re.search("masks/a/1.png: a mask must .* 12 x 8 pixels. Received: 8 x 12", refusal(load, root))
    picture.write_bytes(data[:2] + b"\xff\xe1" + struct.pack(">H", len(exif) + 2) + exif + data[2:])
    assert load(root).classes == 4


def test_invalid_classes_are_rejected(tmp_path):
    root = write(tmp_path / "own")
    check_refusals(
        functools.partial(load, root),
        ({"values": (0, 1)}, r"masks: every pixel value must be one of the 2 classes 0, 1. Received: [23]"),
        ({"values": range(4), "class_names": ("a", "b")}, "`class_names` must have one entry per class. Received: 2"),
        ({"class_names": ("a", "b", "c")}, r"must be the classes 0, 1, 2, .*Received: the values 0, 1, 2, 3$"),
    )
    message = r"masks: the pixel values must be the classes .* such as values: \[0, 255\]. Received: the values 0, 85,"
    assert re.search(message, refusal(load, write(tmp_path / "gaps", factor=85)))


def test_invalid_masks_are_rejected(tmp_path):
    for content, message in (
        (tf.io.encode_png(np.zeros((12, 8, 3), np.uint8)).numpy(), "has colours or alpha; save the mask as grey or"),
        (tf.io.encode_png(np.zeros((12, 8, 1), np.uint16)).numpy(), "has more than 8 bits per value; save the mask"),
        (tf.io.encode_jpeg(np.zeros((12, 8, 1), np.uint8)).numpy(), "is not a PNG file; save the mask as PNG"),
        (mask_png(np.zeros((12, 8), int))[:-20] + b"IEND", "is damaged; save or copy it again"),
        (mask_png(np.zeros((12, 8), int), bits=3), "is not a readable PNG, JPEG, BMP, GIF or WebP picture"),
        (b"", "is empty; copy it again"),
    ):
        root = write(tmp_path / "own")
        (root / "masks" / "a" / "2.png").write_bytes(content)
        assert re.search(f"masks/a/2.png: {message}", refusal(load, root))


def test_pictures_and_masks_come_in_pairs(tmp_path):
    root = write(tmp_path / "own")
    (root / "images" / "b.png").write_bytes(b"x")
    assert re.search("every picture of images/ must have a mask .* Received: .*/images/b.png", refusal(load, root))
    (root / "images" / "b.png").rename(root / "masks" / "c.png")
    assert re.search("every picture of images/ must have a mask .* Received: .*/masks/c.png", refusal(load, root))
    assert "images/a: expected the folders images and masks. Received: no folder" in refusal(
        load, root / "images" / "a"
    )
    assert "use data: masks and task: segmentation. Received" in refusal(
        image_folder.load, tmp_path, path="own", size=4
    )
