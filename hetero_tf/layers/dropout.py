"""Dropout whose draws are a function of its key: equal natively, under XLA, in exports and for batched clients."""

import random

import keras
import tensorflow as tf

from hetero_tf.base.constraints import Share
from hetero_tf.base.graph_random import bits16
from hetero_tf.layers.stacked.forms import SameShape, is_leading

STEPS = 2**16


@keras.saving.register_keras_serializable("hetero_tf")
class Dropout(SameShape):
    """In training, sets a share of the values to zero and divides the others by the remaining share.

    The draws depend only on the key, the non-trainable int32 variable `seed_generator_state`. The layer never changes
    it; training supplies a new key in every step. With rate 0 the layer has no key.

    Args:
        rate: Share of values set to zero, in [0, 1), as a multiple of 2**-16.
        clients: Number of clients computed together, supplied by the model builder; each has a row of the key.

    Input and output shape: any, equal; channel form or leading form.
    Reference: Srivastava et al. 2014 (JMLR 15).
    """

    GEOMETRY = {"outputs": "inputs"}

    def __init__(self, rate: Share, clients: int = 1, **kwargs):
        super().__init__(**kwargs)
        self.rate = rate
        self.clients = clients
        self.threshold = min(round(rate * STEPS), STEPS - 1)
        # Keras' layer draws its seed here too, so initial weights of a model are equal with either layer.
        self.first = random.randint(1, 10**9) if rate else 0

    def build(self, input_shape: tuple) -> None:
        self.leading = is_leading(input_shape, self.clients)
        if self.rate:
            shape = (2,) if self.clients == 1 else (self.clients, 2)
            self.key = self.add_weight(
                shape=shape, initializer=self._start, dtype="int32", trainable=False, name="seed_generator_state"
            )

    def _start(self, shape, dtype):
        return tf.cast(tf.broadcast_to([self.first, 0], shape), dtype)

    def call(self, inputs: tf.Tensor, training: bool | None = False) -> tf.Tensor:
        if not training or not self.threshold:
            return inputs
        mask = self.draws(inputs) >= self.threshold
        return inputs * (tf.cast(mask, inputs.dtype) * (STEPS / (STEPS - self.threshold)))

    def draws(self, inputs: tf.Tensor) -> tf.Tensor:
        """Draw integers in 0..2**16 - 1 of the shape of `inputs`; values below the threshold drop an entry."""
        channels = inputs.shape[-1] if self.clients == 1 or self.leading else inputs.shape[-1] // self.clients
        shape = tf.shape(inputs)
        rows = tf.reduce_prod(shape) // (channels * self.clients)
        bits = bits16(tf.convert_to_tensor(self.key), rows, channels)
        if self.clients > 1 and not self.leading:
            bits = tf.transpose(bits, [1, 0, 2])
        return tf.reshape(bits, shape)
