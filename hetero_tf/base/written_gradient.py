"""Decorator for tensor functions with a custom gradient."""

import functools
from collections.abc import Callable

import tensorflow as tf
from tensorflow.python.framework import ops


def written_gradient(function: Callable) -> Callable:
    """Decorate a function with a custom gradient for `tf.GradientTape` and `tf.gradients` in the same graph.

    Args:
        function: `(*tensors, **options) -> (results, gradient)`, where `gradient(*upstream)` returns one gradient
            for each tensor. Options have no gradient.

    Returns:
        `(*tensors, **options) -> results`.
    """

    @functools.wraps(function)
    def call(*tensors, **options):
        # Bind the options here: as arguments, numbers would become float32 tensors.
        results = tf.custom_gradient(lambda *tensors: function(*tensors, **options))(*tensors)
        if not tf.executing_eagerly():
            _move_to_operation(tf.nest.flatten(results)[0].op)
        return results

    return call


def _move_to_operation(operation):
    """Move a custom gradient from TensorFlow's registry to its operation, which `tf.gradients` checks first.

    The registry never frees the graph of a gradient: about 50 MB for each learning process. A tape has its own
    reference. If a later TensorFlow has another registry, this does nothing and the memory is not freed.
    """
    registered = getattr(getattr(ops, "gradient_registry", None), "_registry", {})
    entry = registered.pop(operation.get_attr("_gradient_op_type").decode(), None)
    if entry is not None:
        operation._gradient_function = entry["type"]
