"""PaddedConv2D: convolution padded equally on both sides, with the initial values of PyTorch."""

import functools

import keras
import tensorflow as tf

from hetero_tf.base.constraints import FixedSize, OddSize, Size
from hetero_tf.layers.fast_conv2d import FORMS, MAX_PATCHES, conv2d_by_patches, fastest_form, patch_bytes
from hetero_tf.layers.stacked.forms import strided_map


@keras.saving.register_keras_serializable("hetero_tf")
class PaddedConv2D(keras.layers.Layer):
    """2D convolution with (kernel_size - 1) / 2 zeros on every side, at every stride.

    Keras' "same" pads unequally at stride 2 on even sizes, so results would differ from PyTorch's.

    Args:
        filters: Output channels.
        kernel_size: Odd side length of the square kernel.
        stride: Stride in both directions.
        use_bias: Whether to add a bias per channel.
        clients: Number of clients computed together, supplied by the model builder: the number of groups.

    Attributes:
        form: Form of training, a key of `FORMS`, or "patches", or None for a convolution of TensorFlow.

    Kernel and bias start uniform in +-1/sqrt(fan_in) (PyTorch's default).
    Input shape: `(batch, height, width, clients * channels)`. Output shape: `(batch, ceil(height / stride),
    ceil(width / stride), clients * filters)`.
    """

    HAS_PRODUCTS = True
    GEOMETRY = {
        "inputs": "map",
        "outputs": "(-(-rows // stride), -(-columns // stride), filters)",
        "weights": "kernel_size**2 * channels * filters",
    }

    def __init__(
        self,
        filters: Size,
        kernel_size: OddSize = 3,
        stride: FixedSize = 1,
        use_bias: bool = True,
        clients: int = 1,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.filters = filters
        self.kernel_size = kernel_size
        self.stride = stride
        self.use_bias = use_bias
        self.clients = clients
        self.form: str | None = None

    def build(self, input_shape: tuple) -> None:
        channels, filters = input_shape[-1] // self.clients, self.clients * self.filters
        bound = (self.kernel_size**2 * channels) ** -0.5
        uniform = keras.initializers.RandomUniform
        self.kernel = self.add_weight(
            shape=(self.kernel_size, self.kernel_size, channels, filters),
            initializer=uniform(-bound, bound),
            name="kernel",
        )
        self._map_size = input_shape[1:3]
        if self.use_bias:
            # No cast under a mixed policy: TensorFlow sums the gradient of a bfloat16 bias in bfloat16.
            self.bias = self.add_weight(
                shape=(filters,), initializer=uniform(-bound, bound), name="bias", autocast=False
            )

    def use_fastest_form(self, batch: int | None, device: str) -> None:
        """Use the form that is fastest on a device.

        Args:
            batch: Examples of a training step, or None for training mode without gradients.
            device: "cpu" or "gpu".
        """
        if device == "gpu":
            self.form = "patches" if self.clients > 1 else None
        elif self.stride == self.clients == 1:
            self.form = fastest_form(self._map_size, self.kernel.shape, self.compute_dtype, batch)

    def call(self, inputs: tf.Tensor, training: bool | None = False) -> tf.Tensor:
        outputs = self._convolved(inputs, tf.convert_to_tensor(self.kernel), training)
        if not self.use_bias:
            return outputs
        bias = tf.convert_to_tensor(self.bias)
        return tf.nn.bias_add(tf.cast(outputs, bias.dtype), bias)

    def _convolved(self, inputs, kernel, training):
        if training and self.form in FORMS:
            return FORMS[self.form](inputs, kernel)
        if training and self.form == "patches" and patch_bytes(inputs, kernel, self.stride) <= MAX_PATCHES:
            return conv2d_by_patches(inputs, kernel, self.stride, self.clients)
        stride, side = self.stride, (self.kernel_size - 1) // 2
        if side == 0 and stride > 1:
            # TensorFlow 2.21 writes out of bounds in the gradient of a strided 1x1 convolution (oneDNN, two threads in
            # one kernel). Dropping the unread positions first gives the same convolution.
            inputs, stride = _subsampled(inputs, stride) if training else inputs[:, ::stride, ::stride], 1
        if stride > 1:
            inputs = tf.pad(inputs, [[0, 0], [side, side], [side, side], [0, 0]])
        # "SAME" pads equally at stride 1 and needs no copy of the inputs.
        padding = "SAME" if stride == 1 else "VALID"
        return grouped_conv2d(inputs, kernel, stride, padding, self.clients)

    def compute_output_shape(self, input_shape: tuple) -> tuple:
        return strided_map(input_shape, self.stride, self.clients * self.filters)


def _subsampled(inputs, stride):
    """Return `inputs[:, ::stride, ::stride]`: a strided slice and its gradient take 7 % of a narrow ResNet's step."""
    height, width, channels = inputs.shape[1:]
    if height is None or width is None or height % stride or width % stride:
        return inputs[:, ::stride, ::stride]
    rows, columns = height // stride, width // stride
    tiles = tf.reshape(inputs, [-1, rows, stride, columns, stride * channels])
    return tf.reshape(tf.slice(tiles, [0] * 5, [-1, rows, 1, columns, channels]), [-1, rows, columns, channels])


def grouped_conv2d(inputs: tf.Tensor, kernel: tf.Tensor, stride: int, padding: str, groups: int) -> tf.Tensor:
    """Return `tf.nn.conv2d` of each group of channels with its kernels; see `groups_work`."""
    if groups == 1 or groups_work(inputs.dtype):
        return tf.nn.conv2d(inputs, kernel, stride, padding)
    parts = zip(tf.split(inputs, groups, -1), tf.split(kernel, groups, -1))
    return tf.concat([tf.nn.conv2d(values, kernels, stride, padding) for values, kernels in parts], -1)


@functools.lru_cache
def groups_work(dtype: tf.DType) -> bool:
    """Return True if TensorFlow has the gradient of grouped convolutions: on a CPU only with oneDNN, not in float64."""
    with tf.init_scope():
        inputs, upstream = tf.ones([1, 3, 3, 4], dtype), tf.ones([1, 3, 3, 6], dtype)
        try:
            tf.raw_ops.Conv2DBackpropFilter(
                input=inputs, filter_sizes=[3, 3, 2, 6], out_backprop=upstream, strides=[1, 1, 1, 1], padding="SAME"
            )
        except tf.errors.OpError:
            return False
    return True
