"""Repeated blocks: equal blocks of the models of a round are one function of the graph, traced once."""

import collections
import functools
from collections.abc import Iterable
from typing import Any

import keras
import tensorflow as tf

from hetero_tf.models.variables import all_layers, is_seed, layer_signature

# With fewer equal blocks, a function costs more tracing time than it saves.
MIN_BLOCKS = 4


def call_by_functions(models: Iterable[keras.Model]) -> None:
    """Let the repeated blocks of models train by one function for each signature.

    A block is a layer with sublayers. Blocks share a function if their arguments and their variables' shapes are equal,
    also those of different models. The results of a block do not change.

    Args:
        models: All models of a round; they are trained by `stateless_call`.
    """
    blocks = dict.fromkeys(
        layer
        for model in models
        for layer in model.layers
        if layer.variables and next(iter(all_layers(layer)), None) is not None
    )
    blocks_by_signature = collections.defaultdict(list)
    for block in blocks:
        blocks_by_signature[layer_signature(block)].append(block)
    for equal_blocks in blocks_by_signature.values():
        if len(equal_blocks) >= MIN_BLOCKS:
            function = _function(equal_blocks[0], equal_blocks[0].call)
            for block in equal_blocks:
                block.call = functools.partial(_call, block, block.call, function)
                block.by_function = True


def _call(block, call, function, *args: Any, **kwargs: Any) -> tf.Tensor:
    """Call a block: by its function in a training step of a graph, else by the layer's ordinary call."""
    if len(args) != 1 or kwargs != {"training": True} or tf.executing_eagerly():
        return call(*args, **kwargs)
    outputs, changed = function([tf.convert_to_tensor(variable) for variable in block.variables], *args)
    for position, value in changed.items():
        block.variables[int(position)].assign(value)
    return outputs


def _function(block, call):
    """Return `(values of the variables, inputs) -> (outputs, {position of a variable: its value after the call})`."""

    def compute(values, inputs):
        # Stop gradients of frozen values: a tf.function would compute them even if unused.
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

    # TensorFlow inlines a copy at every call before the first round. A function that remains a call would keep all
    # inputs of its gradient in memory, even those of which only the shape is needed: three times as much.
    return tf.function(compute, autograph=False)
