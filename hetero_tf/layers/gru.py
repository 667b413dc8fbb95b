"""GRU: gated recurrent unit with a separate axis for its three gates."""

from collections.abc import Sequence

import keras
import tensorflow as tf

from hetero_tf.base.constraints import Size
from hetero_tf.layers.lstm import Recurrent


@keras.saving.register_keras_serializable("hetero_tf")
class GRU(Recurrent):
    """Gated recurrent unit, equal to `keras.layers.GRU` (`reset_after=True`) with kernels and biases in another shape.

    The kernel is `(inputs, 3, units)`, the recurrent kernel `(units, 3, units)`, the bias and the recurrent bias
    `(3, units)`; the gates are update, reset and candidate, as in Keras. Cutting `units` keeps the first units of
    every gate.

    Args:
        units: Size of the state.
        return_sequences: Whether the output is the state after every position; else the last state.

    Initial values are those of Keras: the kernel Glorot uniform, the recurrent kernel orthogonal, both biases 0.
    Positions that the mask of `Embedding` marks as padding do not change the state.
    Shapes: see `LSTM`.
    Reference: Cho et al. 2014 (arXiv 1406.1078), in the form of cuDNN, which resets after the product.
    """

    BIAS = (0, 0, 0)
    GEOMETRY = {
        "inputs": "tokens",
        "outputs": "(positions, units) if return_sequences else (units,)",
        "weights": "3 * units * (channels + units)",
        # Inputs and outputs of the gates, at every position.
        "hidden": "6 * units * positions",
    }

    def __init__(self, units: Size, return_sequences: bool = False, clients: int = 1, **kwargs):
        super().__init__(units, return_sequences, clients, **kwargs)

    def build(self, input_shape: tuple) -> None:
        super().build(input_shape)
        self.recurrent_bias = self.gate_bias("recurrent_bias")
        self.recurrent_weights = [self.recurrent_kernel, self.recurrent_bias]

    def step(
        self, recurrent: Sequence[tf.Tensor], projected: tf.Tensor, states: Sequence[tf.Tensor]
    ) -> Sequence[tf.Tensor]:
        """Return the state after a position, see `Recurrent.step`."""
        (kernel, bias), (output,) = recurrent, states
        update, reset, candidate = tf.split(projected, self.gates, -1)
        recurrent_update, recurrent_reset, recurrent_candidate = tf.split(
            tf.matmul(output, kernel) + bias, self.gates, -1
        )
        update, reset = tf.sigmoid(update + recurrent_update), tf.sigmoid(reset + recurrent_reset)
        return (update * output + (1 - update) * tf.tanh(candidate + reset * recurrent_candidate),)
