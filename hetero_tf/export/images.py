"""What the export of an image model answers to: pixels, or the bytes of picture files."""

from collections.abc import Collection
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

from hetero_tf.export.limits import LARGEST_PICTURE, checked, most_examples
from hetero_tf.inputs import all_labels
from hetero_tf.process import LearningProcess

# The signature that other runtimes get.
PORTABLE = "serving_default"
# ITU-R BT.601; adds up to 1, so that a grey picture keeps its values.
LUMA = (0.299, 0.587, 0.114)
# How the files begin.
PNG, JPEG, BMP = b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"BM"
# Bytes of a JPEG among which its Exif directory is looked for.
EXIF_WITHIN = 2**16


def endpoints(process: LearningProcess, model: keras.Model, scratch: Path) -> tuple[dict, tuple]:
    """`{signature: (function, input specs)}`, and the lookup tables that they use: none.

    `serving_default`: `image` float32 [n, height, width, channels], pixels in 0..1 -> logits, probabilities
    [n, classes] and class [n]. `serve_uint8`: `image` uint8, pixels in 0..255 -> the same. `serve_bytes` (1 or 3
    channels): `image_bytes` string [n], PNG, JPEG or BMP of any size up to `LARGEST_PICTURE` pixels -> the same, and
    class_name where the data set names its classes.

    An image with a pixel that is not finite, and a picture that `decode` does not take, are answered by NaN and class
    -1, the others of their batch as ever. A request of more than `most_examples` images, or of another shape, is an
    error.

    Args:
        process: `process.LearningProcess`.
        model: The Keras model.
        scratch: Not used.
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

    def serve_uint8(image):
        return answer(tf.cast(few(tf.ensure_shape(image, (None, *shape)), most), tf.float32) / 255)

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

    made = {
        "serving_default": (serving_default, [tf.TensorSpec((None, *shape), tf.float32, name="image")]),
        "serve_uint8": (serve_uint8, [tf.TensorSpec((None, *shape), tf.uint8, name="image")]),
    }
    if shape[-1] in (1, 3):
        made["serve_bytes"] = (serve_bytes, [tf.TensorSpec((None,), tf.string, name="image_bytes")])
    return made, ()


def few(batch: tf.Tensor, most: int) -> tf.Tensor:
    """The batch itself, refused by the graph where it has more than `most` examples."""
    count = tf.shape(batch)[0]
    return checked(batch, count <= most, f"a request must hold at most {most} images.", [count])


def decode(data: tf.Tensor, shape: tuple[int, int, int]) -> tf.Tensor:
    """The bytes of a picture as float32 pixels in 0..1 of a fixed shape, upright and resized without aliasing.

    NaN where it is no PNG, JPEG or BMP, has more than `LARGEST_PICTURE` pixels, or is translucent somewhere: what is
    behind it is not known. A file that is damaged behind its header is an error.

    Args:
        data: Scalar string. A GIF is not decoded: a few bytes may make gigabytes of frames.
        shape: (height, width, channels), 1 or 3 channels.
    """
    size = picture_size(data)

    def pixels():
        # Zero asks for the file's own channels: BMP files refuse to be converted while they are decoded.
        found = tf.io.decode_image(data, channels=0, expand_animations=False)
        depth = tf.shape(found)[-1]
        opaque = tf.reduce_all((found[..., -1] == 255) | (depth % 2 == 1))
        turn = orientation(data)
        lies = tf.where(turn > 4, shape[1::-1], shape[:2])
        # Resized before anything else, since the float32 of a large picture take four times the memory.
        found = upright(tf.image.resize(found, lies, antialias=True) / 255, turn)
        found = tf.cond(depth < 3, lambda: tf.repeat(found[..., :1], 3, axis=-1), lambda: found[..., :3])
        return tf.where(opaque, found, np.nan)

    fits = (size[0] > 0) & (tf.reduce_prod(size) <= LARGEST_PICTURE)
    found = tf.cond(fits, pixels, lambda: tf.fill([*shape[:2], 3], np.float32(np.nan)))
    if shape[-1] == 1:
        found = tf.reduce_sum(found * tf.constant(LUMA), -1, keepdims=True)
    return tf.ensure_shape(found, shape)


def orientation(data: tf.Tensor) -> tf.Tensor:
    """How the camera was held: the number 1..8 of a JPEG's Exif entry 0x0112, 1 where there is none.

    Args:
        data: Scalar string.

    Reference: Exif 2.32, section 4.6.4 (tag Orientation); TIFF 6.0 for the entries of a directory.
    """
    head, found = tf.strings.substr(data, 0, EXIF_WITHIN), tf.constant(1)
    for number in range(2, 9):
        # One value of two bytes, in the order of the bytes that the directory begins with; \\C is any byte.
        big = rf"MM\C*\x01\x12\x00\x03\x00\x00\x00\x01\x00\x0{number}"
        little = rf"II\C*\x12\x01\x03\x00\x01\x00\x00\x00\x0{number}\x00"
        for entry in (big, little):
            matches = tf.strings.regex_full_match(head, rf"\C*Exif\x00\x00{entry}\C*")
            found = tf.where(matches, number, found)
    return tf.where(_starts_with(data, JPEG), found, 1)


def upright(picture: tf.Tensor, turn: tf.Tensor) -> tf.Tensor:
    """Returns a picture [height, width, channels] as it was seen; `turn`: as `orientation` gives it."""
    return tf.switch_case(
        turn - 1,
        [
            lambda: picture,
            lambda: picture[:, ::-1],
            lambda: picture[::-1, ::-1],
            lambda: picture[::-1],
            lambda: tf.transpose(picture, (1, 0, 2)),
            lambda: tf.transpose(picture[::-1], (1, 0, 2)),
            lambda: tf.transpose(picture[::-1, ::-1], (1, 0, 2)),
            lambda: tf.transpose(picture[:, ::-1], (1, 0, 2)),
        ],
    )


def picture_size(data: tf.Tensor) -> tf.Tensor:
    """Width and height of a picture as its header tells them, int64 [2]; 0 and 0 where it is no PNG, JPEG or BMP.

    Args:
        data: Scalar string; nothing is decoded for it.
    """
    # Filled up, since the error of a part beyond the end quotes bytes that clients may not be able to decode.
    head = tf.strings.join([tf.strings.substr(data, 0, 32), tf.constant(bytes(32))])

    def pair(place, little_endian):
        read = tf.io.decode_raw(tf.strings.substr(head, place, 8), tf.int32, little_endian=little_endian)
        return tf.abs(tf.cast(tf.ensure_shape(read, [2]), tf.int64))

    kinds = [
        (_starts_with(head, PNG), lambda: pair(16, False)),
        (_starts_with(head, JPEG), lambda: tf.image.extract_jpeg_shape(data, tf.int64)[1::-1]),
        (_starts_with(head, BMP), lambda: pair(18, True)),
    ]
    return tf.case(kinds, default=lambda: tf.zeros([2], tf.int64))


def _starts_with(data, magic):
    longer = tf.strings.join([data, tf.constant(bytes(len(magic)))])
    return tf.strings.substr(longer, 0, len(magic)) == tf.constant(magic)


def input_spec(process: LearningProcess) -> dict:
    """What the model takes, ready for JSON."""
    height, width, channels = process.input.shape(process.dataset.train.x)
    options = process.recipe.input.options
    return {
        "kind": "images",
        "height": height,
        "width": width,
        "channels": channels,
        "pixels": "0..1 as float32, 0..255 as uint8",
        "normalised_by": {name: list(options[name]) for name in ("mean", "std") if name in options},
    }


def notes(process: LearningProcess, signatures: Collection[str]) -> list[str]:
    """What callers must know of the inputs, a sentence each."""
    height, width, channels = process.input.shape(process.dataset.train.x)
    found = [
        f"`serving_default` takes float pixels in 0..1, `serve_uint8` those in 0..255; both {height} x {width} x "
        f"{channels}. The model normalises them itself.",
        "An image with a pixel that is not finite is answered by NaN and class -1.",
    ]
    if "serve_bytes" in signatures:
        found += [
            f"`serve_bytes` takes PNG, JPEG and BMP files of up to {LARGEST_PICTURE:,} pixels; it turns a JPEG as its "
            "Exif entry says, resizes it with antialiasing, and makes it grey or coloured as the model needs it.",
            "A picture of another format, larger or translucent is answered by NaN and class -1; one that is damaged "
            "behind its header fails the request.",
        ]
    return found


def calls(process: LearningProcess, signatures: Collection[str]) -> str:
    """Three lines of Python that call the model inside the folder of its version."""
    if "serve_bytes" in signatures:
        name, call = "serve_bytes", 'image_bytes=tf.constant([open("picture.png", "rb").read()])'
    else:
        shape = [1, *process.input.shape(process.dataset.train.x)]
        name, call = "serving_default", f"image=tf.zeros({shape})"
    return (
        f'import tensorflow as tf\nserve = tf.saved_model.load(".").signatures["{name}"]\n'
        f'print(serve({call})["probabilities"])\n'
    )
