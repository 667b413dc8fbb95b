"""LoraDense: a frozen dense layer with a trained low-rank adapter."""

import keras
import tensorflow as tf

from hetero_tf.base.constraints import Positive, Size
from hetero_tf.layers.stacked import keras_layer
from hetero_tf.layers.stacked.dense import LowRank
from hetero_tf.layers.stacked.forms import leading_shape


@keras.saving.register_keras_serializable("hetero_tf")
class LoraDense(keras.layers.Layer):
    """`dense(x) + lora_scale * (x @ a) @ b`, of which only `a` and `b` are trained.

    Args:
        units: Number of outputs.
        lora_rank: Columns of `a` and rows of `b`; with `!w` a narrow level has the first of them.
        lora_scale: Alpha / rank of the global model in the paper's notation, equal at every level.

    Kernel and bias are constants, `dense/kernel` and `dense/bias`, with the initial values of Dense with
    `fan_in_uniform`.
    Input shape: `(..., channels)`. Output shape: `(..., units)`; with several clients a leading axis of clients.
    Reference: LoRA (Hu et al. 2021, arXiv 2106.09685).
    """

    HAS_PRODUCTS = True
    GEOMETRY = {"outputs": "(*leading, units)", "weights": "channels * units + lora_rank * (channels + units)"}

    def __init__(self, units: Size, lora_rank: Size, lora_scale: Positive = 1.0, clients: int = 1, **kwargs):
        super().__init__(**kwargs)
        self.units = units
        self.lora_rank = lora_rank
        self.lora_scale = lora_scale
        self.clients = clients
        dense = keras_layer("Dense", clients, mixed=self.compute_dtype != self.variable_dtype)
        uniform = keras.initializers.VarianceScaling(1 / 3, "fan_in", "uniform")
        self.dense = dense(units, kernel_initializer=uniform, name="dense", dtype=self.dtype_policy)

    def build(self, input_shape: tuple) -> None:
        self.dense.build(input_shape)
        self.dense.trainable = False
        channels = leading_shape(input_shape, self.clients)[-1:] if self.clients > 1 else input_shape[-1:]
        adapter = {"name": "lora", "dtype": self.dtype_policy}
        self.lora = LowRank(channels, (self.units,), self.lora_rank, self.lora_scale, self.clients, **adapter)
        self.lora.build(input_shape)

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        outputs = self.dense(inputs)
        return outputs + tf.cast(self.lora(inputs), outputs.dtype)

    def compute_output_shape(self, input_shape: tuple) -> tuple:
        return self.dense.compute_output_shape(input_shape)
