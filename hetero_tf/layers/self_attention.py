"""SelfAttention: multi-head self-attention with scaled projections."""

import math

import keras
import tensorflow as tf

from hetero_tf.base.constraints import Positive, Size
from hetero_tf.layers.scaler import Scaler
from hetero_tf.layers.stacked.dense import LowRank
from hetero_tf.layers.stacked.forms import SameShape, client_axes


@keras.saving.register_keras_serializable("hetero_tf")
class SelfAttention(SameShape):
    """Multi-head self-attention with a Scaler after each of its four projections.

    The kernels have an axis for the heads, so cutting `head_width` keeps the first coordinates of every head. The layer
    has neither an attention mask nor dropout on the attention weights.

    Args:
        heads: Number of heads, equal at every level.
        head_width: Size of one head.
        lora_rank: Rank of an adapter on each projection; all other weights are then constants (see `LoraDense`).
            None: no adapters.
        lora_scale: Factor of the adapters' outputs, equal at every level.

    Kernels start uniform in +-1/sqrt(fan_in), biases at zero.
    Input and output shape: `(batch, positions, width)`. With several clients inputs, outputs and kernels have a
    leading axis, `(clients, ...)`; biases are `(clients, 1, ...)`.
    Reference: Vaswani et al. 2017 (arXiv 1706.03762), as in the HeteroFL authors' code.
    """

    HAS_PRODUCTS = True
    GEOMETRY = {
        "inputs": "tokens",
        "outputs": "inputs",
        "weights": "4 * (channels * heads * head_width + (lora_rank or 0) * (channels + heads * head_width))",
        # Queries, keys and values, and a score for each pair of positions.
        "hidden": "positions * heads * (3 * head_width + positions)",
        "attends": True,
    }

    def __init__(
        self,
        heads: Size,
        head_width: Size,
        lora_rank: Size | None = None,
        lora_scale: Positive = 1.0,
        scale: float = 1.0,
        clients: int = 1,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.heads = heads
        self.head_width = head_width
        self.lora_rank = lora_rank
        self.lora_scale = lora_scale
        self.scale = scale
        self.clients = clients
        self.scaling = Scaler(scale, name="scaler", dtype=self.dtype_policy)

    def build(self, input_shape: tuple) -> None:
        width, split = input_shape[-1], (self.heads, self.head_width)
        self.adapters: dict[str, LowRank] = {}
        for name in ("query", "key", "value"):
            self._projection(name, (width,), split)
        self._projection("output", split, (width,))

    def _projection(self, name, channels, outputs):
        fan_in = math.prod(channels)
        one, each = client_axes(self.clients), client_axes(self.clients, 1)
        uniform = keras.initializers.RandomUniform(-(fan_in**-0.5), fan_in**-0.5)
        options = {"trainable": self.lora_rank is None}
        kernel = self.add_weight(
            shape=(*one, *channels, *outputs), initializer=uniform, name=f"{name}_kernel", **options
        )
        bias = self.add_weight(shape=(*each, *outputs), initializer="zeros", name=f"{name}_bias", **options)
        setattr(self, f"{name}_kernel", kernel)
        setattr(self, f"{name}_bias", bias)
        if self.lora_rank is not None:
            adapter = {"name": f"{name}_lora", "dtype": self.dtype_policy}
            self.adapters[name] = LowRank(channels, outputs, self.lora_rank, self.lora_scale, self.clients, **adapter)
            self.adapters[name].build((*one, None, fan_in))

    def call(self, inputs: tf.Tensor, training: bool | None = False) -> tf.Tensor:
        shape, lead, size = tf.shape(inputs), [] if self.clients == 1 else [self.clients], self.head_width
        axis = len(lead) + 1
        before = range(axis)
        rows = tf.reshape(inputs, [*lead, -1, inputs.shape[-1]])
        # One product of concatenated kernels costs less than three small products.
        split = self._project(rows, ("query", "key", "value"), lead, training)
        # [..., positions, 3, heads, head width] becomes three tensors [..., heads, positions, head width].
        split = tf.reshape(split, tf.concat([shape[:-1], [3, self.heads, size]], 0))
        query, key, value = tf.unstack(tf.transpose(split, [axis + 1, *before, axis + 2, axis, axis + 3]))
        scores = tf.cast(tf.matmul(query, key, transpose_b=True), self.variable_dtype) * size**-0.5
        mixed = tf.matmul(tf.cast(tf.nn.softmax(scores), value.dtype), value)
        # Back to [..., positions, heads, head width].
        mixed = tf.transpose(mixed, [*before, axis + 1, axis, axis + 2])
        outputs = self._project(tf.reshape(mixed, [*lead, -1, self.heads * size]), ("output",), lead, training)
        return tf.reshape(outputs, shape)

    def _project(self, rows, names, lead, training):
        """Return the scaled projections of `(..., rows, width)`, concatenated on the last axis."""

        def concatenated(kind, inputs):
            parts = [tf.convert_to_tensor(getattr(self, f"{name}_{kind}")) for name in names]
            return tf.concat([tf.reshape(part, [*lead, inputs, -1]) for part in parts], -1)

        outputs = tf.matmul(rows, concatenated("kernel", rows.shape[-1])) + concatenated("bias", 1)
        if self.adapters:
            outputs += tf.concat([self.adapters[name](rows) for name in names], -1)
        return self.scaling(outputs, training=training)
