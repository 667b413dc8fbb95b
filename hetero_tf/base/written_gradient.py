"""Functions of tensors whose gradient is written out."""

import functools
from collections.abc import Callable

import tensorflow as tf
from tensorflow.python.framework import ops


def written_gradient(function: Callable) -> Callable:
    """Decorates a function whose gradient a `tf.GradientTape` or `tf.gradients` in the same graph is to take.

    Args:
        function: `(*tensors, **options) -> (results, gradient)`, with `gradient(*upstream) -> one for each tensor`;
            options have no gradient.

    Returns:
        `(*tensors, **options) -> results`.
    """

    @functools.wraps(function)
    def call(*tensors, **options):
        # The options are not among its arguments: numbers would become float32 tensors.
        results = tf.custom_gradient(lambda *tensors: function(*tensors, **options))(*tensors)
        if not tf.executing_eagerly():
            _hold(tf.nest.flatten(results)[0].op)
        return results

    return call


def _hold(operation):
    """Moves a written gradient from TensorFlow's registry to its operation, where `tf.gradients` looks first.

    The registry keeps the graph of every gradient for good: about 50 MB for each learning process. A tape has its own
    reference. Where a later TensorFlow keeps its gradients elsewhere, nothing happens and the memory stays in use.
    """
    registered = getattr(getattr(ops, "gradient_registry", None), "_registry", {})
    entry = registered.pop(operation.get_attr("_gradient_op_type").decode(), None)
    if entry is not None:
        operation._gradient_function = entry["type"]
