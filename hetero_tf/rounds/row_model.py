"""Row models: Keras models that read their values from the rows of a matrix, for one client or for several at once."""

import functools
import math
from collections.abc import Collection
from dataclasses import dataclass

import keras
import tensorflow as tf

from hetero_tf.base.graph_random import hash_key
from hetero_tf.layers.stacked.forms import is_leading, to_channels, to_leading
from hetero_tf.models.variables import carried, is_seed, is_table, tracked


@dataclass(frozen=True)
class RowShape:
    """The values of one client in a row: the trainable ones, then its carried ones.

    Attributes:
        learned: Number of trainable variables among them.
    """

    shapes: tuple[tuple[int, ...], ...]
    learned: int

    @property
    def sizes(self) -> list[int]:
        """Number of values of each variable."""
        return list(map(math.prod, self.shapes))

    @property
    def parameters(self) -> int:
        """Number of trainable values."""
        return sum(self.sizes[: self.learned])


@dataclass(frozen=True)
class RowModel:
    """A model on one route, and the positions of its values in the rows of its clients.

    Attributes:
        model: Keras model for one client, or its batched form built with `clients=K`.
        shapes: Shapes of one client's trainable values, then its carried ones, in model order.
        positions: For each of them its position among the client's values, which may be wider.
    """

    model: keras.Model
    clients: int
    shapes: tuple[tuple[int, ...], ...]
    positions: tuple[int, ...]

    def call(
        self,
        values: list[tf.Tensor],
        full_shapes: tuple[tuple[int, ...], ...],
        key: tf.Tensor,
        inputs: tf.Tensor,
        features: bool = False,
    ) -> tuple[list[tf.Tensor], list[tuple[int, tf.Tensor]], list[tf.Tensor]]:
        """Run one training step.

        Args:
            values: The clients' values, each [K, values].
            key: int32 [K, words] for dropout.
            inputs: [K, batch, ...].
            features: Whether to return the input of the last layer too, after the logits.

        Returns:
            List of logits [K, batch, ...] in the float type of the values, one for each exit; the running statistics
            after the step: pairs of position and [K, values]; and the losses that the model adds, such as those of
            regularizers: scalars, means over the clients.
        """
        # The model's values, each [K, values], cut to its width.
        carried_at, trainable = self._indices(carried(self.model)), len(self.model.trainable_variables)
        state = self.build_state(key, carried_at)
        sub_weights = [
            crop(values[position], full_shapes[position], shape) for position, shape in zip(self.positions, self.shapes)
        ]
        # All clients' values in the variables' shapes; carried ones join the non-trainable state.
        weights = [
            _batch_value(part, shape, variable.shape)
            for part, shape, variable in zip(sub_weights, self.shapes, self.model.trainable_variables)
        ]
        for index, part, shape in zip(carried_at, sub_weights[trainable:], self.shapes[trainable:], strict=True):
            state[index] = _batch_value(part, shape, self.model.non_trainable_variables[index].shape)
        model = self._model_with_features if features else self.model
        outputs, state, losses = model.stateless_call(
            weights, state, self._to_model_inputs(inputs), training=True, return_losses=True
        )
        # Move the client axis first: statistics [K, values], logits [K, batch, ...]. Constants do not change.
        running = set(self._indices(tracked(self.model)))
        new_statistics = [
            (position, _unbatch_value(state[index], shape, self.clients))
            for position, index, shape in zip(self.positions[trainable:], carried_at, self.shapes[trainable:])
            if index in running
        ]
        outputs = outputs if isinstance(outputs, list) else [outputs]
        logits = [
            self._to_clients(tf.cast(value, values[0].dtype), spec) for value, spec in zip(outputs, model.outputs)
        ]
        penalties = [tf.reduce_sum(tf.cast(loss, values[0].dtype)) / self.clients for loss in losses]
        return logits, new_statistics, penalties

    @functools.cached_property
    def _model_with_features(self):
        """The model that also returns the input of its last layer; it has the variables of `model`, in their order."""
        outputs = self.model.outputs
        return keras.Model(self.model.inputs, [*outputs, outputs[-1]._keras_history.operation.input])

    def _indices(self, variables):
        """Return the indices of these variables among the model's non-trainable ones."""
        paths = {variable.path for variable in variables}
        return [index for index, v in enumerate(self.model.non_trainable_variables) if v.path in paths]

    def _to_clients(self, logits, spec):
        if self.clients == 1:
            return logits[None]
        return logits if is_leading(spec.shape, self.clients) else to_leading(logits, self.clients)

    def _to_model_inputs(self, inputs):
        """Arrange inputs for the model: those of one client, clients first, or clients in the channels."""
        if self.clients == 1:
            return inputs[0]
        is_leading_model = self.model.inputs[0].shape[0] == self.clients
        return inputs if is_leading_model else to_channels(inputs, self.clients)

    def build_state(self, key: tf.Tensor, caller_indices: Collection[int] = ()) -> list[tf.Tensor | None]:
        """Build the non-trainable values of one step: seeds of dropout from `key`, tables, zeros for all others.

        Args:
            key: int32 [K, words], one for each client.
            caller_indices: Positions of values that the caller sets; they are None in the result.
        """
        variables, caller_indices = self.model.non_trainable_variables, set(caller_indices)
        sites = [index for index, variable in enumerate(variables) if is_seed(variable)]
        state = [
            None if index in caller_indices else _unset_value(variable) for index, variable in enumerate(variables)
        ]
        if not sites:
            return state
        # One hash for all seeds: the number of operations bounds a narrow model.
        tiled = tf.tile(tf.constant(sites)[None, :, None], [self.clients, 1, 1])
        words = tf.concat([tf.repeat(key[:, None], len(sites), axis=1), tiled], 2)
        bits = tf.bitwise.right_shift(hash_key(words, 2), tf.constant(1, tf.uint32))
        for site, seed in zip(sites, tf.unstack(bits, axis=1)):
            # Each layer gets the seeds of all K clients in the shape of its generator's state.
            state[site] = tf.reshape(tf.cast(seed, variables[site].dtype), variables[site].shape)
        return state


