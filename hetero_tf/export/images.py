"""What the export of an image model answers to: pixels, or the bytes of picture files."""

from collections.abc import Collection
from pathlib import Path

import keras
import tensorflow as tf

from hetero_tf.inputs import all_labels
from hetero_tf.process import LearningProcess

# ITU-R BT.601; adds up to 1, so that a grey picture keeps its values.
LUMA = (0.299, 0.587, 0.114)


def endpoints(process: LearningProcess, model: keras.Model, archive: keras.export.ExportArchive, scratch: Path) -> dict:
    """`{signature: (function, input specs)}`.

    `serving_default`: `image` float32 [n, height, width, channels], pixels in 0..1 -> logits, probabilities
    [n, classes] and class [n]. `serve_bytes` (1 or 3 channels): `image_bytes` string [n], PNG, JPEG, BMP or GIF of any
    size -> the same, and class_name where the data set names its classes.

    Args:
        process: `process.LearningProcess`.
        model: The Keras model.
        archive, scratch: Not used.
    """
    shape, names = process.input.shape(process.dataset.train.x), process.dataset.class_names

    def serving_default(image):
        # The recipe's own input, so that pixels are normalised exactly as in training.
        count = tf.shape(image)[0]
        inputs, _ = process.input.batch(
            image,
            tf.zeros([count], tf.int32),
            tf.range(count),
            0,
            tf.zeros([1], tf.int32),
            all_labels(process.dataset.classes),
            training=False,
        )
        logits = tf.cast(model(inputs, training=False), tf.float32)
        return {
            "logits": logits,
            "probabilities": tf.nn.softmax(logits),
            "class": tf.argmax(logits, -1, output_type=tf.int32),
        }

    def serve_bytes(image_bytes):
        decoded = tf.TensorSpec(shape, tf.float32)
        found = serving_default(tf.map_fn(lambda data: decode(data, shape), image_bytes, fn_output_signature=decoded))
        return found if names is None else {**found, "class_name": tf.gather(tf.constant(names), found["class"])}

    made = {"serving_default": (serving_default, [tf.TensorSpec((None, *shape), tf.float32, name="image")])}
    if shape[-1] in (1, 3):
        made["serve_bytes"] = (serve_bytes, [tf.TensorSpec((None,), tf.string, name="image_bytes")])
    return made


def decode(data: tf.Tensor, shape: tuple[int, int, int]) -> tf.Tensor:
    """The bytes of a picture as float32 pixels in 0..1 of a fixed shape, resized without aliasing; alpha is dropped.

    Args:
        data: Scalar string.
        shape: (height, width, channels), 1 or 3 channels.
    """
    # Zero asks for the file's own channels: BMP and GIF files refuse to be converted while they are decoded.
    pixels = tf.io.decode_image(data, channels=0, expand_animations=False)
    grey = tf.shape(pixels)[-1] < 3
    pixels = tf.cond(grey, lambda: tf.repeat(pixels[..., :1], 3, axis=-1), lambda: pixels[..., :3])
    pixels = tf.cast(pixels, tf.float32) / 255
    if shape[-1] == 1:
        pixels = tf.reduce_sum(pixels * tf.constant(LUMA), -1, keepdims=True)
    return tf.ensure_shape(tf.image.resize(pixels, shape[:2], antialias=True), shape)


def readme(process: LearningProcess, signatures: Collection[str]) -> str:
    """How to call it, as three lines of Python to be run inside the folder of the export."""
    if "serve_bytes" in signatures:
        name, call = "serve_bytes", 'image_bytes=tf.constant([open("picture.png", "rb").read()])'
    else:
        shape = [1, *process.input.shape(process.dataset.train.x)]
        name, call = "serving_default", f"image=tf.zeros({shape})"
    return (
        f'import tensorflow as tf\nserve = tf.saved_model.load("1").signatures["{name}"]\n'
        f'print(serve({call})["probabilities"])\n'
    )
