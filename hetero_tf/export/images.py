"""What the export of an image model answers to: pixels, or the bytes of picture files."""

import functools
from collections.abc import Callable, Collection
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

from hetero_tf.base.picture_decoding import decode
from hetero_tf.base.picture_files import FORMATS, LARGEST_PICTURE
from hetero_tf.export import labelled
from hetero_tf.export.labelled import answers, few, named
from hetero_tf.export.limits import most_examples
from hetero_tf.process.learning_process import LearningProcess

# What a client of `serving_default` gives.
GIVEN = "image"
# The signature that other runtimes get.
PORTABLE = "serving_default"
# Test examples in one request when answers are compared with the model's.
COMPARED = 32
most_at_once, model_inputs = labelled.most_at_once, labelled.model_inputs


def endpoints(process: LearningProcess, model: keras.Model, scratch: Path) -> tuple[dict, tuple]:
    """`{signature: (function, input specs)}`, and the lookup tables that they use: none.

    `serving_default`: `image` float32 [n, height, width, channels], pixels in 0..1 -> logits, probabilities
    [n, classes] and class [n]. `serve_uint8`: `image` uint8, pixels in 0..255 -> the same. `serve_bytes` (1 or 3
    channels): `image_bytes` string [n], PNG, JPEG, BMP, GIF or WebP of any size up to `LARGEST_PICTURE` pixels ->
    the same, and class_name where the data set names its classes.

    An image with a pixel that is not finite, and a picture that `decode` does not take or that is damaged, are answered
    by NaN and class -1, the others of their batch as ever. A request of more than `most_examples` images, or of another
    shape, is an error.

    Args:
        process: `process.LearningProcess`.
        model: The Keras model.
        scratch: Not used.
    """
    shape, names = process.input.shape(process.dataset.train.x), process.dataset.class_names
    most = most_examples(model)

    answer = functools.partial(answers, process, model)

    def serving_default(image):
        # Servers hand on any shape, and kernels may end the process over a wrong rank.
        return answer(few(tf.ensure_shape(image, (None, *shape)), most, "images"))

    def serve_uint8(image):
        return answer(tf.cast(few(tf.ensure_shape(image, (None, *shape)), most, "images"), tf.float32) / 255)

    def serve_bytes(image_bytes):
        return named(answer(decode_each(few(tf.ensure_shape(image_bytes, (None,)), most, "images"), shape)), names)

    made = {
        "serving_default": (serving_default, [tf.TensorSpec((None, *shape), tf.float32, name="image")]),
        "serve_uint8": (serve_uint8, [tf.TensorSpec((None, *shape), tf.uint8, name="image")]),
    }
    if shape[-1] in (1, 3):
        made["serve_bytes"] = (serve_bytes, [tf.TensorSpec((None,), tf.string, name="image_bytes")])
    return made, ()


def decode_each(files: tf.Tensor, shape: tuple[int, int, int]) -> tf.Tensor:
    """Decode picture files independently: one that `decode` refuses or fails on becomes NaN.

    Args:
        files: string [n].
        shape: (height, width, channels), as `decode` takes it.

    Returns:
        float32 [n, *shape].
    """
    count = tf.shape(files, tf.int64)[0]
    # A graph cannot catch the error of an operation, but a dataset can drop the elements that raise one. It decodes one
    # file at a time: ten large pictures at once would take ten times the memory.
    decoded = tf.data.Dataset.from_tensor_slices(files).enumerate().map(lambda i, data: (i, decode(data, shape)))
    # The extra element, at the index after the last file, keeps the batch from being empty.
    extra = tf.data.Dataset.from_tensors((count, tf.fill(shape, np.float32(np.nan))))
    indices, images = decoded.ignore_errors().concatenate(extra).batch(count + 1).get_single_element()
    blank = tf.fill(tf.concat([tf.shape(files) + 1, shape], 0), np.float32(np.nan))
    return tf.tensor_scatter_nd_update(blank, indices[:, None], images)[:-1]


def pixels(x: np.ndarray) -> np.ndarray:
    """Returns stored images as float32 in 0..1, as a client of the model sends them."""
    return x.astype(np.float32) / (255 if x.dtype == np.uint8 else 1)


def request(process: LearningProcess, x: np.ndarray) -> dict[str, np.ndarray]:
    """Stored examples as a client of `serving_default` sends them."""
    return {GIVEN: pixels(x)}


def measure(process: LearningProcess, ask: Callable) -> dict[str, float]:
    """Measures answers on the whole test set, see `labelled.measure`."""
    return labelled.measure(process, ask, functools.partial(request, process))


def limits(process: LearningProcess, model: keras.Model) -> dict[str, int]:
    """What a request may hold, for `export.json`."""
    return {"images": most_examples(model), "pixels_of_a_picture": LARGEST_PICTURE}


def input_spec(process: LearningProcess) -> dict:
    """What the model takes, ready for JSON."""
    height, width, channels = process.input.shape(process.dataset.train.x)
    return {
        "kind": "images",
        "height": height,
        "width": width,
        "channels": channels,
        "pixels": "0..1 as float32, 0..255 as uint8",
        "normalised_by": process.input.normalised_by,
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
            f"`serve_bytes` takes {FORMATS} files of up to {LARGEST_PICTURE:,} pixels, of a GIF the first frame, and "
            "no animated WebP; it turns a JPEG as its Exif entry says, resizes it by area means, and makes it grey or "
            "coloured as the model needs it.",
            "A picture of another format, damaged, larger or translucent is answered by NaN and class -1.",
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
