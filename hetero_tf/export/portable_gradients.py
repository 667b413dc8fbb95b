"""Gradients of a graph that LiteRT runs by its built-in operations alone.

TensorFlow's own gradients of convolutions, pooling, slices and ReLU are operations of their own, such as
Conv2DBackpropFilter, which LiteRT does not have. The gradients here say the same by operations that it has. All shapes
must be static.
"""

from collections.abc import Callable

import tensorflow as tf

PREFIX = "HeteroTFPortable"


def gradients(function: Callable, values: list[tf.Tensor]) -> tuple[tf.Tensor, list[tf.Tensor], list]:
    """Calls `function(values) -> (loss, others)` inside a graph that is being traced.

    Returns:
        The loss, its gradient in each of the values (zeros where it does not depend on one), and the others.
    """
    # A tape would not look at the map.
    with tf.compat.v1.get_default_graph().gradient_override_map({name: PREFIX + name for name in PORTABLE}):
        loss, others = function(values)
    found = tf.gradients(loss, values, unconnected_gradients=tf.UnconnectedGradients.ZERO)
    return loss, [tf.convert_to_tensor(gradient) for gradient in found], others


def of_relu(operation: tf.Operation, upstream: tf.Tensor) -> tf.Tensor:
    """Gradient of Relu."""
    return upstream * tf.cast(operation.outputs[0] > 0, upstream.dtype)


