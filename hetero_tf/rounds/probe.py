"""Probes: short runs on random numbers that show whether a model computes what a round assumes of it."""

import math

import numpy as np
import tensorflow as tf

from hetero_tf.models.variables import all_layers, values
from hetero_tf.rounds.client_block import ClientBlock
from hetero_tf.rounds.row_model import RowModel


def first_line(problem: Exception) -> str:
    """The first line of what an exception says; its type where it says nothing."""
    return (str(problem).strip() or repr(problem)).splitlines()[0]


def check_stack(stack: ClientBlock, alone: ClientBlock) -> None:
    """Refuses a stack that does not compute for each client what the client's own model computes.

    Args:
        stack: Of several clients.
        alone: Of one client of the same level.

    Raises:
        ValueError: A layer has no form for several clients, shown by its shapes or by wrong numbers.
        Exception: A layer fails in its own way.
    """
    for stage, ordinary in zip(stack.stages, alone.stages, strict=True):
        for twin, model in zip(stage.models, ordinary.models, strict=True):
            check_twin(twin, model)
    if not all(computes_alike(stack, alone, stage) for stage in range(len(alone.stages))):
        raise ValueError("several clients at once give other numbers than one by one")


def check_twin(twin: RowModel, alone: RowModel) -> None:
    """Refuses a twin whose variables do not hold the values of its K clients in one of the two known ways.

    Args:
        twin: Of K clients.
        alone: Of one client on the same route.

    Raises:
        ValueError: Names the first such variable.
    """
    clients = twin.clients
    for variable, single in zip(values(twin.model), alone.shapes, strict=True):
        shape = tuple(variable.shape)
        first = shape[:1] == (clients,) and len(shape) > len(single)
        first = first and math.prod(shape) == clients * math.prod(single)
        last = len(single) > 0 and shape == (*single[:-1], clients * single[-1])
        if not (first or last):
            raise ValueError(
                f"the variable {variable.path} has shape {shape}, which is not that of {clients} clients "
                f"with {single} each"
            )


def computes_alike(stack: ClientBlock, alone: ClientBlock, stage: int) -> bool:
    """Whether a stack gives each client the logits and gradients of its own model, on two random examples."""
    rng, model = np.random.default_rng(0), alone.stages[stage].models[0].model
    # Each result of a bfloat16 product is off by up to 0.4 %, and sums in another order round to the next one.
    mixed = any(layer.compute_dtype == "bfloat16" for layer in all_layers(model))
    tolerance = 5e-2 if mixed else 1e-2
    dtype = model.trainable_variables[0].dtype
    matrix = tf.constant(rng.normal(0, 0.1, (stack.clients, sum(stack.sizes))), dtype)
    inputs, key = _random_inputs(stack.clients, model, rng), tf.reshape(tf.range(3 * stack.clients), [-1, 3])
    together = _logits_and_gradients(stack, stage, matrix, inputs, key)
    for client in range(stack.clients):
        one = slice(client, client + 1)
        wanted = _logits_and_gradients(alone, stage, matrix[one], inputs[one], key[one])
        for found, expected in zip(together, wanted, strict=True):
            if not np.allclose(found[one], expected, rtol=tolerance, atol=tolerance * np.max(np.abs(expected))):
                return False
    return True


def _random_inputs(clients, model, rng):
    """[clients, 2, ...] random inputs of an ordinary model; three positions where their number varies."""
    spec = model.inputs[0]
    shape = (clients, 2, *[3 if size is None else size for size in spec.shape[1:]])
    whole_numbers = spec.dtype.startswith("int")
    return tf.constant(rng.integers(0, 2, shape) if whole_numbers else rng.normal(size=shape), spec.dtype)


@tf.autograph.experimental.do_not_convert
def _logits_and_gradients(stack, stage, matrix, inputs, key):
    """Logits of each output, and the gradient of the sum of their squares, each [K, ...]."""
    with tf.GradientTape() as tape:
        tape.watch(matrix)
        outputs, _ = stack.call(matrix, key, inputs, stage)
        total = tf.add_n([tf.reduce_sum(logits**2) for logits in outputs])
    return [*(logits.numpy() for logits in outputs), tape.gradient(total, matrix).numpy()]