def _unset_value(variable):
    """Return the value of a variable that neither the clients nor a key set."""
    return tf.convert_to_tensor(variable) if is_table(variable) else tf.zeros(variable.shape, variable.dtype)


def _batch_value(part, shape, shape_of_all):
    """Combine the values of K clients into one variable of the batched model.

    Args:
        part: [K, values].
        shape_of_all: Shape of the model's variable: clients on the first axis, or side by side on the last axis.
    """
    if part.shape[0] == 1 or len(shape_of_all) > len(shape):
        return tf.reshape(part, shape_of_all)
    # [K, values] -> [..., K * channels]: the clients side by side on the last axis.
    channels_last = tf.reshape(part, [part.shape[0], -1, shape[-1]])
    return tf.reshape(tf.transpose(channels_last, [1, 0, 2]), shape_of_all)


def _unbatch_value(value, shape, clients):
    """Invert `_batch_value`: [K, values]."""
    if clients > 1 and len(value.shape) == len(shape):
        value = tf.transpose(tf.reshape(value, [-1, clients, shape[-1]]), [1, 0, 2])
    return tf.reshape(value, [clients, math.prod(shape)])


def crop(part: tf.Tensor, wide: tuple[int, ...], narrow: tuple[int, ...]) -> tf.Tensor:
    """Return the first coordinates of a variable: [K, values] of shape `wide` to [K, values] of shape `narrow`."""
    if math.prod(wide) == math.prod(narrow):
        return part
    if len(wide) == 1:
        return tf.slice(part, [0, 0], [-1, *narrow])
    value = tf.reshape(part, [-1, *wide])
    return tf.reshape(tf.slice(value, [0] * value.shape.rank, [-1, *narrow]), [part.shape[0], math.prod(narrow)])


def pad_to(part: tf.Tensor, narrow: tuple[int, ...], wide: tuple[int, ...]) -> tf.Tensor:
    """Pad the result of `crop`, [K, values] of shape `narrow`, with zeros at all other coordinates of `wide`."""
    if math.prod(wide) == math.prod(narrow):
        return part
    paddings = [[0, 0], *([0, full - first] for first, full in zip(narrow, wide))]
    if len(wide) == 1:
        return tf.pad(part, paddings)
    return tf.reshape(tf.pad(tf.reshape(part, [-1, *narrow]), paddings), [part.shape[0], math.prod(wide)])
