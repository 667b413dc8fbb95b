"""Reads picture files: their size and mode, and their pixels, with the preprocessing of exports."""

import functools
import io
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from hetero_tf.base.errors import InputError

if TYPE_CHECKING:
    from PIL.Image import Image

FORMATS = "PNG, JPEG, BMP, GIF or WebP"
# Supported file extensions.
ENDINGS = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp")
# Bytes of the largest file.
LARGEST_FILE = 2**27
# Exif 2.32, section 4.6.4.
ORIENTATION = 0x0112
_MODES = {"1": "grey", "L": "grey", "LA": "grey", "I;16": "grey", "P": "palette", "CMYK": "CMYK"}


def open_picture(source: bytes | str | Path) -> "Image":
    """Open a picture file, whose pixels are not decoded yet.

    Args:
        source: Content of the file, or its path.

    Raises:
        InputError: The file is not a picture. The text is the end of a sentence.
    """
    from PIL import Image

    if not source:
        raise InputError("is empty; copy it again")
    try:
        return Image.open(
            io.BytesIO(source) if isinstance(source, bytes) else source, formats=("PNG", "JPEG", "BMP", "GIF", "WEBP")
        )
    except (OSError, ValueError, Image.DecompressionBombError) as error:
        raise InputError(f"is not a readable {FORMATS} picture; convert it, or copy it again") from error


def picture_header(source: bytes | str | Path) -> tuple[int, int, str] | None:
    """Return width and height of the upright picture, and its mode; None if the file is not a picture.

    The mode is "grey", "color", "palette" or "CMYK".
    """
    try:
        with open_picture(source) as image:
            width, height = image.size[::-1] if _orientation(image) > 4 else image.size
            return width, height, _MODES.get(image.mode, "color")
    except InputError:
        return None


def decode_picture(content: bytes, shape: tuple[int, int, int]) -> np.ndarray:
    """Decode a picture file to upright float32 pixels in 0..1 of a fixed shape, resized by area means.

    An export gives the same values for a PNG or JPEG that need not be rotated.

    Args:
        content: The file; a GIF or WebP gives its first frame.
        shape: (height, width, channels), 1 or 3 channels.

    Raises:
        InputError: The picture is damaged, translucent or has another format. The text is the end of a sentence.
    """
    import tensorflow as tf

    image = open_picture(content)
    try:
        # Exports use this operation. For JPEG, its fast transform differs from Pillow's by up to 20 of 255.
        if image.format in ("PNG", "JPEG", "MPO"):
            pixels = tf.io.decode_image(content, expand_animations=False).numpy()
        else:
            pixels = np.asarray(image.convert("RGBA" if image.has_transparency_data else "RGB"))
    except (tf.errors.OpError, OSError, SyntaxError, ValueError) as error:
        raise InputError("is damaged or cut off; save or copy it again") from error
    if pixels.shape[-1] % 2 == 0 and (pixels[..., -1] < 255).any():
        raise InputError("has translucent pixels, whose background is unknown; save it without transparency")
    orientation, (height, width, channels) = _orientation(image), shape
    stored_shape = (width, height, channels) if orientation > 4 else shape
    upright = _build_resize(stored_shape)(pixels).numpy()
    upright = upright.swapaxes(0, 1) if orientation in (5, 6, 7, 8) else upright
    upright = upright[:, ::-1] if orientation in (2, 3, 6, 7) else upright
    return upright[::-1] if orientation in (3, 4, 7, 8) else upright


@functools.cache
def _build_resize(shape):
    """Return `resize` to a shape as a graph, since its rounding differs from that of single operations."""
    import tensorflow as tf

    from hetero_tf.base.picture_decoding import resize

    pixels = tf.TensorSpec((None, None, None), tf.uint8)
    return tf.function(lambda pixels: resize(pixels, shape), input_signature=[pixels], autograph=False)


def _orientation(image):
    """Return the orientation of the camera: 1..8 of a JPEG, 1 if it is missing or of another format."""
    return image.getexif().get(ORIENTATION, 1) if image.format in ("JPEG", "MPO") else 1


def decode_pixels(content: bytes, size: int, channels: int) -> np.ndarray:
    """Return the pixels of `decode_picture`, uint8 `[size, size, channels]`."""
    return np.round(decode_picture(content, (size, size, channels)) * 255).astype(np.uint8)
