"""TransformerBlock: an encoder layer with post-norm or pre-norm."""

import keras
import tensorflow as tf

from hetero_tf.base.constraints import Epsilon, Positive, Share, Size
from hetero_tf.layers.dropout import Dropout
from hetero_tf.layers.gelu import GELU, Form
from hetero_tf.layers.scaler import Scaler
from hetero_tf.layers.self_attention import SelfAttention
from hetero_tf.layers.stacked import keras_layer
from hetero_tf.layers.stacked.dense import LowRank
from hetero_tf.layers.stacked.forms import FloatInputs, SameShape


@keras.saving.register_keras_serializable("hetero_tf")
class TransformerBlock(SameShape, FloatInputs):
    """Self-attention and a two-layer network, each added to its input.

    `x = norm1(x + dropout(attention(x)))`, then
    `x = norm2(x + dropout(scaler(contract(dropout(gelu(scaler(expand(x))))))))`. With `norm_first` the norms come
    before attention and network instead, `x = x + dropout(attention(norm1(x)))` and likewise, as in a ViT.

    Args:
        heads: Number of heads, equal at every level.
        head_width: Size of one head.
        hidden: Units between the two dense layers.
        dropout: Share of activations set to zero in training.
        norm_first: Whether the norms come before attention and network (pre-norm) instead of after the sums.
        epsilon: Positive float, added to the variance by the norms.
        gelu_form: Form of GELU: exact, as in PyTorch's ViTs; tanh, as in Google's.
        lora_rank: Rank of an adapter on each of the six products with a kernel; only adapters are then trained (see
            `LoraDense`). None: no adapters, and all weights are trained.
        lora_scale: Factor of the adapters' outputs, equal at every level.

    Dense kernels start normal with standard deviation 0.02.
    Input and output shape: `(batch, positions, width)`; with several clients a leading axis of clients.
    Reference: Vaswani et al. 2017 (arXiv 1706.03762), as in the HeteroFL authors' code; norms first as in Dosovitskiy
    et al. 2021 (arXiv 2010.11929); adapters as in Hu et al. 2021 (arXiv 2106.09685).
    """

    GEOMETRY = {
        "inputs": "tokens",
        "outputs": "inputs",
        "weights": "4 * (channels * heads * head_width + (lora_rank or 0) * (channels + heads * head_width))"
        " + 2 * (channels * hidden + (lora_rank or 0) * (channels + hidden))",
        "hidden": "positions * (heads * (3 * head_width + positions) + 2 * hidden + channels)",
        "attends": True,
    }

    def __init__(
        self,
        heads: Size,
        head_width: Size,
        hidden: Size,
        dropout: Share = 0.0,
        norm_first: bool = False,
        epsilon: Epsilon = 1e-5,
        gelu_form: Form = "exact",
        lora_rank: Size | None = None,
        lora_scale: Positive = 1.0,
        scale: float = 1.0,
        clients: int = 1,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.heads = heads
        self.head_width = head_width
        self.hidden = hidden
        self.dropout = dropout
        self.norm_first = norm_first
        self.epsilon = epsilon
        self.gelu_form = gelu_form
        self.lora_rank = lora_rank
        self.lora_scale = lora_scale
        self.scale = scale
        self.clients = clients
        self.attention = SelfAttention(
            heads, head_width, lora_rank, lora_scale, scale, clients, name="attention", dtype=self.dtype_policy
        )
        policy = {"dtype": self.variable_dtype}
        norm = keras_layer("LayerNormalization", clients)
        self.norm1 = norm(epsilon=epsilon, name="norm1", **policy)
        self.norm2 = norm(epsilon=epsilon, name="norm2", **policy)
        self.gelu = GELU(gelu_form, name="gelu", **policy)
        self.scaling = Scaler(scale, name="scaler", **policy)
        self.drops = [Dropout(dropout, clients, name=f"dropout{index}", **policy) for index in range(3)]

    def build(self, input_shape: tuple) -> None:
        def dense(units, name):
            normal = keras.initializers.RandomNormal(stddev=0.02)
            make = keras_layer("Dense", self.clients, mixed=self.compute_dtype != self.variable_dtype)
            return make(units, kernel_initializer=normal, name=name, dtype=self.dtype_policy)

        self.expand, self.contract = dense(self.hidden, "expand"), dense(input_shape[-1], "contract")
        wide = (*input_shape[:-1], self.hidden)
        for layer in (self.attention, self.norm1, self.norm2, self.expand, self.drops[0], self.drops[2]):
            layer.build(input_shape)
        for layer in (self.contract, self.drops[1]):
            layer.build(wide)
        self.adapters: dict[str, LowRank] = {}
        if self.lora_rank is not None:
            for layer in (self.norm1, self.norm2, self.expand, self.contract):
                layer.trainable = False
            self._adapter("expand", self.hidden, self.lora_rank, input_shape)
            self._adapter("contract", input_shape[-1], self.lora_rank, wide)

    def _adapter(self, name, units, rank, input_shape):
        options = {"name": f"{name}_lora", "dtype": self.dtype_policy}
        channels = input_shape[-1:]
        self.adapters[name] = LowRank(channels, (units,), rank, self.lora_scale, self.clients, **options)
        self.adapters[name].build(input_shape)

    def _dense(self, name, inputs):
        """Return the outputs of a dense layer, plus those of its adapter."""
        outputs = getattr(self, name)(inputs)
        return outputs + tf.cast(self.adapters[name](inputs), outputs.dtype) if self.adapters else outputs

    def call(self, inputs: tf.Tensor, training: bool | None = False) -> tf.Tensor:
        mode = {"training": training}

        def attended(value):
            return self.drops[0](self.attention(value, **mode), **mode)

        def processed(value):
            hidden = self.drops[1](self.gelu(self.scaling(self._dense("expand", value), **mode)), **mode)
            return self.drops[2](self.scaling(self._dense("contract", hidden), **mode), **mode)

        for norm, part in ((self.norm1, attended), (self.norm2, processed)):
            inputs = inputs + part(norm(inputs)) if self.norm_first else norm(inputs + part(inputs))
        return inputs
