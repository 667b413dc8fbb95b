"""Gradients that LiteRT can run with its built-in operations.

TensorFlow computes gradients of convolutions, pooling, slices and ReLU with dedicated operations, such as
Conv2DBackpropFilter, which LiteRT lacks. The gradients here have the same values, but use built-in operations only. All
shapes must be static.
"""

import math
from collections.abc import Callable

import tensorflow as tf

PREFIX = "HeteroTFPortable"
# The error function is 1 for larger values. Coefficients start with that of the highest power.
ERF_IS_ONE = 3.7439211627767994
ERF_NUMERATOR = (
    2.2905065861350646e-4,
    3.4082910107109506e-3,
    5.0955695062380861e-2,
    1.8520832239976145e-1,
    1.128379143519084,
)
ERF_DENOMINATOR = (
    -1.1791602954361697e-7,
    2.3547966471313185e-5,
    1.0179625278914885e-3,
    1.4070470171167667e-2,
    1.1098505178285362e-1,
    4.9746925110067538e-1,
    1.0,
)


def gradients(function: Callable, values: list[tf.Tensor]) -> tuple[tf.Tensor, list[tf.Tensor], list]:
    """Call `function(values) -> (loss, others)` inside a graph that is being traced.

    Returns:
        The loss, its gradient with respect to each value (zeros for values that it does not depend on), and the others.
    """
    # A GradientTape would ignore the override map.
    with tf.compat.v1.get_default_graph().gradient_override_map({name: PREFIX + name for name in PORTABLE}):
        loss, others = function(values)
    value_gradients = tf.gradients(loss, values, unconnected_gradients=tf.UnconnectedGradients.ZERO)
    return loss, [tf.convert_to_tensor(gradient) for gradient in value_gradients], others


def relu_gradient(operation: tf.Operation, upstream: tf.Tensor) -> tf.Tensor:
    """Return the gradient of Relu."""
    return upstream * tf.cast(operation.outputs[0] > 0, upstream.dtype)


