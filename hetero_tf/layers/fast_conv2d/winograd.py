"""3x3 convolutions by Winograd's algorithm: a quarter of the multiplications, with an explicit gradient."""

import functools

import numpy as np
import tensorflow as tf

from hetero_tf.base.written_gradient import written_gradient

# Each tile of TILE x TILE outputs has POINTS x POINTS products.
TILE, POINTS = 4, 6
# F(4x4, 3x3) of Lavin and Gray (arXiv 1509.09308), section 4.3: outputs = OUTPUT (KERNEL k * INPUT x) per axis.
INPUT = (
    (4, 0, -5, 0, 1, 0),
    (0, -4, -4, 1, 1, 0),
    (0, 4, -4, -1, 1, 0),
    (0, -2, -1, 2, 1, 0),
    (0, 2, -1, -2, 1, 0),
    (0, 4, 0, -5, 0, 1),
)
KERNEL = np.divide(((6, 0, 0), (-4, -4, -4), (-4, 4, -4), (1, 2, 4), (1, -2, 4), (0, 0, 24)), 24)
OUTPUT = ((1, 1, 1, 1, 1, 0), (0, 1, -1, 2, -2, 0), (0, 1, 1, 4, 4, 0), (0, 1, -1, 8, -8, 1))


@written_gradient
def conv2d_by_winograd(inputs, kernel):
    """Compute a 3x3 convolution with stride 1 and zero padding as one matrix product per point of a tile.

    The algorithm is exact; its float32 results are ten times less accurate than a convolution's (2e-6 to 5e-6).

    Args:
        inputs: [batch, height, width, channels], static except for the batch.
        kernel: [3, 3, channels, filters].

    Returns:
        [batch, height, width, filters].
    """
    dtype, (channels, filters) = inputs.dtype.as_numpy_dtype, kernel.shape[2:]
    (to_rows, from_rows), (to_columns, from_columns) = (_transforms(size, dtype) for size in inputs.shape[1:3])
    to_points = np.kron(KERNEL, KERNEL).astype(dtype)
    points = _to_points(inputs, to_rows, to_columns)
    kernels = tf.reshape(tf.matmul(to_points, tf.reshape(kernel, [9, -1])), [-1, channels, filters])

    def gradient(upstream):
        upstream = _to_points(upstream, from_rows.T, from_columns.T)
        for_inputs = _from_points(tf.matmul(upstream, kernels, transpose_b=True), to_rows.T, to_columns.T)
        for_kernels = tf.reshape(tf.matmul(points, upstream, transpose_a=True), [-1, channels * filters])
        return for_inputs, tf.reshape(tf.matmul(to_points.T, for_kernels), kernel.shape)

    return _from_points(tf.matmul(points, kernels), from_rows, from_columns), gradient


@functools.lru_cache
def _transforms(size, dtype):
    """Return the transforms of an axis of maps, [points, size] and [size, points]; points x tiles are one axis.

    As full matrices they also pad the input with zeros, overlap its tiles and drop outputs after the end of the axis.
    """
    tiles = -(-size // TILE)
    to_points = np.zeros([POINTS, tiles, TILE * tiles + 2], dtype)
    from_points = np.zeros([TILE * tiles, POINTS, tiles], dtype)
    for tile in range(tiles):
        start = TILE * tile
        to_points[:, tile, start : start + POINTS] = INPUT
        from_points[start : start + TILE, :, tile] = OUTPUT
    return to_points[:, :, 1 : size + 1].reshape(-1, size), from_points[:size].reshape(size, -1)


def _to_points(maps, rows, columns):
    """Transform maps [batch, height, width, channels] to [points of a tile, batch * tiles, channels]."""
    height, width, channels = maps.shape[1:]
    values = tf.matmul(rows, tf.reshape(maps, [-1, height, width * channels]))
    values = tf.matmul(columns, tf.reshape(values, [-1, width, channels]))
    values = tf.reshape(values, [-1, POINTS, len(rows) // POINTS, POINTS, len(columns) // POINTS, channels])
    return tf.reshape(tf.transpose(values, [1, 3, 0, 2, 4, 5]), [POINTS**2, -1, channels])


def _from_points(values, rows, columns):
    """Transform [points of a tile, batch * tiles, channels] to maps [batch, height, width, channels]."""
    (height, all_rows), (width, all_columns), channels = rows.shape, columns.shape, values.shape[2]
    values = tf.reshape(values, [POINTS, POINTS, -1, all_rows // POINTS, all_columns // POINTS, channels])
    values = tf.reshape(tf.transpose(values, [2, 0, 3, 1, 4, 5]), [-1, all_columns, channels])
    values = tf.reshape(tf.matmul(columns, values), [-1, all_rows, width * channels])
    return tf.reshape(tf.matmul(rows, values), [-1, height, width, channels])
