"""3x3 convolutions as one matrix product per tap of the kernel."""

import itertools

import tensorflow as tf

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
