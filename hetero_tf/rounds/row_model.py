"""Routed models: Keras models whose values come out of the rows of a matrix, for one client or for several at once."""

import math
from collections.abc import Collection
from dataclasses import dataclass

import keras
import tensorflow as tf

from hetero_tf.base.graph_random import hashed
from hetero_tf.layers.stacked.forms import is_leading, to_leading
from hetero_tf.models.variables import carried, is_seed, tracked
from hetero_tf.rounds.global_row import narrowed


@dataclass(frozen=True)
class RowModel:
    """A model on one route, and where its values lie in the rows of its clients.

    Attributes:
        model: Keras model for one client, or its twin built with `clients=K`.
        clients: K.
        shapes: Of one client's trainable values, and behind them its carried ones, in model order.
        positions: For each of them its position among the client's values, which may be wider.
    """

    model: keras.Model
    clients: int
    shapes: tuple[tuple[int, ...], ...]
    positions: tuple[int, ...]

    def call(
        self, parts: list[tf.Tensor], wide: tuple[tuple[int, ...], ...], key: tf.Tensor, inputs: tf.Tensor
    ) -> tuple[list[tf.Tensor], list[tuple[int, tf.Tensor]]]:
        """Runs one training step.

        Args:
            parts: The clients' values, each [K, values].
            wide: Their shapes.
            key: int32 [K, words] for dropout.
            inputs: [K, batch, ...].

        Returns:
            List of logits [K, batch, ...] in the float type of the parts, one for each exit; and the running
            statistics after the step: pairs of position and [K, values].
        """
        # The model's values, each [K, values], cut to its width.
        carried_at, trainable = self._indices(carried(self.model)), len(self.model.trainable_variables)
        state = self.fresh_state(key, carried_at)
        sub_weights = [
            narrowed(parts[position], wide[position], shape) for position, shape in zip(self.positions, self.shapes)
        ]
        # All clients' values in the variables' shapes; carried ones join the non-trainable state.
        weights = [
            _side_by_side(part, shape, variable.shape)
            for part, shape, variable in zip(sub_weights, self.shapes, self.model.trainable_variables)
        ]
        for index, part, shape in zip(carried_at, sub_weights[trainable:], self.shapes[trainable:], strict=True):
            state[index] = _side_by_side(part, shape, self.model.non_trainable_variables[index].shape)
        outputs, state = self.model.stateless_call(weights, state, self._arranged(inputs), training=True)
        # Back to clients first: statistics [K, values], logits [K, batch, ...]. Constants stay as they are.
        running = set(self._indices(tracked(self.model)))
        moved = [
            (position, _apart(state[index], shape, self.clients))
            for position, index, shape in zip(self.positions[trainable:], carried_at, self.shapes[trainable:])
            if index in running
        ]
        outputs = outputs if isinstance(outputs, list) else [outputs]
        logits = [
            self._of_clients(tf.cast(value, parts[0].dtype), spec) for value, spec in zip(outputs, self.model.outputs)
        ]
        return logits, moved

    def _indices(self, variables):
        """Where some of the model's non-trainable variables stand among all of them."""
        wanted = {id(variable) for variable in variables}
        return [index for index, v in enumerate(self.model.non_trainable_variables) if id(v) in wanted]

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

    def fresh_state(self, key: tf.Tensor, given: Collection[int] = ()) -> list[tf.Tensor | None]:
        """Non-trainable values for one step: seeds of dropout from `key`, zeros for all others.

        Args:
            key: int32 [K, words], one for each client.
            given: Positions of values that the caller has; None stands there.
        """
        variables, given = self.model.non_trainable_variables, set(given)
        sites = [index for index, variable in enumerate(variables) if is_seed(variable)]
        state = [
            None if index in given else tf.zeros(variable.shape, variable.dtype)
            for index, variable in enumerate(variables)
        ]
        if not sites:
            return state
        # One hash for all of them: a narrow model is bound by the number of its operations.
        tiled = tf.tile(tf.constant(sites)[None, :, None], [self.clients, 1, 1])
        words = tf.concat([tf.repeat(key[:, None], len(sites), axis=1), tiled], 2)
        bits = tf.bitwise.right_shift(hashed(words, 2), tf.constant(1, tf.uint32))
        for site, seed in zip(sites, tf.unstack(bits, axis=1)):
            state[site] = tf.reshape(tf.cast(seed, variables[site].dtype), variables[site].shape)
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
    channels_last = tf.reshape(part, [part.shape[0], -1, shape[-1]])
    return tf.reshape(tf.transpose(channels_last, [1, 0, 2]), stacked)


def _apart(value, shape, clients):
    """What `_side_by_side` has put together: [K, values]."""
    if clients > 1 and len(value.shape) == len(shape):
        value = tf.transpose(tf.reshape(value, [-1, clients, shape[-1]]), [1, 0, 2])
    return tf.reshape(value, [clients, math.prod(shape)])
