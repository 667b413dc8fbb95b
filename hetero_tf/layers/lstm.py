"""LSTM: long short-term memory with a separate axis for its four gates."""

from collections.abc import Sequence

import keras
import tensorflow as tf

from hetero_tf.base.constraints import Size
from hetero_tf.layers.recurrent_base import Recurrent
from hetero_tf.layers.stacked.forms import leading_shape


@keras.saving.register_keras_serializable("hetero_tf")
class LSTM(Recurrent):
    """Long short-term memory, equal to `keras.layers.LSTM` with kernels and bias in another shape.

    The kernel is `(inputs, 4, units)`, the recurrent kernel `(units, 4, units)` and the bias `(4, units)`; the gates
    are input, forget, candidate and output, as in Keras. Cutting `units` keeps the first units of every gate.

    Args:
        units: Size of the state.
        return_sequences: Whether the output is the state after every position; else the last state.

    Initial values are those of Keras: the kernel Glorot uniform, the recurrent kernel orthogonal, the bias 1 for the
    forget gate and else 0. Positions that the mask of `Embedding` marks as padding do not change the state.
    Input shape: `(batch, positions, channels)`. Output shape: `(batch, positions, units)`, or `(batch, units)`. With
    several clients outputs and kernels have a leading axis, `(clients, ...)`; the bias is `(clients, 1, ...)`; inputs
    have the channel form or the leading form.
    Reference: Hochreiter and Schmidhuber 1997 (Neural Computation 9), with the forget gate of Gers et al. 2000.
    """

    GATES, STATES = 4, 2
    GEOMETRY = {
        "inputs": "tokens",
        "outputs": "(positions, units) if return_sequences else (units,)",
        "weights": "4 * units * (channels + units)",
        # Inputs and outputs of the gates, at every position.
        "hidden": "8 * units * positions",
    }

    def __init__(self, units: Size, return_sequences: bool = False, clients: int = 1, **kwargs):
        super().__init__(units, return_sequences, clients, **kwargs)

    def build(self, input_shape: tuple) -> None:
        channels = leading_shape(input_shape, self.clients)[-1]
        self.kernel = self.gate_weight("kernel", channels, keras.initializers.GlorotUniform())
        self.recurrent_kernel = self.gate_weight("recurrent_kernel", self.units, keras.initializers.Orthogonal())
        self.bias = self.gate_bias("bias", [0, 1, 0, 0])
        self.recurrent_weights = [self.recurrent_kernel]

    def step(
        self, recurrent: Sequence[tf.Tensor], projected: tf.Tensor, states: Sequence[tf.Tensor]
    ) -> Sequence[tf.Tensor]:
        """Return the states (output, memory) after a position, see `Recurrent.step`."""
        (kernel,), (output, memory) = recurrent, states
        gates = projected + tf.matmul(output, kernel)
        enter, forget, candidate, leave = tf.split(gates, self.GATES, -1)
        memory = tf.sigmoid(forget) * memory + tf.sigmoid(enter) * tf.tanh(candidate)
        return tf.sigmoid(leave) * tf.tanh(memory), memory
