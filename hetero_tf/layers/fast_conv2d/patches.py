"""Convolutions of several clients as one batched matrix product of their patches, for GPUs."""

import itertools
import math

import tensorflow as tf

from hetero_tf.layers.stacked.forms import to_channels, to_leading

# Bytes of the patches up to which products were faster than grouped convolutions: all measured layers are below.
MAX_PATCHES = 2**28


def patch_bytes(inputs: tf.Tensor, kernel: tf.Tensor, stride: int) -> float:
    """Return the size of the patches of all clients; infinite if the batch is unknown."""
    batch, height, width, channels = inputs.shape
    if batch is None:
        return math.inf
    positions = batch * -(-height // stride) * -(-width // stride)
    return positions * kernel.shape[0] ** 2 * channels * inputs.dtype.size


def conv2d_by_patches(inputs: tf.Tensor, kernel: tf.Tensor, stride: int, clients: int) -> tf.Tensor:
    """Compute the convolutions of several clients, padded equally on all sides.

    Args:
        inputs: [batch, height, width, clients * channels], static except for the batch.
        kernel: [size, size, channels, clients * filters].

    Returns:
        [batch, ceil(height / stride), ceil(width / stride), clients * filters].
    """
    size, channels, filters = kernel.shape[0], kernel.shape[2], kernel.shape[3] // clients
    side, (rows, columns) = size // 2, (-(-length // stride) for length in inputs.shape[1:3])
    maps = tf.pad(to_leading(inputs, clients), [[0, 0], [0, 0], [side, side], [side, side], [0, 0]])
    taps = [
        maps[:, :, top : top + (rows - 1) * stride + 1 : stride, left : left + (columns - 1) * stride + 1 : stride]
        for top, left in itertools.product(range(size), repeat=2)
    ]
    values = size**2 * channels
    patches = tf.reshape(tf.concat(taps, -1), [clients, -1, values])
    kernels = tf.transpose(tf.reshape(kernel, [values, clients, filters]), [1, 0, 2])
    outputs = tf.reshape(tf.matmul(patches, kernels), [clients, -1, rows, columns, filters])
    return to_channels(outputs, clients)
