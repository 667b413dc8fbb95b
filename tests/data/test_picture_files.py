"""Picture files of every format: their pixels on the host and in exports, their rotation, and unusable files."""

import io
import struct

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image
from refusals import refusal

from hetero_tf.base import picture_decoding
from hetero_tf.data.decoded import decode_blocks
from hetero_tf.data.picture_files import decode_picture, decode_pixels, picture_header

HEIGHT, WIDTH = 17, 21
ROWS, COLUMNS = np.mgrid[:HEIGHT, :WIDTH]
PIXELS = np.stack([COLUMNS * 12, ROWS * 15, ROWS * COLUMNS % 256], -1).astype(np.uint8)
COLOR = Image.fromarray(PIXELS)
TABLE, SMALL_TABLE, BLACK_AND_WHITE = COLOR.quantize(250), COLOR.quantize(16), COLOR.convert("1")
GLASS, OPAQUE = (
    Image.fromarray(np.dstack([PIXELS, np.full((HEIGHT, WIDTH), alpha, np.uint8)])) for alpha in (100, 255)
)
FRAMES = {"save_all": True, "append_images": [TABLE.rotate(180)]}
CORNER = int(np.asarray(TABLE)[0, 0])


def encoded(image, kind, **options):
    file = io.BytesIO()
    image.save(file, format=kind, **options)
    return file.getvalue()


@pytest.fixture(scope="module")
def decode_in_graph():
    traced = tf.function(
        lambda data: picture_decoding.decode(data, (HEIGHT, WIDTH, 3)), input_signature=[tf.TensorSpec((), tf.string)]
    )
    return lambda data: traced(tf.constant(data)).numpy()


LOSSY = encoded(COLOR, "WEBP")
# Name, content, expected pixels (None: those of TensorFlow's decoder), and whether exports decode it.
FORMATS = [
    ("PNG", encoded(COLOR, "PNG"), PIXELS, True),
    ("PNG with an alpha channel", encoded(OPAQUE, "PNG"), PIXELS, True),
    ("PNG with a palette", encoded(TABLE, "PNG"), TABLE, True),
    ("PNG of 1 bit", encoded(BLACK_AND_WHITE, "PNG"), BLACK_AND_WHITE, True),
    ("PNG of 16 bits", encoded(Image.fromarray(PIXELS[..., 1] * np.uint16(256)), "PNG"), PIXELS[..., [1, 1, 1]], True),
    ("JPEG", encoded(COLOR, "JPEG"), None, True),
    ("progressive grey JPEG", encoded(COLOR.convert("L"), "JPEG", progressive=True), None, True),
    ("CMYK JPEG", encoded(COLOR.convert("CMYK"), "JPEG"), None, True),
    ("BMP of 24 bits", encoded(COLOR, "BMP"), PIXELS, False),
    ("BMP of 8 bits", encoded(TABLE, "BMP"), TABLE, False),
    ("BMP of 1 bit", encoded(BLACK_AND_WHITE, "BMP"), BLACK_AND_WHITE, False),
    ("GIF", encoded(TABLE, "GIF"), TABLE, False),
    ("GIF of two frames", encoded(SMALL_TABLE, "GIF", **FRAMES), SMALL_TABLE, False),
    ("GIF with a transparent color that no pixel has", encoded(TABLE, "GIF", transparency=255), TABLE, False),
    ("WebP", encoded(OPAQUE, "WEBP", lossless=True, exact=True), PIXELS, False),
    ("animated WebP", encoded(COLOR, "WEBP", lossless=True, **FRAMES), PIXELS, False),
    ("lossy WebP", LOSSY, Image.open(io.BytesIO(LOSSY)), False),
]


