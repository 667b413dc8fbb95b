"""Tracked batch normalisation: running averages of the batch moments are part of a client's result."""

from typing import Annotated

import keras
import tensorflow as tf

from hetero_tf.base.constraints import Epsilon, Range
from hetero_tf.layers.stacked.forms import SameShape
from hetero_tf.layers.static_batch_normalization import normalize


@keras.saving.register_keras_serializable("hetero_tf")
class TrackedBatchNormalization(SameShape):
    """Batch normalisation with running averages.

    Training normalises with the moments of the batch and moves `moving_mean` and `moving_variance` (of the unbiased
    variance) towards them by a share `momentum`. Inference uses the running averages. Like weights they are results
    of training: they pass from step to step, and the server merges them.

    Args:
        epsilon: Positive float, added to the variance.
        momentum: Weight of the newest batch in a running average, in (0, 1].
        apart: Whether each width has separate running averages, whose names end in its number of channels; else
            those of a narrower model are the first entries of a wider model's.

    Attributes:
        TRACKS: Attributes of variables that training changes without a gradient.

    Input and output shape: `(batch, ..., channels)`; moments are per channel.
    Reference: Ioffe and Szegedy 2015 (arXiv 1502.03167); defaults and unbiased variance as in PyTorch.
    """

    TRACKS = ("moving_mean", "moving_variance")
    GEOMETRY = {"outputs": "inputs"}

    def __init__(
        self,
        epsilon: Epsilon = 1e-5,
        momentum: Annotated[float, Range(above=0.0, high=1.0)] = 0.1,
        apart: bool = False,
        clients: int = 1,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.epsilon = epsilon
        self.momentum = momentum
        self.apart = apart
        self.clients = clients

    def build(self, input_shape: tuple) -> None:
        shape = (input_shape[-1],)
        self.gamma = self.add_weight(shape=shape, initializer="ones", name="gamma")
        self.beta = self.add_weight(shape=shape, initializer="zeros", name="beta")
        suffix = f"_{shape[0] // self.clients}" if self.apart else ""
        self.moving_mean = self.add_weight(
            shape=shape, initializer="zeros", name=f"moving_mean{suffix}", trainable=False
        )
        self.moving_variance = self.add_weight(
            shape=shape, initializer="ones", name=f"moving_variance{suffix}", trainable=False
        )

    def call(self, inputs: tf.Tensor, training: bool | None = False) -> tf.Tensor:
        gamma, beta = tf.convert_to_tensor(self.gamma), tf.convert_to_tensor(self.beta)
        if not training:
            factor = gamma * tf.math.rsqrt(tf.convert_to_tensor(self.moving_variance) + self.epsilon)
            return inputs * factor + (beta - self.moving_mean * factor)
        outputs, mean, variance = normalize(inputs, gamma, beta, self.epsilon)
        self._move(self.moving_mean, mean)
        self._move(self.moving_variance, variance)
        return outputs

    def _move(self, variable, newest):
        variable.assign((1 - self.momentum) * tf.convert_to_tensor(variable) + self.momentum * newest)
