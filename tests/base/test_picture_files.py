"""Picture files of every format: as Pillow decodes them, or rejected with the reason."""

import io
import struct

import numpy as np
import pytest
import tensorflow as tf

from hetero_tf.base import picture_decoding
from hetero_tf.base.picture_files import describe_file_fault

Image = pytest.importorskip("PIL.Image")
HEIGHT, WIDTH = 17, 21
ROWS, COLUMNS = np.mgrid[:HEIGHT, :WIDTH]
PIXELS = np.stack([COLUMNS * 12, ROWS * 15, ROWS * COLUMNS % 256], -1).astype(np.uint8)
COLOR = Image.fromarray(PIXELS)
TABLE, SMALL_TABLE = COLOR.quantize(250), COLOR.quantize(16)
GLASS = Image.fromarray(np.dstack([PIXELS, np.full((HEIGHT, WIDTH), 100, np.uint8)]))
OPAQUE = Image.fromarray(np.dstack([PIXELS, np.full((HEIGHT, WIDTH), 255, np.uint8)]))
FRAMES = {"save_all": True, "append_images": [TABLE.rotate(180)]}
CORNER = int(np.asarray(TABLE)[0, 0])


def encoded(image, kind, **options):
    file = io.BytesIO()
    image.save(file, format=kind, **options)
    return file.getvalue()