@pytest.mark.parametrize(("name", "data", "expected", "is_served"), FORMATS, ids=[name for name, *_ in FORMATS])
def test_every_format_has_the_same_pixels_in_exports(decode_in_graph, name, data, expected, is_served):
    if expected is None:
        expected = tf.io.decode_jpeg(data, 3).numpy()
    elif not isinstance(expected, np.ndarray):
        expected = np.asarray(expected.convert("RGB"))
    pixels = decode_picture(data, (HEIGHT, WIDTH, 3))
    np.testing.assert_allclose(255 * pixels, expected, atol=0.01)
    assert picture_header(data)[:2] == (WIDTH, HEIGHT)
    if is_served:
        np.testing.assert_array_equal(decode_in_graph(data), pixels)
    else:
        with pytest.raises(tf.errors.InvalidArgumentError, match="not a supported picture"):
            decode_in_graph(data)


def test_pixels_are_resized_and_become_grey_or_colour():
    luma = PIXELS @ np.array([0.299, 0.587, 0.114])[:, None]
    np.testing.assert_allclose(255 * decode_picture(encoded(COLOR, "PNG"), (HEIGHT, WIDTH, 1)), luma, atol=0.01)
    grey = encoded(Image.fromarray(PIXELS[..., 0]), "PNG")
    for channels in (1, 3):
        mean = decode_picture(grey, (1, 1, channels))
        np.testing.assert_allclose(255 * mean, np.full((1, 1, channels), PIXELS[..., 0].mean()), atol=0.01)


@pytest.mark.parametrize("orientation", range(1, 9))
def test_a_jpeg_is_rotated_by_its_exif_orientation(orientation):
    """The eight orientations of Exif 2.32, defined by the visual position of the first row and column."""
    upright = np.zeros((16, 24, 1), np.uint8)
    upright[:, :8], upright[:8] = 100, 200
    stored = {
        1: upright,
        2: upright[:, ::-1],
        3: upright[::-1, ::-1],
        4: upright[::-1],
        5: upright.swapaxes(0, 1),
        6: np.rot90(upright),
        7: upright[::-1, ::-1].swapaxes(0, 1),
        8: np.rot90(upright, -1),
    }[orientation]
    exif = Image.Exif()
    exif[0x0112] = orientation
    data = encoded(Image.fromarray(stored[..., 0]), "JPEG", quality=100, exif=exif)
    np.testing.assert_allclose(decode_picture(data, (16, 24, 1)), upright / 255, atol=0.02)
    assert picture_header(data) == (24, 16, "grey")


PNG, JPEG, GIF, WEBP = (
    encoded(image, kind) for image, kind in zip((COLOR, COLOR, TABLE, COLOR), ("PNG", "JPEG", "GIF", "WEBP"))
)
UNKNOWN = "is not a readable PNG, JPEG, BMP, GIF or WebP picture; convert it, or copy it again"
DAMAGED = "is damaged or cut off; save or copy it again"
TRANSLUCENT = "has translucent pixels, whose background is unknown; save it without transparency"


def test_unusable_pictures_report_their_fault():
    for data, reason in (
        (b"", "is empty; copy it again"),
        (b"hello", UNKNOWN),
        (b"RIFF\x10\0\0\0WAVEfmt ", UNKNOWN),
        (encoded(COLOR, "TIFF"), UNKNOWN),
        (PNG[:20], UNKNOWN),
        (PNG[:16] + struct.pack(">II", 20_000, 20_000) + PNG[24:], UNKNOWN),
        (PNG[:60], DAMAGED),
        (PNG[:60] + bytes([PNG[60] ^ 255]) + PNG[61:], DAMAGED),
        (JPEG[:-90], DAMAGED),
        (GIF[:900], DAMAGED),
        (encoded(COLOR, "BMP")[:-90], DAMAGED),
        (encoded(GLASS, "PNG"), TRANSLUCENT),
        (encoded(TABLE, "PNG", transparency=CORNER), TRANSLUCENT),
        (encoded(TABLE, "GIF", transparency=CORNER), TRANSLUCENT),
        (encoded(GLASS, "WEBP"), TRANSLUCENT),
    ):
        rows = decode_blocks([("a.png", lambda: data)], lambda content: decode_pixels(content, 8, 3))
        assert refusal(list, rows) == f"a.png: {reason}"