def of_bias_add(operation: tf.Operation, upstream: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Gradients of BiasAdd, whose bias has the last axis."""
    return upstream, tf.reduce_sum(upstream, list(range(upstream.shape.rank - 1)))


def of_convolution(operation: tf.Operation, upstream: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Gradients of Conv2D without groups: inputs [n, height, width, c], kernel [rows, columns, c, filters]."""
    inputs, kernel = operation.inputs
    rows, columns, channels, filters = kernel.shape
    if channels != inputs.shape[-1]:
        raise NotImplementedError(
            f"a convolution in groups cannot be trained on the device. Received: {inputs.shape[-1] // channels} groups"
        )
    stride, padding = _stride(operation), _padding(operation, inputs.shape, (rows, columns))
    # One product of all windows that the kernel has seen: [rows * columns * c, n * h * w] by [n * h * w, filters].
    windows = _windows(tf.pad(inputs, padding), (rows, columns), stride, upstream.shape[1:3])
    seen = tf.reshape(tf.concat(windows, -1), [-1, rows * columns * channels])
    for_kernel = tf.matmul(seen, tf.reshape(upstream, [-1, filters]), transpose_a=True)
    padded = [size + before + after for size, (before, after) in zip(inputs.shape, padding)]
    for_inputs = _transposed(upstream, kernel, padded, stride)
    return _cropped(for_inputs, padding, inputs.shape), tf.reshape(for_kernel, kernel.shape)


def _transposed(upstream, kernel, shape, stride):
    """The gradient of a VALID convolution in its inputs; positions behind the last window have none."""
    reached = [(size - 1) * stride + side for size, side in zip(upstream.shape[1:3], kernel.shape[:2])]
    found = tf.nn.conv2d_transpose(upstream, kernel, [shape[0], *reached, shape[3]], stride, "VALID")
    return tf.pad(found, [[0, 0], *([0, full - size] for full, size in zip(shape[1:3], reached)), [0, 0]])


def of_depthwise_convolution(operation: tf.Operation, upstream: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Gradients of DepthwiseConv2dNative: inputs [n, height, width, c], kernel [rows, columns, c, 1]."""
    inputs, kernel = operation.inputs
    rows, columns, channels, multiplier = kernel.shape
    if multiplier != 1:
        raise NotImplementedError(
            f"a depthwise convolution must have one kernel for each channel. Received: {multiplier} kernels"
        )
    stride, padding = _stride(operation), _padding(operation, inputs.shape, (rows, columns))
    windows = _windows(tf.pad(inputs, padding), (rows, columns), stride, upstream.shape[1:3])
    for_kernel = tf.stack([tf.reduce_sum(window * upstream, [0, 1, 2]) for window in windows])
    # The kernel turned by half a circle over the spread gradient.
    spread = _spread(_spread(upstream, 1, stride), 2, stride)
    around = [[0, 0], [rows - 1, rows - 1], [columns - 1, columns - 1], [0, 0]]
    turned = tf.reverse(kernel, [0, 1])
    found = tf.nn.depthwise_conv2d(tf.pad(spread, around), turned, [1, 1, 1, 1], "VALID")
    padded = [size + before + after for size, (before, after) in zip(inputs.shape, padding)]
    found = tf.pad(found, [[0, full - size] for full, size in zip(padded, found.shape)])
    return _cropped(found, padding, inputs.shape), tf.reshape(for_kernel, kernel.shape)


def of_max_pool(operation: tf.Operation, upstream: tf.Tensor) -> tf.Tensor:
    """Gradient of MaxPool whose windows lie side by side; the first of a window's largest values gets all of it."""
    inputs, pooled = operation.inputs[0], operation.outputs[0]
    size, padding = _pool(operation, inputs.shape)
    padded = tf.pad(inputs, padding, constant_values=inputs.dtype.min)
    parts, free = [], tf.ones_like(pooled)
    for window in _windows(padded, (size, size), size, pooled.shape[1:3]):
        hit = free * tf.cast(tf.equal(window, pooled), pooled.dtype)
        parts.append(hit * upstream)
        free -= hit
    return _tiled(parts, size, padding, inputs.shape)


def of_average_pool(operation: tf.Operation, upstream: tf.Tensor) -> tf.Tensor:
    """Gradient of AvgPool whose windows lie side by side and inside the inputs."""
    shape = operation.inputs[0].shape
    size, padding = _pool(operation, shape)
    if any(before or after for before, after in padding):
        raise NotImplementedError(f"average pooling must not pad. Received: inputs {shape}, windows of {size}")
    return _tiled([upstream / size**2] * size**2, size, padding, shape)


def _pool(operation, shape):
    """(side of the windows, padding) of a pooling operation."""
    size, stride = operation.get_attr("ksize"), operation.get_attr("strides")
    if size != stride or size[1] != size[2]:
        raise NotImplementedError(
            f"pooling must have square windows side by side to be trained on the device. Received: {size=}, {stride=}"
        )
    return size[1], _padding(operation, shape, size[1:3])


def _tiled(parts, size, padding, shape):
    """Puts what belongs to each place of the windows, each [n, h, w, c], side by side: [n, height, width, c]."""
    count, height, width, channels = parts[0].shape
    rows = [tf.stack(parts[row * size : (row + 1) * size], 3) for row in range(size)]
    # [n, h, size, w, size, c]
    whole = tf.reshape(tf.stack(rows, 2), [count, height * size, width * size, channels])
    padded = [extent + before + after for extent, (before, after) in zip(shape, padding)]
    # A VALID window never reaches the last positions where the size does not divide their number.
    whole = tf.pad(whole, [[0, max(full - extent, 0)] for full, extent in zip(padded, whole.shape)])
    return _cropped(whole, padding, shape)


def of_strided_slice(operation: tf.Operation, upstream: tf.Tensor) -> tuple:
    """Gradient of StridedSlice with constant positions and positive strides."""
    shape = operation.inputs[0].shape
    ranges = _ranges(operation, shape)
    # Axes that the slice has dropped or made come back, or go.
    found = tf.reshape(upstream, [len(taken) for taken in ranges])
    for axis, (taken, size) in enumerate(zip(ranges, shape)):
        if len(taken) < size:
            found = _spread(found, axis, taken.step)
            room = [taken.start, size - taken.start - found.shape[axis]]
            found = tf.pad(found, [room if other == axis else [0, 0] for other in range(len(shape))])
    return found, None, None, None


def _ranges(operation, shape):
    """The positions that a StridedSlice takes of each axis of its input."""
    masks = {name: operation.get_attr(f"{name}_mask") for name in ("begin", "ellipsis", "new_axis", "shrink_axis")}
    begins, strides = (tf.get_static_value(operation.inputs[index]).tolist() for index in (1, 3))
    # The end may be computed; how many positions are taken stands in the shape of the output.
    counts, kept = list(operation.outputs[0].shape), len(begins) - masks["new_axis"].bit_count()
    ranges: list[range] = []
    for place, (begin, stride) in enumerate(zip(begins, strides)):
        bit = {name for name, mask in masks.items() if mask >> place & 1}
        if "ellipsis" in bit:
            ranges += [range(counts.pop(0)) for _ in range(len(shape) - kept + 1)]
        elif "new_axis" in bit:
            counts.pop(0)
        else:
            count = 1 if "shrink_axis" in bit else counts.pop(0)
            if stride < 0:
                raise NotImplementedError(
                    f"a slice must not go backwards to be trained on the device. Received: {strides=}"
                )
            size = shape[len(ranges)]
            begin = 0 if "begin" in bit and "shrink_axis" not in bit else begin + size * (begin < 0)
            begin = max(begin, 0)
            ranges.append(range(begin, begin + count * stride, stride))
    return ranges + [range(count) for count in counts]


def _spread(values, axis, stride):
    """Puts stride - 1 zeros between the positions of an axis."""
    if stride == 1:
        return values
    before, size, behind = values.shape[:axis], values.shape[axis], values.shape[axis + 1 :]
    gaps = [[0, 0]] * (axis + 1) + [[0, stride - 1]] + [[0, 0]] * len(behind)
    apart = tf.pad(tf.reshape(values, [*before, size, 1, *behind]), gaps)
    whole = tf.reshape(apart, [*before, size * stride, *behind])
    return tf.slice(whole, [0] * whole.shape.rank, [*before, (size - 1) * stride + 1, *behind])


def _stride(operation):
    _, vertical, horizontal, _ = operation.get_attr("strides")
    if vertical != horizontal or set(operation.get_attr("dilations")) != {1}:
        raise NotImplementedError(
            "a convolution must have one stride and no dilation to be trained on the device. "
            f"Received: strides={operation.get_attr('strides')}, dilations={operation.get_attr('dilations')}"
        )
    return vertical


def _padding(operation, shape, sides):
    """What an operation pads its inputs by: [[before, after]] of each axis."""
    found = [[0, 0]]
    for size, side, stride in zip(shape[1:3], sides, operation.get_attr("strides")[1:3]):
        total = 0
        if operation.get_attr("padding") == b"SAME":
            total = max((-(-size // stride) - 1) * stride + side - size, 0)
        found.append([total // 2, total - total // 2])
    return [*found, [0, 0]]


def _windows(padded, sides, stride, extents):
    """For each place of a window, row by row, the values at that place of all windows: [n, h, w, c]."""
    ends = [(extent - 1) * stride + 1 for extent in extents]
    return [
        padded[:, row : row + ends[0] : stride, column : column + ends[1] : stride]
        for row in range(sides[0])
        for column in range(sides[1])
    ]


def _cropped(values, padding, shape):
    return tf.slice(values, [before for before, _ in padding], shape)


PORTABLE = {
    "AvgPool": of_average_pool,
    "BiasAdd": of_bias_add,
    "Conv2D": of_convolution,
    "DepthwiseConv2dNative": of_depthwise_convolution,
    "MaxPool": of_max_pool,
    "Relu": of_relu,
    "StridedSlice": of_strided_slice,
}
for _name, _function in PORTABLE.items():
    tf.RegisterGradient(PREFIX + _name)(_function)
