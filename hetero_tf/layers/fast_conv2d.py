"""Forms of a convolution that train faster than TensorFlow's: on a CPU those of `FORMS`, with 3x3 taps and stride 1."""

import functools
import itertools
import math

import numpy as np
import tensorflow as tf

from hetero_tf.base.written_gradient import written_gradient
from hetero_tf.layers.stacked.forms import to_channels, to_leading

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


# Offsets (down, right) of the inputs that the taps of a 3x3 kernel read, relative to the output.
OFFSETS = tuple(itertools.product((-1, 0, 1), repeat=2))


def conv2d_by_taps(inputs: tf.Tensor, kernel: tf.Tensor) -> tf.Tensor:
    """Compute a 3x3 convolution with stride 1 and zero padding as one matrix product per tap.

    Args:
        inputs: [batch, height, width, channels], static except for the batch.
        kernel: [3, 3, channels, filters].

    Returns:
        [batch, height, width, filters].
    """
    batch, (height, width, channels), filters = tf.shape(inputs)[0], inputs.shape[1:], kernel.shape[3]
    # Products and their gradients are summed in float32 even if they are bfloat16.
    dtype = tf.float32 if inputs.dtype == tf.bfloat16 else inputs.dtype
    exact, outputs = tf.cast(inputs, dtype), []
    for tap, (down, right) in zip(tf.unstack(tf.reshape(kernel, [9, channels, filters])), OFFSETS, strict=True):
        # A tap that reads only the border adds nothing.
        rows, columns = height - abs(down), width - abs(right)
        if not rows * columns:
            continue
        top, left = max(down, 0), max(right, 0)
        seen = tf.cast(tf.slice(exact, [0, top, left, 0], [-1, rows, columns, -1]), inputs.dtype)
        product = tf.reshape(tf.matmul(tf.reshape(seen, [-1, channels]), tap), [batch, rows, columns, filters])
        above, before = max(-down, 0), max(-right, 0)
        border = [[0, 0], [above, height - rows - above], [before, width - columns - before], [0, 0]]
        outputs.append(tf.pad(tf.cast(product, dtype), border))
    return tf.cast(tf.add_n(outputs), inputs.dtype)


FORMS = {"taps": conv2d_by_taps, "winograd": conv2d_by_winograd}
# Limits from measurements (benchmarks/RESULTS.md). With at most 16 positions and at least this number of kernel values
# a kernel is faster tap by tap, because a convolution repacks its kernel in every step.
SMALL_MAP, WIDE_KERNEL = 16, 9 * 128 * 256
# Winograd's algorithm loses if its transforms take longer than the products that it saves: with few channels, on long
# axes, on maps that are not a multiple of a tile, or if the values of its tiles do not fit into the caches.
MIN_CHANNELS, MAX_SIDE, MAX_POINTS_PER_POSITION, CACHED_VALUES = 32, 32, 4, 2**21
# With fewer examples the transform of a kernel takes longer; from this number of channels on products dominate.
MIN_POSITIONS, MANY_CHANNELS = 128, 128
# bfloat16 would lose too many digits. In float64, runs are compared with other code.
WINOGRAD_TYPES = ("float32",)


def fastest_form(
    map_size: tuple[int | None, int | None], kernel: tuple[int, ...], dtype: str, batch: int | None
) -> str | None:
    """Return the fastest form of a convolution, a key of `FORMS`, or None for TensorFlow's convolution.

    Args:
        map_size: (height, width) of the inputs.
        dtype: Type of the inputs.
        batch: Examples of a training step. If None, only outputs are computed, without gradients.
    """
    height, width = map_size
    if height is None or width is None or kernel[:2] != (3, 3):
        return None
    if height * width <= SMALL_MAP:
        return "taps" if math.prod(kernel) >= WIDE_KERNEL else None
    is_faster = batch is not None and dtype in WINOGRAD_TYPES and _faster_by_winograd(height, width, kernel[2:], batch)
    return "winograd" if is_faster else None


def _faster_by_winograd(height, width, channels, batch):
    """Return whether outputs and gradients take less time by `conv2d_by_winograd`; channels: inputs and outputs."""
    positions, points = height * width, POINTS**2 * -(-height // TILE) * -(-width // TILE)
    return (
        min(channels) >= MIN_CHANNELS
        and max(height, width) <= MAX_SIDE
        and max(height, width) < min(channels)
        and points < MAX_POINTS_PER_POSITION * positions
        and batch * positions >= MIN_POSITIONS
        and (min(channels) >= MANY_CHANNELS or batch * points * max(channels) <= CACHED_VALUES)
    )


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
