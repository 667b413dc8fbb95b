"""Dropout whose draws are a function of its key: the same natively, under XLA, when exported and in a stack."""

import random

import keras
import tensorflow as tf

from hetero_tf.base.constraints import Share
from hetero_tf.base.graph_random import bits16
from hetero_tf.layers.stacked.forms import is_leading

STEPS = 2**16


@keras.saving.register_keras_serializable("hetero_tf")
class Dropout(keras.layers.Layer):
    """While training, sets a share of the values to zero and divides the others by the share that is kept.

    The draws follow from the key alone, the non-trainable int32 variable `seed_generator_state`. The layer never
    changes it: the training supplies a new one for every step. Without a `rate` there is no key.

    Args:
        rate: Share of values set to zero, in [0, 1), as a multiple of 2**-16.
        clients: Clients computed at once, supplied by the model builder; each has its own row of the key.

    Input and output shape: any, the same; either form of a stack.
    Reference: Srivastava et al. 2014 (JMLR 15).
    """

    def __init__(self, rate: Share, clients: int = 1, **kwargs):
        super().__init__(**kwargs)
        if not 0 <= rate < 1:
            raise ValueError(f"`rate` must be in [0, 1). Received: rate={rate}")
        self.rate = rate
        self.clients = clients
        self.threshold = min(round(rate * STEPS), STEPS - 1)
        # Keras' own layer draws its seed here too: models start from the same values with either.
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
        """Whole numbers in 0..2**16 - 1 of the shape `draws_shape(inputs)`; those below the threshold drop a value."""
        channels = inputs.shape[-1] if self.clients == 1 or self.leading else inputs.shape[-1] // self.clients
        rows = tf.reduce_prod(self.draws_shape(inputs)) // (channels * self.clients)
        bits = bits16(tf.convert_to_tensor(self.key), rows, channels)
        if self.clients > 1 and not self.leading:
            bits = tf.transpose(bits, [1, 0, 2])
        return tf.reshape(bits, self.draws_shape(inputs))

    def draws_shape(self, inputs: tf.Tensor) -> tf.Tensor:
        """The shape of what is drawn, in the form of `inputs`."""
        return tf.shape(inputs)

    def compute_output_shape(self, input_shape: tuple) -> tuple:
        return input_shape
