"""Images with one label each."""

import tensorflow as tf

from hetero_tf import noise
from hetero_tf.inputs import Input

PAD = 4


def build(dtype, *, mean: tuple = (0.0,), std: tuple = (1.0,), augment: str = "none"):
    """Batches of normalised images.

    Args:
        mean: per channel, subtracted from pixels in 0..1.
        std: per channel, divides after that.
        augment: none, or crop_flip: 4 zeros on each side, a random crop, a mirror image half of the time.
    """

    def batch(x, y, rows, start, key, labels, training):
        pixels = tf.gather(x, rows)
        if training and augment == "crop_flip":
            pixels = crop_flip(pixels, key)
        values = tf.cast(pixels, dtype)
        if not pixels.dtype.is_floating:
            values = values / 255
        centre, spread = (tf.constant(given, dtype) for given in (mean, std))
        return (values - centre) / spread, labels.local(tf.gather(y, rows))

    return Input(batch, shape=lambda x: tuple(x.shape[1:]), dtype=None, starts=lambda x: (0,), shuffle=True)


def crop_flip(pixels, key):
    """Random crops of the zero-padded images, half of them mirrored (the authors' CIFAR augmentation).

    Args:
        pixels: [batch, height, width, channels], any type.
        key: int32 vector; one hash gives the offsets and the flip of every image.
    """
    count, height, width = tf.shape(pixels)[0], pixels.shape[1], pixels.shape[2]
    draws = noise.uniform(key, [3, count])
    top, left = (tf.cast(tf.floor(draw * (2 * PAD + 1)), tf.int32) for draw in (draws[0], draws[1]))
    across = tf.range(width)
    across = tf.where(draws[2][:, None] < 0.5, across, width - 1 - across)
    padded = tf.pad(pixels, [[0, 0], [PAD, PAD], [PAD, PAD], [0, 0]])
    rows = tf.gather(padded, top[:, None] + tf.range(height), batch_dims=1, axis=1)
    columns = tf.broadcast_to((left[:, None] + across)[:, None, :], [count, height, width])
    return tf.gather(rows, columns, batch_dims=2, axis=2)
