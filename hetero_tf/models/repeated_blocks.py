"""Repeated blocks: what a deep model has several times over is one function of the graph, traced once."""

import collections
import functools
from collections.abc import Callable, Hashable
from typing import Any

import keras
import tensorflow as tf

from hetero_tf.models.variables import all_layers, is_seed, kind_of

# From so many blocks of a kind in one model on, a function takes less time to trace than it costs.
REPEATED = 4


def call_by_functions(model: keras.Model, functions: dict[Hashable, Callable]) -> keras.Model:
    """Makes the repeated blocks of a model train by a function for each kind of them; returns the model.

    A block is a layer with layers inside. Blocks are of one kind where their arguments and their variables' shapes are
    the same. What a block computes does not change.

    Args:
        model: A model that is trained by `stateless_call`.
        functions: The functions of kinds that are known; models that share them trace each kind once.
    """
    blocks = [layer for layer in model.layers if layer.variables and next(iter(all_layers(layer)), None) is not None]
    kinds = {id(block): kind_of(block) for block in blocks}
    counts = collections.Counter(kinds.values())
    for block in blocks:
        kind = kinds[id(block)]
        if counts[kind] >= REPEATED:
            function = functions.setdefault(kind, _function(block, block.call))
            block.call = functools.partial(_call, block, block.call, function)
            block.by_function = True
    return model


def _call(block, call, function, *args: Any, **kwargs: Any) -> tf.Tensor:
    """The call of a block: by its function in a training step of a graph, else as the layer has it."""
    if len(args) != 1 or kwargs != {"training": True} or tf.executing_eagerly():
        return call(*args, **kwargs)
    outputs, changed = function([tf.convert_to_tensor(variable) for variable in block.variables], *args)
    for position, value in changed.items():
        block.variables[int(position)].assign(value)
    return outputs


def _function(block, call):
    """`(values of the variables, inputs) -> (outputs, {position of a variable: its value after the call})`."""

    def computed(values, inputs):
        # Nobody asks for the gradient of what is not trained; a function would compute it nevertheless.
        values = [
            value if variable.trainable else tf.stop_gradient(value)
            for variable, value in zip(block.variables, values, strict=True)
        ]
        with keras.StatelessScope(list(zip(block.variables, values))) as scope:
            outputs = call(inputs, training=True)
        after = [scope.get_current_value(variable) for variable in block.variables]
        changed = {
            str(position): new
            for position, (variable, old, new) in enumerate(zip(block.variables, values, after))
            if new is not old and not is_seed(variable)
        }
        return outputs, changed

    # TensorFlow puts a copy in every place before the first round. Were it kept as a call, all that its gradient
    # mentions would be held, even what it needs only the shape of: three times as much.
    return tf.function(computed, autograph=False)
