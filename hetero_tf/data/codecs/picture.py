"""Pictures, stored as pixels."""

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from hetero_tf.base.errors import InputError
from hetero_tf.base.formatting import LINE, shorten
from hetero_tf.data.codecs import Assets, BaseCodec, Field, Form, Positive, decode_files
from hetero_tf.data.data_files import FileKind
from hetero_tf.data.picture_files import ENDINGS, FORMATS, decode_picture

UNSUPPORTED = (".tif", ".tiff", ".heic", ".heif", ".avif", ".svg", ".ppm", ".pgm", ".jp2", ".jxl", ".ico")
PICTURES = FileKind("folder", "pictures", FORMATS, ENDINGS, UNSUPPORTED)
# Shortest side of an example in pixels, so that it is recognizable on a screen.
MIN_SIDE = 64


@dataclass(frozen=True)
class Codec(BaseCodec):
    """Pictures of one size.

    Attributes:
        shape: Height, width and channels.
        dtype: "uint8" for pixels in 0..255, or a type of unscaled floats.
        low, high: Smallest and largest pixel.
    """

    shape: tuple[Positive, Positive, Positive]
    dtype: Literal["uint8", "float32", "float64"] = "uint8"
    low: float = 0.0
    high: float = 255.0

    KIND, EXAMPLE, STORED = "images", "image", "images uint8 or float [n, height, width, channels]"
    DTYPES = (np.uint8, np.float32, np.float64)
    HAS_ONE_SCALE, STEPS = True, ("sgd", 0.05, 40)
    LOCAL = ("dtype", "low", "high")
    PIPELINES = dict.fromkeys(("classification", "binary"), "image-classification")
    PIPELINES |= {"segmentation": "image-segmentation"}
    NOUN, PORTABLE, ITEMS = "images", "serving_default", "serve_bytes"
    PREDICT, UNNAMED = "serving_default", ("serving_default", "serve_uint8")
    ITEM_NEEDS = "pictures of 1 or 3 channels"
    FILES = PICTURES

    def check(self, location: str, stored: np.ndarray) -> None:
        # The layout of PyTorch: the last axis is no number of channels and the second one is, or is before equal sides.
        _, first, second, last = stored.shape
        if last > 4 and (first <= 4 or first < second == last):
            raise InputError(
                f"{location}: expected images [n, height, width, channels], but the second axis seems to be the "
                f"channels; convert them with np.moveaxis(x, 1, -1). Received: {tuple(stored.shape)}"
            )

    def draw(self, rng: np.random.Generator, count: int) -> np.ndarray:
        shape = (count, *self.shape)
        if self.dtype == "uint8":
            return rng.integers(0, 256, shape).astype(np.uint8)
        x = np.clip(self.low + (self.high - self.low) * rng.random(shape), self.low, self.high)
        return x.astype(self.dtype)

    def describe(self, fields: Sequence[Field], x: Any, summary: str | None) -> list[str]:
        height, width, channels = self.shape
        color = {1: "grey", 3: "color"}.get(channels, f"{channels} channels")
        files = f", {self.dtype}" if summary is None else f"; {summary}"
        return [shorten(f"pictures: {height} x {width} pixels, {color}{files}", LINE)]

    def forms(self, name: str, assets: Assets) -> dict[str, Form]:
        """Return the forms: pixels in 0..1, pixels in 0..255, and files of any size."""
        import tensorflow as tf

        from hetero_tf.base.picture_decoding import decode

        forms = {
            "serving_default": Form("image", "float32", self.shape, tf.identity),
            "serve_uint8": Form("image", "uint8", self.shape, lambda pixels: tf.cast(pixels, tf.float32) / 255),
        }
        if self.shape[-1] in (1, 3):
            forms["serve_bytes"] = Form(
                "image_bytes",
                "string",
                (),
                lambda data: decode_files(data, lambda file: decode(file, self.shape), self.shape),
            )
        return forms

    def send(self, name: str, stored: np.ndarray) -> dict[str, np.ndarray]:
        return {"image": stored.astype(np.float32) / (255 if stored.dtype == np.uint8 else 1)}

    @property
    def limits(self) -> dict[str, int]:
        from hetero_tf.base.picture_decoding import LARGEST_PICTURE

        return {"pixels_of_a_picture": LARGEST_PICTURE}

    def notes(self, name: str, invalid: str) -> list[str]:
        from hetero_tf.base.picture_decoding import FORMATS, LARGEST_PICTURE

        height, width, channels = self.shape
        sentences = [
            f"`serving_default` takes float pixels in 0..1, `serve_uint8` pixels in 0..255; both {height} x {width} x "
            f"{channels}. The model normalises them.",
            f"An image with a pixel that is not finite gets {invalid}.",
        ]
        if channels in (1, 3):
            sentences += [
                f"`serve_bytes` takes {FORMATS} of up to {LARGEST_PICTURE:,} pixels. It resizes pictures by area means "
                "and converts them to the channels of the model; it does not rotate them by their Exif orientation.",
                f"A picture that is damaged, translucent, too large or of another format gets {invalid}.",
            ]
        return sentences

    def read(self, content: bytes) -> np.ndarray:
        """Return the pixels of a file in 0..1; `InputError` states the reason if it is not a picture."""
        return decode_picture(content, self.shape)

    def example(self) -> Any:
        """Return a PNG file of a light ring."""
        import tensorflow as tf

        height, width, channels = self.shape
        if channels not in (1, 3):
            return np.zeros(self.shape).tolist()
        scale = -(-MIN_SIDE // min(height, width))
        rows, columns = np.mgrid[: height * scale, : width * scale]
        distance = np.hypot((rows + 0.5) / (height * scale) - 0.5, (columns + 0.5) / (width * scale) - 0.5)
        is_ring = np.abs(distance - 0.28) < 0.07
        file = tf.io.encode_png(np.repeat(is_ring[..., None] * np.uint8(255), channels, 2))
        return {"b64": base64.b64encode(file.numpy()).decode()}


def field(x: Any) -> Field:
    """Return the field of stored images, an array or `DiskArray` [n, height, width, channels]."""
    low, high = (float(x.min()), float(x.max())) if x.dtype != np.uint8 and x.size else (0.0, 255.0)
    return Field("image", Codec(tuple(x.shape[1:]), x.dtype.name, low, high))
