"""Forms of a convolution that train faster than TensorFlow's: on a CPU those of `FORMS`, with 3x3 taps and stride 1."""

import math

from hetero_tf.layers.fast_conv2d.taps import conv2d_by_taps
from hetero_tf.layers.fast_conv2d.winograd import POINTS, TILE, conv2d_by_winograd

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
        kernel: Shape of the kernel.
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
