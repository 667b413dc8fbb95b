"""LSTM: long short-term memory with a separate axis for its four gates."""

import functools
from collections.abc import Callable, Sequence

import keras
import tensorflow as tf

from hetero_tf.base.constraints import Size
from hetero_tf.layers.stacked.forms import leading_shape, to_leading


class Recurrent(keras.layers.Layer):
    """A layer whose state after a position depends on its input and on the state before it.

    A subclass defines the initial bias of each gate (`BIAS`) and the number of states (`STATES`), and implements
    `step`. The recurrent product has the weights `recurrent_weights`.

    Args:
        units: Size of the state.
        return_sequences: Whether the output is the state after every position; else the last state.
    """

    BIAS: tuple[int, ...] = ()
    STATES = 1

    def __init__(self, units: int, return_sequences: bool, clients: int, **kwargs):
        super().__init__(**kwargs)
        self.units = units
        self.return_sequences = return_sequences
        self.clients = clients
        self.supports_masking = True
        self.gates = len(self.BIAS)
        self.lead = [] if clients == 1 else [clients]

    def build(self, input_shape: tuple) -> None:
        channels = leading_shape(input_shape, self.clients)[-1]
        self.kernel = self.gate_weight("kernel", channels, keras.initializers.GlorotUniform())
        self.recurrent_kernel = self.gate_weight("recurrent_kernel", self.units, keras.initializers.Orthogonal())
        self.bias = self.gate_bias("bias")
        self.recurrent_weights = [self.recurrent_kernel]

    def gate_weight(self, name: str, inputs: int, initializer: Callable) -> keras.Variable:
        """Add a kernel `(inputs, gates, units)` with the initial values of a Keras kernel `(inputs, gates * units)`."""

        def initial(shape, dtype):
            flat = initializer((inputs, self.gates * self.units), dtype=dtype)
            return tf.broadcast_to(tf.reshape(flat, shape[-3:]), shape)

        return self.add_weight(shape=(*self.lead, inputs, self.gates, self.units), initializer=initial, name=name)

    def gate_bias(self, name: str) -> keras.Variable:
        """Add a bias `(gates, units)` with the initial value of each gate."""

        def values(shape, dtype):
            return tf.broadcast_to(tf.constant(self.BIAS, dtype)[:, None], shape)

        each = [*self.lead, 1] if self.lead else []
        return self.add_weight(shape=(*each, self.gates, self.units), initializer=values, name=name)

    def flat(self, weight: keras.Variable) -> tf.Tensor:
        """Return a kernel or bias with the gates concatenated on the last axis."""
        value = tf.convert_to_tensor(weight)
        return tf.reshape(value, [*value.shape[:-2], self.gates * self.units])

    def step(
        self, recurrent: Sequence[tf.Tensor], projected: tf.Tensor, states: Sequence[tf.Tensor]
    ) -> Sequence[tf.Tensor]:
        """Return the states after a position; subclasses implement it.

        Args:
            recurrent: Weights of the recurrent product, each in the shape of `flat`.
            projected: `(..., batch, gates * units)`, the input at the position times the kernel, plus the bias.
            states: States before the position, `(..., batch, units)` each; the first one is the output.
        """
        raise NotImplementedError(f"{type(self).__name__} does not implement `step`")

    def call(self, inputs: tf.Tensor, mask: tf.Tensor | None = None, training: bool | None = False) -> tf.Tensor:
        axis = len(self.lead) + 1
        inputs = inputs if inputs.shape.rank == axis + 2 else to_leading(inputs, self.clients)
        shape = tf.shape(inputs)
        rows = tf.reshape(inputs, [*self.lead, -1, inputs.shape[-1]])
        projected = tf.matmul(rows, self.flat(self.kernel)) + self.flat(self.bias)
        projected = tf.reshape(projected, tf.concat([shape[:-1], [self.gates * self.units]], 0))
        start = (tf.zeros(tf.concat([shape[:axis], [self.units]], 0), inputs.dtype),) * self.STATES
        moves = None if mask is None else _positions_first(mask[..., None], axis)
        # Outside of the loop, which would reshape them at every position.
        recurrent = [self.flat(weight) for weight in self.recurrent_weights]

        def step(position, projected, states):
            new = self.step(recurrent, projected, states)
            # Padding keeps the states.
            return new if moves is None else tuple(map(functools.partial(tf.where, moves[position]), new, states))

        outputs, last = _loop(step, _positions_first(projected, axis), start, self.return_sequences)
        if not self.return_sequences:
            return tf.ensure_shape(last, [*inputs.shape[:axis], self.units])
        outputs = tf.transpose(outputs, [*range(1, axis + 1), 0, axis + 1])
        return tf.ensure_shape(outputs, [*inputs.shape[:-1], self.units])

    def compute_output_shape(self, input_shape: tuple) -> tuple:
        input_shape = leading_shape(input_shape, self.clients) if self.lead else input_shape
        before = input_shape[:-1] if self.return_sequences else input_shape[:-2]
        return (*before, self.units)

    def compute_mask(self, inputs: tf.Tensor, mask: tf.Tensor | None = None) -> tf.Tensor | None:
        """Return the mask if the output has positions, else None."""
        return mask if self.return_sequences else None


def _positions_first(value, axis):
    return tf.transpose(value, [axis, *range(axis), axis + 1])


def _loop(step, projected, states, keep):
    """Return all outputs, or None unless `keep`, and the last one; inputs `[positions, ..., batch, gates * units]`."""
    count, dtype = tf.shape(projected)[0], projected.dtype
    inputs = tf.TensorArray(dtype, size=count).unstack(projected)
    # Converters refuse a TensorArray without writes.
    outputs = (tf.TensorArray(dtype, size=count, element_shape=states[0].shape),) if keep else ()

    def body(position, outputs, states):
        states = step(position, inputs.read(position), states)
        return position + 1, tuple(array.write(position, states[0]) for array in outputs), states

    start, most = (tf.constant(0), outputs, states), projected.shape[0]
    _, outputs, states = tf.while_loop(lambda at, *_: at < count, body, start, maximum_iterations=most)
    return outputs[0].stack() if keep else None, states[0]


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

    BIAS, STATES = (0, 1, 0, 0), 2
    GEOMETRY = {
        "inputs": "tokens",
        "outputs": "(positions, units) if return_sequences else (units,)",
        "weights": "4 * units * (channels + units)",
        # Inputs and outputs of the gates, at every position.
        "hidden": "8 * units * positions",
    }

    def __init__(self, units: Size, return_sequences: bool = False, clients: int = 1, **kwargs):
        super().__init__(units, return_sequences, clients, **kwargs)

    def step(
        self, recurrent: Sequence[tf.Tensor], projected: tf.Tensor, states: Sequence[tf.Tensor]
    ) -> Sequence[tf.Tensor]:
        """Return the states (output, memory) after a position, see `Recurrent.step`."""
        (kernel,), (output, memory) = recurrent, states
        gates = projected + tf.matmul(output, kernel)
        enter, forget, candidate, leave = tf.split(gates, self.gates, -1)
        memory = tf.sigmoid(forget) * memory + tf.sigmoid(enter) * tf.tanh(candidate)
        return tf.sigmoid(leave) * tf.tanh(memory), memory
