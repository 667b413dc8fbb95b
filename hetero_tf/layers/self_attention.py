"""SelfAttention: multi-head attention whose projections are scaled."""

import keras
import tensorflow as tf

from hetero_tf.layers.scaler import Scaler


@keras.saving.register_keras_serializable("hetero_tf")
class SelfAttention(keras.layers.Layer):
    """Multi-head self-attention with a Scaler behind each of its four projections.

    The kernels have an axis for the heads, so that cutting `head_width` keeps the first coordinates of every
    head. No attention mask and no dropout on the attention weights.

    Args:
        heads: Number of heads, the same at every level.
        head_width: Size of one head.
        scale: Relative width, supplied by the model builder (see `Scaler`).

    Kernels start uniform in +-1/sqrt(fan_in), biases at zero.
    Input and output shape: `(batch, positions, width)`.
    Reference: Vaswani et al. 2017 (arXiv 1706.03762), as in the HeteroFL authors' code.
    """

    def __init__(self, heads: int, head_width: int, scale: float = 1.0, **kwargs):
        super().__init__(**kwargs)
        self.heads = heads
        self.head_width = head_width
        self.scale = scale
        self.scaling = Scaler(scale, name="scaler", dtype=self.dtype_policy)

    def build(self, input_shape):
        width, split = input_shape[-1], (self.heads, self.head_width)
        for name in ("query", "key", "value"):
            self._project(name, (width, *split), split, fan_in=width)
        self._project("output", (*split, width), (width,), fan_in=self.heads * self.head_width)

    def _project(self, name, kernel, bias, fan_in):
        bound = fan_in**-0.5
        uniform = keras.initializers.RandomUniform(-bound, bound)
        setattr(self, f"{name}_kernel", self.add_weight(shape=kernel, initializer=uniform, name=f"{name}_kernel"))
        setattr(self, f"{name}_bias", self.add_weight(shape=bias, initializer="zeros", name=f"{name}_bias"))

    def call(self, inputs, training=False):
        def heads_of(name):
            value = tf.einsum("npe,ehd->nhpd", inputs, tf.convert_to_tensor(getattr(self, f"{name}_kernel")))
            bias = tf.convert_to_tensor(getattr(self, f"{name}_bias"))
            return self.scaling(value + bias[:, None, :], training=training)

        query, key, value = heads_of("query"), heads_of("key"), heads_of("value")
        scores = tf.matmul(query, key, transpose_b=True) * self.head_width**-0.5
        mixed = tf.matmul(tf.nn.softmax(scores), value)
        outputs = tf.einsum("nhpd,hde->npe", mixed, tf.convert_to_tensor(self.output_kernel))
        return self.scaling(outputs + tf.convert_to_tensor(self.output_bias), training=training)

    def compute_output_shape(self, input_shape):
        return input_shape

    def get_config(self):
        return {**super().get_config(), "heads": self.heads, "head_width": self.head_width, "scale": self.scale}
