"""Routed models: Keras models whose values come out of the rows of a matrix, for one client or for several at once."""

import math
from dataclasses import dataclass

import numpy as np
import tensorflow as tf

from hetero_tf.base.graph_random import hashed
from hetero_tf.layers.stacked.forms import is_leading, to_leading
from hetero_tf.models.variables import is_seed, tracked, values


@dataclass(frozen=True)
class RoutedModel:
    """A model on one route, and where its values lie among those of a client.

    Attributes:
        model: Keras model for one client, or its twin built with `clients=K`.
        clients: K.
        shapes: Of one client's trainable values, and behind them its running statistics, in model order.
        places: For each of them its position among the client's values, which may be wider.
    """

    model: object
    clients: int
    shapes: tuple
    places: tuple

    def call(self, parts, wide, key, inputs):
        """One training step.

        Args:
            parts: The clients' values, each [K, values].
            wide: Their shapes.
            key: int32 [K, words] for dropout.
            inputs: [K, batch, ...].

        Returns:
            List of logits [K, batch, ...] in the float type of the parts, one for each exit; and the running
            statistics after the step: pairs of place and [K, values].
        """
        state, learned = self.fresh_state(key), len(self.model.trainable_variables)
        own = [_narrowed(parts[place], wide[place], shape) for place, shape in zip(self.places, self.shapes)]
        learned_values = [
            _side_by_side(part, shape, variable.shape)
            for part, shape, variable in zip(own, self.shapes, self.model.trainable_variables)
        ]
        moving = {id(variable) for variable in tracked(self.model)}
        running = [place for place, v in enumerate(self.model.non_trainable_variables) if id(v) in moving]
        for place, part, shape in zip(running, own[learned:], self.shapes[learned:]):
            state[place] = _side_by_side(part, shape, state[place].shape)
        outputs, state = self.model.stateless_call(learned_values, state, self._arranged(inputs), training=True)
        moved = [_apart(state[place], shape, self.clients) for place, shape in zip(running, self.shapes[learned:])]
        outputs = outputs if isinstance(outputs, list) else [outputs]
        logits = [
            self._of_clients(tf.cast(value, parts[0].dtype), spec) for value, spec in zip(outputs, self.model.outputs)
        ]
        return logits, list(zip(self.places[learned:], moved))

    def _of_clients(self, logits, spec):
        if self.clients == 1:
            return logits[None]
        return logits if is_leading(spec.shape, self.clients) else to_leading(logits, self.clients)

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
        """Non-trainable values for one step: seeds of dropout from `key`, zeros for what a step throws away.

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
        bits = tf.bitwise.right_shift(hashed(words, 2), tf.constant(1, tf.uint32))
        for site, own in zip(sites, tf.unstack(bits, axis=1)):
            state[site] = tf.reshape(tf.cast(own, variables[site].dtype), variables[site].shape)
        return state


def check_twin(net, alone):
    """Refuses a twin whose variables do not hold so many clients' values in one of the two known ways.

    Args:
        net: `RoutedModel` of K clients.
        alone: `RoutedModel` of one client on the same route.

    Raises:
        ValueError: Names the first such variable.
    """
    for variable, own in zip(values(net.model), alone.shapes, strict=True):
        shape, clients = tuple(variable.shape), net.clients
        first = shape[:1] == (clients,) and len(shape) > len(own) and math.prod(shape) == clients * math.prod(own)
        last = len(own) > 0 and shape == (*own[:-1], clients * own[-1])
        if not (first or last):
            raise ValueError(
                f"the variable {variable.path} has shape {shape}, which is not that of {clients} clients "
                f"with {own} each"
            )


def _narrowed(part, shape, own):
    """The first coordinates of a variable: [K, values] of `shape` to [K, values] of `own`."""
    if math.prod(shape) == math.prod(own):
        return part
    whole = tf.reshape(part, [-1, *shape])
    return tf.reshape(tf.slice(whole, [0] * whole.shape.rank, [-1, *own]), [part.shape[0], math.prod(own)])


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


def _apart(value, shape, clients):
    """What `_side_by_side` has put together: [K, values]."""
    if clients > 1 and len(value.shape) == len(shape):
        value = tf.transpose(tf.reshape(value, [-1, clients, shape[-1]]), [1, 0, 2])
    return tf.reshape(value, [clients, int(np.prod(shape))])
