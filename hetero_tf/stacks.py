"""Stacks: K clients of one level computed at once, each client's trainable values as one row of a matrix.

One row instead of dozens of variables makes an optimiser step a handful of operations, which is most of the cost of a
narrow model; several clients side by side share what is left.
"""

import math
from dataclasses import dataclass

import numpy as np
import tensorflow as tf

from hetero_tf import noise
from hetero_tf.layers.stacked.forms import is_leading, to_leading
from hetero_tf.models import all_layers, is_seed


class CannotStack(Exception):
    """A model cannot compute several clients at once; the text says why."""


@dataclass(frozen=True)
class Stack:
    """How the clients of one level are computed.

    Attributes:
        model: The level's ordinary Keras model for one client, or its twin built with `clients=K`.
        clients: K.
        shapes: Of one client's trainable values, in model order.
    """

    model: object
    clients: int
    shapes: tuple

    @property
    def sizes(self):
        """Number of values of each variable."""
        return [math.prod(shape) for shape in self.shapes]

    def pack(self, clients):
        """A list of K clients' lists of values as one matrix [K, parameters]."""
        return tf.stack([tf.concat([tf.reshape(value, [-1]) for value in values], 0) for values in clients])

    def unpack(self, row):
        """One client's row [parameters] as values in their own shapes."""
        return [tf.reshape(part, shape) for part, shape in zip(tf.split(row, self.sizes), self.shapes)]

    def call(self, matrix, state, inputs):
        """Logits [K, batch, ...] of one training step, in the float type of `matrix`.

        Args:
            matrix: [K, parameters].
            state: Non-trainable values, as `fresh_state` gives them.
            inputs: [K, batch, ...].
        """
        parts = tf.split(matrix, self.sizes, axis=1)
        values = [_side_by_side(part, shape, variable.shape)
                  for part, shape, variable in zip(parts, self.shapes, self.model.trainable_variables)]
        logits, _ = self.model.stateless_call(values, state, self._arranged(inputs), training=True)
        logits = tf.cast(logits, matrix.dtype)
        if self.clients == 1:
            return logits[None]
        leading = is_leading(self.model.outputs[0].shape, self.clients)
        return logits if leading else to_leading(logits, self.clients)

    def _arranged(self, inputs):
        """Inputs in the form of the model: one client's alone, clients first, or clients in the channels."""
        if self.clients == 1:
            return inputs[0]
        if self.model.inputs[0].shape[0] == self.clients:
            return inputs
        rank = inputs.shape.rank
        moved = tf.transpose(inputs, [*range(1, rank - 1), 0, rank - 1])
        return tf.reshape(moved, [-1, *inputs.shape[2:-1], self.clients * inputs.shape[-1]])

    def fresh_state(self, key):
        """Non-trainable values for one step: seeds of dropout from `key`, zeros for what a round throws away.

        Args:
            key: int32 [K, words], one for each client.
        """
        variables = self.model.non_trainable_variables
        sites = [place for place, variable in enumerate(variables) if is_seed(variable)]
        state = [tf.zeros(variable.shape, variable.dtype) for variable in variables]
        if not sites:
            return state
        # One hash for all of them: a narrow model is bound by the number of its operations.
        places = tf.tile(tf.constant(sites)[None, :, None], [self.clients, 1, 1])
        words = tf.concat([tf.repeat(key[:, None], len(sites), axis=1), places], 2)
        bits = tf.bitwise.right_shift(noise.hashed(words, 2), tf.constant(1, tf.uint32))
        for site, own in zip(sites, tf.unstack(bits, axis=1)):
            state[site] = tf.reshape(tf.cast(own, variables[site].dtype), variables[site].shape)
        return state


def _side_by_side(part, shape, stacked):
    """A variable of all clients as the model holds it.

    Args:
        part: [K, values].
        shape: Of one client's variable.
        stacked: Of the model's variable: clients first, or on the last axis one behind the other.
    """
    if part.shape[0] == 1 or len(stacked) > len(shape):
        return tf.reshape(part, stacked)
    rows = tf.reshape(part, [part.shape[0], -1, shape[-1]])
    return tf.reshape(tf.transpose(rows, [1, 0, 2]), stacked)


def slot(model):
    """A `Stack` of one client: the ordinary model."""
    return Stack(model, 1, _shapes(model))


def build_stack(model, build, clients):
    """A `Stack` of several clients.

    Args:
        model: The level's ordinary model.
        build: `clients -> keras.Model`, the twin.
        clients: K > 1.

    Raises:
        CannotStack: A layer has no form for several clients, shown by its shapes or by wrong numbers in a probe.
    """
    try:
        twin = build(clients)
        shapes = _shapes(model)
        for variable, own in zip(twin.trainable_variables, shapes, strict=True):
            _check_shape(variable, own, clients)
        stack = Stack(twin, clients, shapes)
        found = _probe(stack, slot(model))
    # A layer that was never meant for several clients may fail in any way; its model then still runs in slots.
    except Exception as problem:
        raise CannotStack((str(problem).strip() or repr(problem)).splitlines()[0]) from problem
    if not found:
        raise CannotStack("several clients at once give other numbers than one by one")
    return stack


def _shapes(model):
    return tuple(tuple(variable.shape) for variable in model.trainable_variables)


def _check_shape(variable, own, clients):
    """Whether a twin's variable holds K clients' values in one of the two known ways."""
    shape = tuple(variable.shape)
    first = shape[:1] == (clients,) and len(shape) > len(own) and math.prod(shape) == clients * math.prod(own)
    last = len(own) > 0 and shape == (*own[:-1], clients * own[-1])
    if not first and not last:
        raise ValueError(f"the variable {variable.path} has shape {shape}, which is not that of {clients} clients "
                         f"with {own} each")


def _probe(stack, alone):
    """Runs two examples of random numbers through both; compares logits and gradients client by client."""
    rng = np.random.default_rng(0)
    # Each result of a bfloat16 product is off by up to 0.4 %, and sums in another order round to the next one.
    mixed = any(layer.compute_dtype == "bfloat16" for layer in all_layers(stack.model))
    tolerance = 5e-2 if mixed else 1e-2
    dtype = stack.model.trainable_variables[0].dtype
    matrix = tf.constant(rng.normal(0, 0.1, (stack.clients, sum(stack.sizes))), dtype)
    inputs, key = _probe_inputs(stack.clients, alone.model, rng), tf.reshape(tf.range(3 * stack.clients), [-1, 3])
    logits, slope = _slope(stack, matrix, inputs, key)
    for client in range(stack.clients):
        own = slice(client, client + 1)
        for found, wanted in zip((logits[own], slope[own]), _slope(alone, matrix[own], inputs[own], key[own])):
            if not np.allclose(found, wanted, rtol=tolerance, atol=tolerance * np.max(np.abs(wanted))):
                return False
    return True


def _probe_inputs(clients, model, rng):
    """[clients, 2, ...] random inputs of an ordinary model; three positions where their number varies."""
    spec = model.inputs[0]
    shape = (clients, 2, *[3 if size is None else size for size in spec.shape[1:]])
    whole = spec.dtype.startswith("int")
    return tf.constant(rng.integers(0, 2, shape) if whole else rng.normal(size=shape), spec.dtype)


@tf.autograph.experimental.do_not_convert
def _slope(stack, matrix, inputs, key):
    """Logits, and the gradient of the sum of their squares."""
    with tf.GradientTape() as tape:
        tape.watch(matrix)
        logits = stack.call(matrix, stack.fresh_state(key), inputs)
        total = tf.reduce_sum(logits**2)
    return logits.numpy(), tape.gradient(total, matrix).numpy()