def bmp(bits, height, rows, table=b"", compression=0, first=None):
    """A BMP file of `WIDTH` columns: rows are bytes, the last row first unless the height is negative."""
    first = 54 + len(table) if first is None else first
    head = struct.pack("<IiiHHIIiiII", 40, WIDTH, height, 1, bits, compression, len(rows), 0, 0, len(table) // 4, 0)
    return b"BM" + struct.pack("<IHHI", 54 + len(table) + len(rows), 0, 0, first) + head + table + rows


def four_bits():
    """Rows of a BMP of 4 bits per pixel, and its color table."""
    indices = np.pad(np.asarray(SMALL_TABLE), [(0, 0), (0, 3)])
    colors = np.array(SMALL_TABLE.getpalette()[:48], np.uint8).reshape(16, 3)
    return indices[:, ::2] << 4 | indices[:, 1::2], np.pad(colors[:, ::-1], [(0, 0), (0, 1)]).tobytes()


def blue_green_red(fourth):
    return np.dstack([PIXELS[..., ::-1], np.full((HEIGHT, WIDTH), fourth, np.uint8)]).tobytes()


@pytest.fixture(scope="module")
def decode():
    traced = tf.function(
        lambda data: picture_decoding.decode(data, (HEIGHT, WIDTH, 3)), input_signature=[tf.TensorSpec((), tf.string)]
    )
    return lambda data: 255 * traced(tf.constant(data)).numpy()


def test_every_format_matches_pillow(decode):
    rows, table = four_bits()
    rgb, small = (np.asarray(image.convert("RGB")) for image in (TABLE, SMALL_TABLE))
    lossy = encoded(COLOR, "WEBP")
    for name, data, expected in (
        ("BMP of 24 bits", encoded(COLOR, "BMP"), PIXELS),
        ("BMP of 32 bits", encoded(OPAQUE, "BMP"), PIXELS),
        ("BMP of 32 bits, the fourth unused", bmp(32, -HEIGHT, blue_green_red(0)), PIXELS),
        ("BMP of 8 bits", encoded(TABLE, "BMP"), rgb),
        ("BMP of 4 bits", bmp(4, HEIGHT, rows[::-1].tobytes(), table), small),
        ("BMP of 4 bits, first row first", bmp(4, -HEIGHT, rows.tobytes(), table), small),
        ("GIF", encoded(TABLE, "GIF"), rgb),
        ("GIF without interlacing", encoded(SMALL_TABLE, "GIF", interlace=0), small),
        ("GIF of two frames", encoded(TABLE, "GIF", comment=b"a" * 700, **FRAMES), rgb),
        ("GIF with a transparent color that no pixel has", encoded(TABLE, "GIF", transparency=255), rgb),
        ("WebP", encoded(COLOR, "WEBP", lossless=True), PIXELS),
        ("WebP with alpha", encoded(OPAQUE, "WEBP", lossless=True, exact=True), PIXELS),
        ("lossy WebP", lossy, np.asarray(Image.open(io.BytesIO(lossy)).convert("RGB"))),
    ):
        np.testing.assert_allclose(decode(data), expected, atol=0.01, err_msg=name)
        assert describe_file_fault(data) is None, name


def test_unusable_pictures_report_their_fault(decode):
    png, jpeg, webp, gif = (
        encoded(image, kind) for image, kind in zip((COLOR, COLOR, GLASS, TABLE), ["PNG", "JPEG", "WEBP", "GIF"])
    )
    glass = "has translucent pixels, whose background is unknown; save it without transparency"
    frame = "has no complete first frame without transparency; save that frame as PNG"
    end, header = "is cut off before its end; copy it again", "is cut off within its header; copy it again"
    for data, reason in (
        (b"", "is empty; copy it again"),
        (b"hello", "is not a picture: it begins with b'hello'; convert it to PNG, JPEG, BMP, GIF or WebP"),
        (b"RIFF\x10\0\0\0WAVEfmt ", "is not a picture: it begins with b'RIFF"),
        (encoded(COLOR, "TIFF"), "is a TIFF picture; convert it"),
        (b"\n<!DOCTYPE html>", "is a web page"),
        (b"\0\0\0\x1cftypavif", "is an AVIF picture"),
        (png[:16] + struct.pack(">II", 12000, 12000) + png[24:], "has 12,000 x 12,000 pixels, but at most 33,554,432"),
        (png[:20], header),
        (png[:60], end),
        (png[:60] + bytes([png[60] ^ 255]) + png[61:], "is damaged; save or copy it again"),
        (encoded(GLASS, "PNG"), glass),
        (encoded(TABLE, "PNG", transparency=CORNER), glass),
        (jpeg[:40], header),
        (jpeg[:-90], end),
        (bmp(8, HEIGHT, bytes(2000), bytes(1024), 1), "is a BMP picture with compressed pixels; save it as PNG"),
        (encoded(COLOR.convert("1"), "BMP"), "is a BMP picture of 1 bit per pixel; save it as PNG"),
        (bmp(16, HEIGHT, bytes(2000)), "is a BMP picture of 16 bits per pixel"),
        (bmp(8, HEIGHT, bytes(2000), bytes(1024), first=20), "is a BMP picture whose pixels begin within its header"),
        (bmp(24, HEIGHT, bytes(100)), end),
        (bmp(32, HEIGHT, blue_green_red(7)), glass),
        (gif[:11], header[:10]),
        (gif[:900], end),
        (gif[: 13 + 768] + b";", frame),
        (encoded(TABLE, "GIF", transparency=CORNER), frame),
        (webp, glass),
        (webp[:-80], end),
        (encoded(COLOR, "WEBP", **FRAMES), "is an animated WebP picture; save one of its frames"),
    ):
        fault = describe_file_fault(data)
        # A file with a known fault is not decoded, because libjpeg prints warnings for some of them.
        with_pixels = fault is None and not _is_damaged(decode, data)
        assert not with_pixels, (reason, fault)
        assert picture_decoding.describe_fault(data).startswith(reason), picture_decoding.describe_fault(data)


def _is_damaged(decode, data):
    try:
        return np.isnan(decode(data)).all()
    except tf.errors.InvalidArgumentError:
        return True


def test_gif_decoding_reads_only_the_first_frame(decode):
    """A frame that claims 65,535 x 65,535 pixels would take 4 GiB."""
    gif = encoded(TABLE, "GIF")
    large = b"\x2c" + bytes(4) + b"\xff\xff\xff\xff" + gif[gif.index(b"\x2c") + 9 : -1]
    bomb = gif[:-1] + 50 * large + b";"
    np.testing.assert_allclose(decode(bomb), np.asarray(TABLE.convert("RGB")), atol=0.01)


def test_rejected_pictures_give_nan(decode):
    """Exports get files that were not looked at: TensorFlow's reader of animated WebP writes beyond its memory."""
    for data in (
        encoded(COLOR, "WEBP", **FRAMES),
        encoded(COLOR.convert("1"), "BMP"),
        bmp(24, HEIGHT, bytes(100)),
        encoded(TABLE, "GIF")[:900],
        b"RIFF",
        b"GIF89a",
    ):
        assert np.isnan(decode(data)).all()
