"""What the export of an image model answers to: pixels, or the bytes of picture files."""

from collections.abc import Collection
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

from hetero_tf.export.limits import LARGEST_PICTURE, checked, most_examples
from hetero_tf.inputs import all_labels
from hetero_tf.process import LearningProcess

# ITU-R BT.601; adds up to 1, so that a grey picture keeps its values.
LUMA = (0.299, 0.587, 0.114)


def endpoints(process: LearningProcess, model: keras.Model, archive: keras.export.ExportArchive, scratch: Path) -> dict:
    """`{signature: (function, input specs)}`.

    `serving_default`: `image` float32 [n, height, width, channels], pixels in 0..1 -> logits, probabilities
    [n, classes] and class [n]. `serve_bytes` (1 or 3 channels): `image_bytes` string [n], PNG, JPEG or BMP of any
    size up to `LARGEST_PICTURE` pixels -> the same, and class_name where the data set names its classes.

    An image with a pixel that is not finite is answered by NaN and class -1, the others of its batch as ever. A
    request of more than `most_examples` images, or of another shape, is an error.

    Args:
        process: `process.LearningProcess`.
        model: The Keras model.
        archive, scratch: Not used.
    """
    shape, names = process.input.shape(process.dataset.train.x), process.dataset.class_names
    most = most_examples(model)

    def answer(image):
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
        # A ReLU may turn NaN into 0, and the answer would look like any other.
        finite = tf.reduce_all(tf.abs(image) <= tf.float32.max, [1, 2, 3])
        logits = tf.where(finite[:, None], tf.cast(model(inputs, training=False), tf.float32), np.nan)
        return {
            "logits": logits,
            "probabilities": tf.nn.softmax(logits),
            "class": tf.where(finite, tf.argmax(logits, -1, output_type=tf.int32), -1),
        }

    def serving_default(image):
        # Servers hand on any shape, and kernels may end the process over a wrong rank.
        return answer(few(tf.ensure_shape(image, (None, *shape)), most))

    def serve_bytes(image_bytes):
        files = few(tf.ensure_shape(image_bytes, (None,)), most)
        decoded = tf.TensorSpec(shape, tf.float32)
        # One by one: ten large pictures at a time take ten times the memory.
        images = tf.map_fn(lambda data: decode(data, shape), files, parallel_iterations=1, fn_output_signature=decoded)
        found = answer(images)
        if names is None:
            return found
        # The last name, which is empty, is that of class -1.
        return {**found, "class_name": tf.gather(tf.constant([*names, ""]), found["class"] % (len(names) + 1))}

    made = {"serving_default": (serving_default, [tf.TensorSpec((None, *shape), tf.float32, name="image")])}
    if shape[-1] in (1, 3):
        made["serve_bytes"] = (serve_bytes, [tf.TensorSpec((None,), tf.string, name="image_bytes")])
    return made


def few(batch: tf.Tensor, most: int) -> tf.Tensor:
    """The batch itself, refused by the graph where it has more than `most` examples."""
    count = tf.shape(batch)[0]
    return checked(batch, count <= most, f"a request must hold at most {most} images.", [count])


def decode(data: tf.Tensor, shape: tuple[int, int, int]) -> tf.Tensor:
    """The bytes of a picture as float32 pixels in 0..1 of a fixed shape, resized without aliasing; alpha is dropped.

    Args:
        data: Scalar string, PNG, JPEG or BMP. A GIF is refused: a few bytes may make gigabytes of frames.
        shape: (height, width, channels), 1 or 3 channels.
    """
    size = picture_size(data)
    data = checked(
        data,
        tf.reduce_prod(size) <= LARGEST_PICTURE,
        f"a picture must have at most {LARGEST_PICTURE} pixels.",
        ["width and height", size],
    )
    # Zero asks for the file's own channels: BMP files refuse to be converted while they are decoded.
    pixels = tf.io.decode_image(data, channels=0, expand_animations=False)
    # Resized before anything else, since the float32 of a large picture take four times the memory.
    pixels = tf.image.resize(pixels, shape[:2], antialias=True) / 255
    grey = tf.shape(pixels)[-1] < 3
    pixels = tf.cond(grey, lambda: tf.repeat(pixels[..., :1], 3, axis=-1), lambda: pixels[..., :3])
    if shape[-1] == 1:
        pixels = tf.reduce_sum(pixels * tf.constant(LUMA), -1, keepdims=True)
    return tf.ensure_shape(pixels, shape)


def picture_size(data: tf.Tensor) -> tf.Tensor:
    """Width and height of a picture as its header tells them, int64 [2]; nothing is decoded for it.

    Args:
        data: Scalar string.
    """

    # Filled up, since the error of a part beyond the end quotes bytes that clients may not be able to decode.
    head = tf.strings.join([tf.strings.substr(data, 0, 32), tf.constant(bytes(32))])

    def starts_with(magic):
        return tf.strings.substr(head, 0, len(magic)) == tf.constant(magic)

    def pair(place, little_endian):
        read = tf.io.decode_raw(tf.strings.substr(head, place, 8), tf.int32, little_endian=little_endian)
        return tf.abs(tf.cast(tf.ensure_shape(read, [2]), tf.int64))

    def none():
        sentence = "a picture must be a PNG, JPEG or BMP file."
        other = ["another file, of so many bytes:", tf.strings.length(data)]
        return checked(tf.zeros([2], tf.int64), tf.constant(False), sentence, other)

    kinds = [
        (starts_with(b"\x89PNG\r\n\x1a\n"), lambda: pair(16, False)),
        (starts_with(b"\xff\xd8\xff"), lambda: tf.image.extract_jpeg_shape(data, tf.int64)[1::-1]),
        (starts_with(b"BM"), lambda: pair(18, True)),
    ]
    return tf.case(kinds, default=none)


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
