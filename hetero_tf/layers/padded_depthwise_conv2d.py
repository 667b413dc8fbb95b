"""PaddedDepthwiseConv2D: depthwise convolution with the padding of `PaddedConv2D`."""

import keras
import tensorflow as tf

from hetero_tf.base.constraints import FixedSize, OddSize
from hetero_tf.layers.stacked.forms import strided_map


@keras.saving.register_keras_serializable("hetero_tf")
class PaddedDepthwiseConv2D(keras.layers.Layer):
    """2D convolution with one kernel per channel, (kernel_size - 1) / 2 zeros on every side, no bias.

    Channels are independent, so several clients can be computed together without further support.

    Args:
        kernel_size: Odd side length of the square kernels.
        stride: Stride in both directions.

    The kernel, `(kernel_size, kernel_size, channels)`, starts uniform in +-1/kernel_size (PyTorch's default).
    Input shape: `(batch, height, width, channels)`. Output shape: `(batch, ceil(height / stride),
    ceil(width / stride), channels)`.
    """

    GEOMETRY = {
        "inputs": "map",
        "outputs": "(-(-rows // stride), -(-columns // stride), channels)",
        "weights": "kernel_size**2 * channels",
    }

    def __init__(self, kernel_size: OddSize = 3, stride: FixedSize = 1, **kwargs):
        super().__init__(**kwargs)
        self.kernel_size = kernel_size
        self.stride = stride

    def build(self, input_shape: tuple) -> None:
        bound = 1 / self.kernel_size
        self.kernel = self.add_weight(
            shape=(self.kernel_size, self.kernel_size, input_shape[-1]),
            initializer=keras.initializers.RandomUniform(-bound, bound),
            name="kernel",
        )

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        stride, side = self.stride, (self.kernel_size - 1) // 2
        if stride > 1:
            inputs = tf.pad(inputs, [[0, 0], [side, side], [side, side], [0, 0]])
        kernel = tf.expand_dims(tf.convert_to_tensor(self.kernel), -1)
        return tf.nn.depthwise_conv2d(inputs, kernel, [1, stride, stride, 1], "SAME" if stride == 1 else "VALID")

    def compute_output_shape(self, input_shape: tuple) -> tuple:
        return strided_map(input_shape, self.stride, input_shape[-1])
