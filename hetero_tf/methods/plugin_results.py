"""Checks the results of plug-ins: the tensors of a graph when TensorFlow traces them, and the records of the host."""

import functools
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from hetero_tf.base import registry
from hetero_tf.base.errors import InputError

# The form of the results of functions that run in the graph, from the arguments without options: tensors or
# `tf.TensorSpec`. Results of other functions are not tensors, or checked elsewhere.
FORMS: dict[str, Callable] = {
    "apply": lambda old, mean, coverage, slots, **others: (old, slots),
    "correct": lambda weights, **others: weights,
    "counts": lambda weights, *others: tf.TensorSpec(weights.shape, tf.bool),
    "couple": lambda losses, *others: losses[-1],
    "loss": lambda outputs, *others, **shares: tf.TensorSpec(outputs.shape[:-1], outputs.dtype),
    "mask": lambda weights, *others, **state: weights,
    "remember": lambda memory, *others: memory,
    "step": lambda weights, gradients, slots, *others: (weights, tuple(slots)),
    "update": lambda weights, *others: weights,
}


def function_of(kind: str, plugin: Any, name: str | None = None) -> Callable:
    """Return a function of a plug-in with the recipe's options, which checks results that have a form in `FORMS`.

    Args:
        plugin: `recipe.schema.Plugin`: its name and options.
        name: Name of the function, or None for the main one of the kind.
    """
    name = name or registry.EXPORTS[kind]
    function = getattr(registry.find(kind, plugin.name), name)
    if name not in FORMS:
        return functools.partial(function, **plugin.options)
    return bind(kind, plugin, function, FORMS[name])


def bind(kind: str, plugin: Any, function: Callable, expected: Callable) -> Callable:
    """Return a function of a plug-in with the recipe's options, and a check of its result.

    Without the check, a result of another shape is broadcast, or TensorFlow fails later without naming the plug-in.

    Args:
        plugin: `recipe.schema.Plugin`: its name and options.
        function: A function of its module.
        expected: Has the parameters of the function except the options, and returns tensors or `tf.TensorSpec` in the
            form of its result.

    Raises:
        InputError: Raised by the returned function: the result has another structure, shape or type.
    """

    def bound(*args, **kwargs):
        result, form = function(*args, **kwargs, **plugin.options), expected(*args, **kwargs)
        if not _has_form(result, form):
            raise InputError(
                f"{plugin.name} ({kind}): `{function.__name__}` must return {_describe(form)}. "
                f"Received: {_describe(result)}"
            )
        return result

    return bound


def check_record(kind: str, name: str, result: Any, expected: type) -> None:
    """Check the class of a record that a plug-in returns.

    Raises:
        InputError: The result is another object.
    """
    if not isinstance(result, expected):
        raise InputError(
            f"{name} ({kind}): the result must be of the class {expected.__name__}. Received: {_describe(result)}"
        )


def _has_form(result, form):
    if isinstance(form, tuple):
        is_sequence = isinstance(result, tuple | list) and len(result) == len(form)
        return is_sequence and all(map(_has_form, result, form))
    return tf.is_tensor(result) and result.dtype == form.dtype and result.shape.is_compatible_with(form.shape)


def _describe(value):
    """Describe tensors by type and shape, and other objects by their class: "(float32 [3, 786], None)"."""
    if isinstance(value, tuple | list):
        return f"({', '.join(map(_describe, value))})"
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        return f"{tf.as_dtype(value.dtype).name} {list(value.shape)}"
    return "None" if value is None else f"an object of {type(value).__name__}"