def conv2d_gradients(operation: tf.Operation, upstream: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the gradients of Conv2D: inputs [n, height, width, c], kernel [rows, columns, c, filters]."""
    inputs, kernel = operation.inputs
    rows, columns, channels, filters = kernel.shape
    if channels != inputs.shape[-1]:
        raise NotImplementedError(
            f"a grouped convolution cannot be trained on the device. Received: {inputs.shape[-1] // channels} groups"
        )
    stride, padding = _stride(operation), _padding(operation, inputs.shape, (rows, columns))
    # One matrix product over all windows: [rows * columns * c, n * h * w] by [n * h * w, filters].
    windows = _windows(tf.pad(inputs, padding), (rows, columns), stride, upstream.shape[1:3])
    columns_matrix = tf.reshape(tf.concat(windows, -1), [-1, rows * columns * channels])
    for_kernel = tf.matmul(columns_matrix, tf.reshape(upstream, [-1, filters]), transpose_a=True)
    padded = [size + before + after for size, (before, after) in zip(inputs.shape, padding)]
    # The input gradient of the VALID convolution is zero after the last window.
    covered = [(size - 1) * stride + side for size, side in zip(upstream.shape[1:3], (rows, columns))]
    for_inputs = tf.nn.conv2d_transpose(upstream, kernel, [padded[0], *covered, padded[3]], stride, "VALID")
    ends = [[0, full - size] for full, size in zip(padded[1:3], covered)]
    for_inputs = tf.pad(for_inputs, [[0, 0], *ends, [0, 0]])
    return _crop(for_inputs, padding, inputs.shape), tf.reshape(for_kernel, kernel.shape)


def max_pool_gradient(operation: tf.Operation, upstream: tf.Tensor) -> tf.Tensor:
    """Return the gradient of MaxPool without overlap; it goes to the first of a window's largest values."""
    inputs, pooled = operation.inputs[0], operation.outputs[0]
    windows, strides = operation.get_attr("ksize"), operation.get_attr("strides")
    if windows != strides or windows[1] != windows[2]:
        raise NotImplementedError(
            "pooling must have square windows without overlap to train on the device. "
            f"Received: size={windows}, stride={strides}"
        )
    size, padding = windows[1], _padding(operation, inputs.shape, windows[1:3])
    padded = tf.pad(inputs, padding, constant_values=inputs.dtype.min)
    window_gradients, is_open = [], tf.ones_like(pooled)
    for window in _windows(padded, (size, size), size, pooled.shape[1:3]):
        is_maximum = is_open * tf.cast(tf.equal(window, pooled), pooled.dtype)
        window_gradients.append(is_maximum * upstream)
        is_open -= is_maximum
    return _untile(window_gradients, size, padding, inputs.shape)


def _untile(values, size, padding, shape):
    """Join values for each position of a window, each [n, h, w, c], to an image [n, height, width, c]."""
    count, height, width, channels = values[0].shape
    rows = [tf.stack(values[row * size : (row + 1) * size], 3) for row in range(size)]
    # [n, h, size, w, size, c]
    image = tf.reshape(tf.stack(rows, 2), [count, height * size, width * size, channels])
    padded = [extent + before + after for extent, (before, after) in zip(shape, padding)]
    # VALID windows skip the last positions if the window size does not divide the extent.
    image = tf.pad(image, [[0, max(full - extent, 0)] for full, extent in zip(padded, image.shape)])
    return _crop(image, padding, shape)


def tile_gradient(operation: tf.Operation, upstream: tf.Tensor) -> tuple[tf.Tensor, None]:
    """Return the gradient of Tile, the sum over the copies, axis by axis: LiteRT sums up to six axes."""
    sizes, gradient = list(upstream.shape), upstream
    for axis, size in enumerate(operation.inputs[0].shape):
        if sizes[axis] > size:
            copies = tf.reshape(gradient, [math.prod(sizes[:axis]), sizes[axis] // size, -1])
            sizes[axis] = size
            gradient = tf.reshape(tf.reduce_sum(copies, 1), sizes)
    return gradient, None


def strided_slice_gradient(operation: tf.Operation, upstream: tf.Tensor) -> tuple:
    """Return the gradient of StridedSlice with constant begins and positive strides."""
    shape = operation.inputs[0].shape
    ranges = _sliced_ranges(operation, shape)
    # Restore axes that the slice dropped, and drop those that it added.
    gradient = tf.reshape(upstream, [len(positions) for positions in ranges])
    for axis, (positions, size) in enumerate(zip(ranges, shape)):
        if len(positions) < size:
            gradient = _insert_zeros(gradient, axis, positions.step)
            padding = [positions.start, size - positions.start - gradient.shape[axis]]
            gradient = tf.pad(gradient, [padding if other == axis else [0, 0] for other in range(len(shape))])
    return gradient, None, None, None


def _sliced_ranges(operation, shape):
    """Return the positions that a StridedSlice reads of each axis of its input."""
    masks = {name: operation.get_attr(f"{name}_mask") for name in ("begin", "ellipsis", "new_axis", "shrink_axis")}
    begins, strides = (tf.get_static_value(operation.inputs[index]).tolist() for index in (1, 3))
    # The end may be computed, so the shape of the output has the number of positions.
    counts, num_input_entries = list(operation.outputs[0].shape), len(begins) - masks["new_axis"].bit_count()
    ranges: list[range] = []
    for entry, (begin, stride) in enumerate(zip(begins, strides)):
        flags = {name for name, mask in masks.items() if mask >> entry & 1}
        if "ellipsis" in flags:
            ranges += [range(counts.pop(0)) for _ in range(len(shape) - num_input_entries + 1)]
        elif "new_axis" in flags:
            counts.pop(0)
        else:
            count = 1 if "shrink_axis" in flags else counts.pop(0)
            if stride < 0:
                raise NotImplementedError(
                    f"a slice must have positive strides to be trained on the device. Received: {strides=}"
                )
            size = shape[len(ranges)]
            begin = 0 if "begin" in flags and "shrink_axis" not in flags else begin + size * (begin < 0)
            begin = max(begin, 0)
            ranges.append(range(begin, begin + count * stride, stride))
    return ranges + [range(count) for count in counts]


def _insert_zeros(values, axis, stride):
    """Insert stride - 1 zeros between the positions of an axis."""
    if stride == 1:
        return values
    before, size, after = values.shape[:axis], values.shape[axis], values.shape[axis + 1 :]
    gaps = [[0, 0]] * (axis + 1) + [[0, stride - 1]] + [[0, 0]] * len(after)
    spaced = tf.pad(tf.reshape(values, [*before, size, 1, *after]), gaps)
    merged = tf.reshape(spaced, [*before, size * stride, *after])
    return tf.slice(merged, [0] * merged.shape.rank, [*before, (size - 1) * stride + 1, *after])


def _stride(operation):
    _, vertical, horizontal, _ = operation.get_attr("strides")
    if vertical != horizontal or set(operation.get_attr("dilations")) != {1}:
        raise NotImplementedError(
            "a convolution must have one stride and no dilation to be trained on the device. "
            f"Received: strides={operation.get_attr('strides')}, dilations={operation.get_attr('dilations')}"
        )
    return vertical


def _padding(operation, shape, sides):
    """Return the padding of an operation's inputs: [before, after] of each axis."""
    padding = [[0, 0]]
    for size, side, stride in zip(shape[1:3], sides, operation.get_attr("strides")[1:3]):
        total = 0
        if operation.get_attr("padding") == b"SAME":
            total = max((-(-size // stride) - 1) * stride + side - size, 0)
        padding.append([total // 2, total - total // 2])
    return [*padding, [0, 0]]


def _windows(padded, sides, stride, extents):
    """Return, for each position of a window in row-major order, its values in all windows: [n, h, w, c]."""
    ends = [(extent - 1) * stride + 1 for extent in extents]
    return [
        padded[:, row : row + ends[0] : stride, column : column + ends[1] : stride]
        for row in range(sides[0])
        for column in range(sides[1])
    ]


def _crop(values, padding, shape):
    return tf.slice(values, [before for before, _ in padding], shape)


PORTABLE = {
    "Conv2D": conv2d_gradients,
    "MaxPool": max_pool_gradient,
    "Relu": relu_gradient,
    "StridedSlice": strided_slice_gradient,
    "Tile": tile_gradient,
}
for _name, _function in PORTABLE.items():
    tf.RegisterGradient(PREFIX + _name)(_function)


def erf(values: tf.Tensor) -> tf.Tensor:
    """Return the error function of float32 values within 4e-7, as a quotient of two polynomials.

    Reference: the coefficients of XLA for float32 (openxla/xla).
    """
    values = tf.clip_by_value(values, -ERF_IS_ONE, ERF_IS_ONE)
    squared = tf.square(values)
    numerator, denominator = (tf.math.polyval([*each], squared) for each in (ERF_NUMERATOR, ERF_DENOMINATOR))
    return values * numerator / denominator
