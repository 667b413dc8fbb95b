"""Export task of an image model: signatures for pixels and for bytes of picture files."""

import functools
from collections.abc import Callable, Collection
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

from hetero_tf.base.picture_decoding import decode
from hetero_tf.base.picture_files import FORMATS, LARGEST_PICTURE
from hetero_tf.export import labelled
from hetero_tf.export.labelled import add_class_names, check_count, classify
from hetero_tf.export.limits import max_examples
from hetero_tf.process.learning_process import LearningProcess

# Input of the signature `serving_default`.
INPUT_NAME = "image"
# Signature that other formats convert.
PORTABLE_SIGNATURE = "serving_default"
# Test examples in one request when outputs are compared with those of the Keras model.
CHECKED_EXAMPLES = 32
max_batch_size, model_inputs = labelled.max_batch_size, labelled.model_inputs


def endpoints(process: LearningProcess, model: keras.Model, scratch: Path) -> tuple[dict, tuple]:
    """Return `{signature: (function, input specs)}`, and no lookup tables.

    `serving_default`: `image` float32 [n, height, width, channels], pixels in 0..1 -> logits, probabilities
    [n, classes] and class [n]. `serve_uint8`: `image` uint8, pixels in 0..255 -> the same. `serve_bytes` (1 or 3
    channels): `image_bytes` string [n], PNG, JPEG, BMP, GIF or WebP of any size up to `LARGEST_PICTURE` pixels ->
    the same, and class_name if the data set names its classes.

    An image with a pixel that is not finite, and a picture that is damaged or not supported by `decode`, get NaN and
    class -1, and do not affect other images. A request of more than `max_examples` images, or of another shape, is an
    error.

    Args:
        process: `process.LearningProcess`.
        model: The Keras model.
        scratch: Not used.
    """
    shape, names = process.input.shape(process.dataset.train.x), process.dataset.class_names
    limit = max_examples(model)

    classify_batch = functools.partial(classify, process, model)

    def serving_default(image):
        # Servers do not check shapes, and a wrong rank may abort the process inside a kernel.
        return classify_batch(check_count(tf.ensure_shape(image, (None, *shape)), limit, "images"))

    def serve_uint8(image):
        return classify_batch(
            tf.cast(check_count(tf.ensure_shape(image, (None, *shape)), limit, "images"), tf.float32) / 255
        )

    def serve_bytes(image_bytes):
        return add_class_names(
            classify_batch(decode_each(check_count(tf.ensure_shape(image_bytes, (None,)), limit, "images"), shape)),
            names,
        )

    signatures = {
        "serving_default": (serving_default, [tf.TensorSpec((None, *shape), tf.float32, name="image")]),
        "serve_uint8": (serve_uint8, [tf.TensorSpec((None, *shape), tf.uint8, name="image")]),
    }
    if shape[-1] in (1, 3):
        signatures["serve_bytes"] = (serve_bytes, [tf.TensorSpec((None,), tf.string, name="image_bytes")])
    return signatures, ()


def decode_each(files: tf.Tensor, shape: tuple[int, int, int]) -> tf.Tensor:
    """Decode picture files independently; a file that `decode` rejects becomes NaN.

    Args:
        files: string [n].
        shape: (height, width, channels) of the result.

    Returns:
        float32 [n, *shape].
    """
    count = tf.shape(files, tf.int64)[0]
    # A graph cannot catch errors of operations, but a dataset can drop elements that raise one. It decodes one file at
    # a time, since ten large pictures in parallel would take ten times the memory.
    decoded = tf.data.Dataset.from_tensor_slices(files).enumerate().map(lambda i, data: (i, decode(data, shape)))
    # The extra element, at the index after the last file, keeps the batch from being empty.
    extra = tf.data.Dataset.from_tensors((count, tf.fill(shape, np.float32(np.nan))))
    indices, images = decoded.ignore_errors().concatenate(extra).batch(count + 1).get_single_element()
    blank = tf.fill(tf.concat([tf.shape(files) + 1, shape], 0), np.float32(np.nan))
    return tf.tensor_scatter_nd_update(blank, indices[:, None], images)[:-1]


def pixels(x: np.ndarray) -> np.ndarray:
    """Return stored images as float32 pixels in 0..1, the input of `serving_default`."""
    return x.astype(np.float32) / (255 if x.dtype == np.uint8 else 1)


def request(process: LearningProcess, x: np.ndarray) -> dict[str, np.ndarray]:
    """Return the request of `serving_default` for stored examples."""
    return {INPUT_NAME: pixels(x)}


def measure(process: LearningProcess, predict: Callable) -> dict[str, float]:
    """Measure an exported model on the whole test set, see `labelled.measure`."""
    return labelled.measure(process, predict, functools.partial(request, process))


def limits(process: LearningProcess, model: keras.Model) -> dict[str, int]:
    """Return the limits of a request for `export.json`."""
    return {"images": max_examples(model), "pixels_of_a_picture": LARGEST_PICTURE}


def input_spec(process: LearningProcess) -> dict:
    """Return the description of the model's input for `export.json`."""
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
    """Return sentences on the inputs for callers of the model."""
    height, width, channels = process.input.shape(process.dataset.train.x)
    sentences = [
        f"`serving_default` takes float pixels in 0..1, `serve_uint8` pixels in 0..255; both {height} x {width} x "
        f"{channels}. The model normalises them.",
        "An image with a pixel that is not finite gets NaN and class -1.",
    ]
    if "serve_bytes" in signatures:
        sentences += [
            f"`serve_bytes` takes {FORMATS} files of up to {LARGEST_PICTURE:,} pixels, the first frame of a GIF, and "
            "no animated WebP. It applies the Exif orientation of a JPEG, resizes pictures by area means, and converts "
            "them to the channels of the model.",
            "A picture that is damaged, translucent, too large or of another format gets NaN and class -1.",
        ]
    return sentences


def calls(process: LearningProcess, signatures: Collection[str]) -> str:
    """Return three lines of Python that call the model inside the folder of its version."""
    if "serve_bytes" in signatures:
        name, call = "serve_bytes", 'image_bytes=tf.constant([open("picture.png", "rb").read()])'
    else:
        shape = [1, *process.input.shape(process.dataset.train.x)]
        name, call = "serving_default", f"image=tf.zeros({shape})"
    return (
        f'import tensorflow as tf\nserve = tf.saved_model.load(".").signatures["{name}"]\n'
        f'print(serve({call})["probabilities"])\n'
    )
