"""Input pipeline for labelled images."""

from typing import Annotated, Literal

import numpy as np
import tensorflow as tf

from hetero_tf.base.constraints import Range
from hetero_tf.base.errors import InputError
from hetero_tf.base.graph_random import uniform
from hetero_tf.data.inputs import Input, gather_examples

DATA = "images"
FORM = "map"
TARGETS = "label"
PER_CHANNEL = ("mean", "std")
ON_DEVICE = True

PAD = 4
# A smaller divisor would overflow float32 after a few layers.
Spread = Annotated[float, Range(low=1e-6)]


def build(
    dtype: tf.DType,
    *,
    mean: tuple[float, ...] = (0.0,),
    std: tuple[Spread, ...] = (1.0,),
    augment: Literal["none", "crop_flip"] = "none",
) -> Input:
    """Make batches of normalised images.

    Args:
        mean: mean per channel or one for all, subtracted from pixels in 0..1.
        std: standard deviation per channel or one for all; divides the result.
        augment: none, or crop_flip: zero padding of 4 pixels, a random crop, and a random horizontal flip; a label map
            moves with its image, and its padding has class 0.

    Raises:
        InputError: `mean` and `std` have incompatible lengths.
    """
    if len(mean) != len(std) and 1 not in (len(mean), len(std)):
        raise InputError(
            f"`mean` and `std` must have the same length, or one of them a single number. Received: {mean=}, {std=}"
        )

    def batch(x, y, rows, start, key, labels, training, length=None):
        pixels, targets = gather_examples(x, rows), tf.gather(y, rows)
        if training and augment == "crop_flip":
            pixels = crop_flip(pixels, key)
            if len(y.shape) == 3:
                targets = crop_flip(targets[..., None], key)[..., 0]
        largest = 1 if pixels.dtype.is_floating else 255
        factor = tf.constant([1 / (largest * spread) for spread in std], dtype)
        centre = tf.constant(np.divide(mean, std), dtype)
        return tf.cast(pixels, dtype) * factor - centre, labels.local(targets)

    return Input(batch, normalised_by={"mean": list(mean), "std": list(std)})


def crop_flip(pixels: tf.Tensor, key: tf.Tensor) -> tf.Tensor:
    """Randomly crop zero-padded images and flip half of them (CIFAR augmentation of the HeteroFL authors).

    Args:
        pixels: [..., batch, height, width, channels], any type.
        key: int32 [..., words]; determines the offsets and flips of a batch.
    """
    shape, before = tf.shape(pixels), pixels.shape.rank - 3
    height, width = pixels.shape[-3:-1]
    top, left, flip = tf.unstack(uniform(key, [3, shape[before - 1]]), axis=-2)
    top, left = (tf.cast(tf.floor(draw * (2 * PAD + 1)), tf.int32) for draw in (top, left))
    across = tf.range(width)
    across = tf.where(flip[..., None] < 0.5, across, width - 1 - across)
    padded = tf.pad(pixels, [*[[0, 0]] * before, [PAD, PAD], [PAD, PAD], [0, 0]])
    rows = tf.gather(padded, top[..., None] + tf.range(height), batch_dims=before, axis=before)
    columns = tf.broadcast_to((left[..., None] + across)[..., None, :], shape[:-1])
    return tf.gather(rows, columns, batch_dims=before + 1, axis=before + 1)
