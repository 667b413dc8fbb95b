"""Small vector files in the format of the methods' vectors, made by plain loops that share nothing with hetero_tf.

Tensors have PyTorch's names and layouts; images are made with channels first and turned where TensorFlow needs it.
"""

import json

import numpy as np
import tensorflow as tf

CLASSES = 4


def conv(x, kernel, stride=1):
    """A convolution of (batch, height, width, in) by (out, in, size, size), equally padded."""
    side = kernel.shape[2] // 2
    padded = tf.pad(x, [(0, 0), (side, side), (side, side), (0, 0)])
    return tf.nn.conv2d(padded, tf.transpose(kernel, (2, 3, 1, 0)), stride, "VALID")


def normed(x, mean, variance, scale, offset):
    return (x - mean) / tf.sqrt(variance + 1e-5) * tf.reshape(scale, [-1]) + tf.reshape(offset, [-1])


def cross_entropy(logits, labels):
    return -tf.reduce_mean(tf.gather(tf.nn.log_softmax(logits), labels, batch_dims=1))


class Maker:
    """Draws inputs and collects arrays."""

    def __init__(self, seed):
        self.rng, self.arrays = np.random.default_rng(seed), {}

    def tensor(self, name, *shape, around=0.0):
        self.arrays[f"global_init/{name}"] = (around + self.rng.normal(0, 0.4, shape)).astype(np.float32)

    def batch(self, place, labels, size=3):
        self.arrays[f"{place}/img"] = (self.rng.integers(-8, 8, (size, 2, 6, 6)) / 4).astype(np.float32)
        self.arrays[f"{place}/label"] = self.rng.choice(labels, size).astype(np.int16)

    def read(self, place):
        images = self.arrays[f"{place}/img"].astype(np.float64).transpose(0, 2, 3, 1)
        return tf.constant(images), self.arrays[f"{place}/label"].astype(int)

    def start(self):
        return {
            name.removeprefix("global_init/"): value.astype(np.float64)
            for name, value in self.arrays.items()
            if name.startswith("global_init/")
        }

    def results(self, place, values):
        self.arrays |= {f"f64/{place}/{name}": np.asarray(value) for name, value in values.items()}

    def save(self, path, meta):
        np.savez(path, **self.arrays, **{"meta.json": json.dumps(meta)})
