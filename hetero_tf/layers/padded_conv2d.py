"""PaddedConv2D: convolution padded equally on both sides, initialised as the authors' framework does."""

import keras
import tensorflow as tf


@keras.saving.register_keras_serializable("hetero_tf")
class PaddedConv2D(keras.layers.Layer):
    """2D convolution with (kernel_size - 1) / 2 zeros on every side, at every stride.

    Keras' "same" pads unequally at stride 2 on even sizes, so results would differ from PyTorch's.

    Args:
        filters: Output channels.
        kernel_size: Odd side length of the square kernel.
        stride: Step in both directions.
        use_bias: Whether to add a bias per channel.

    Kernel and bias start uniform in +-1/sqrt(fan_in), the bias too (PyTorch's default).
    Input shape: `(batch, height, width, channels)`. Output shape: `(batch, ceil(height / stride),
    ceil(width / stride), filters)`.
    """

    def __init__(self, filters: int, kernel_size: int = 3, stride: int = 1, use_bias: bool = True, **kwargs):
        super().__init__(**kwargs)
        if kernel_size % 2 == 0:
            raise ValueError(f"`kernel_size` must be odd. Received: kernel_size={kernel_size}")
        self.filters = filters
        self.kernel_size = kernel_size
        self.stride = stride
        self.use_bias = use_bias

    def build(self, input_shape):
        channels = input_shape[-1]
        bound = (self.kernel_size**2 * channels) ** -0.5
        uniform = keras.initializers.RandomUniform
        self.kernel = self.add_weight(shape=(self.kernel_size, self.kernel_size, channels, self.filters),
                                      initializer=uniform(-bound, bound), name="kernel")
        if self.use_bias:
            self.bias = self.add_weight(shape=(self.filters,), initializer=uniform(-bound, bound), name="bias")

    def call(self, inputs):
        stride, side = self.stride, (self.kernel_size - 1) // 2
        if side == 0:
            # TensorFlow 2.21 writes outside its memory in the gradient of a strided 1x1 convolution (oneDNN, two
            # threads in one kernel); dropping the unread positions first is the same convolution.
            inputs, stride = inputs[:, ::stride, ::stride], 1
        if stride > 1:
            inputs = tf.pad(inputs, [[0, 0], [side, side], [side, side], [0, 0]])
        # "SAME" pads equally at stride 1 and needs no copy of the inputs.
        outputs = tf.nn.conv2d(inputs, tf.convert_to_tensor(self.kernel), stride, "SAME" if stride == 1 else "VALID")
        return tf.nn.bias_add(outputs, tf.convert_to_tensor(self.bias)) if self.use_bias else outputs

    def compute_output_shape(self, input_shape):
        space = tuple(None if size is None else -(-size // self.stride) for size in input_shape[1:3])
        return (input_shape[0], *space, self.filters)

    def get_config(self):
        return {**super().get_config(), "filters": self.filters, "kernel_size": self.kernel_size,
                "stride": self.stride, "use_bias": self.use_bias}
