"""Export of an image model: signatures for pixels and for bytes of picture files."""

from collections.abc import Collection
from pathlib import Path

import numpy as np
import tensorflow as tf

from hetero_tf.base.picture_decoding import FORMATS, LARGEST_GIF, LARGEST_PICTURE, decode
from hetero_tf.export.labelled import LabelledTask


class ImageTask(LabelledTask):
    """Export of an image model.

    An image with a pixel that is not finite, and a picture that is damaged or not supported by `decode`, are invalid.
    """

    INPUT_NAME = "image"
    PREDICT_SIGNATURE, PREDICT_DATA = "serving_default", "pictures of 1 or 3 channels"
    PORTABLE_SIGNATURE = "serving_default"
    NOUN = "images"

    def endpoints(self, scratch: Path) -> tuple[dict, tuple]:
        shape = (None, *self.shape)
        signatures: dict = {
            "serving_default": (self.serving_default, [tf.TensorSpec(shape, tf.float32, name="image")]),
            "serve_uint8": (self.serve_uint8, [tf.TensorSpec(shape, tf.uint8, name="image")]),
        }
        if self.shape[-1] in (1, 3):
            signatures["serve_bytes"] = (self.serve_bytes, [tf.TensorSpec((None,), tf.string, name="image_bytes")])
        return signatures, ()

    def serving_default(self, image: tf.Tensor) -> dict[str, tf.Tensor]:
        """Return outputs for pixels float32 [n, height, width, channels] in 0..1."""
        return self.classify(self.check(image, *self.shape))

    def serve_uint8(self, image: tf.Tensor) -> dict[str, tf.Tensor]:
        """Return outputs for pixels uint8 [n, height, width, channels] in 0..255."""
        return self.classify(tf.cast(self.check(image, *self.shape), tf.float32) / 255)

    def serve_bytes(self, image_bytes: tf.Tensor) -> dict[str, tf.Tensor]:
        """Return outputs with class names for files of any size up to `LARGEST_PICTURE` pixels, string [n]."""
        return self.add_class_names(self.classify(self.decode_each(self.check(image_bytes), decode)))

    def request(self, x: np.ndarray) -> dict[str, np.ndarray]:
        return {self.INPUT_NAME: pixels(x)}

    @property
    def limits(self) -> dict[str, int]:
        return {**super().limits, "pixels_of_a_picture": LARGEST_PICTURE}

    @property
    def input_spec(self) -> dict:
        height, width, channels = self.shape
        return {
            "kind": "images",
            "height": height,
            "width": width,
            "channels": channels,
            "pixels": "0..1 as float32, 0..255 as uint8",
            "normalised_by": self.process.input.normalised_by,
        }

    def notes(self, signatures: Collection[str]) -> list[str]:
        height, width, channels = self.shape
        sentences = [
            f"`serving_default` takes float pixels in 0..1, `serve_uint8` pixels in 0..255; both {height} x {width} x "
            f"{channels}. The model normalises them.",
            f"An image with a pixel that is not finite gets {self.invalid}.",
        ]
        if "serve_bytes" in signatures:
            sentences += [
                f"`serve_bytes` takes {FORMATS} of up to {LARGEST_PICTURE:,} pixels, and the first frame of a GIF of "
                f"up to {LARGEST_GIF // 2**10} KiB. It resizes pictures by area means and converts them to the "
                "channels of the model; it does not rotate them by their Exif orientation.",
                f"A picture that is damaged, translucent, too large or of another format gets {self.invalid}.",
            ]
        return sentences + self.target_notes

    def example_call(self, signatures: Collection[str]) -> tuple[str, str, str]:
        if "serve_bytes" in signatures:
            call = 'image_bytes=tf.constant([open("picture.png", "rb").read()])'
            return "serve_bytes", call, self.targets.prediction_name
        return "serving_default", f"image=tf.zeros({[1, *self.shape]})", self.targets.prediction_name


def pixels(x: np.ndarray) -> np.ndarray:
    """Return stored images as float32 pixels in 0..1, the input of `serving_default`."""
    return x.astype(np.float32) / (255 if x.dtype == np.uint8 else 1)
