"""Probes: short runs on random values that test whether a model meets the assumptions of a round."""

import math

import keras
import numpy as np
import tensorflow as tf

from hetero_tf.models.variables import all_layers, values
from hetero_tf.rounds.client_block import ClientBlock
from hetero_tf.rounds.row_model import RowModel


def first_line(error: Exception) -> str:
    """Return the first line of an exception's message; its type if the message is empty."""
    return (str(error).strip() or repr(error)).splitlines()[0]


def check_block(block: ClientBlock, single: ClientBlock, checked: set[keras.Model]) -> None:
    """Refuse a block whose results differ from those of each client's single model.

    Args:
        block: Block of several clients.
        single: Model of one client of the same level.
        checked: Batched models that were checked in blocks of other levels; those of this block are added.

    Raises:
        ValueError: A layer has no batched form: its shapes or its numbers are wrong.
        Exception: A layer fails in its own way.
    """
    for stage, ordinary in zip(block.stages, single.stages, strict=True):
        for batched_model, model in zip(stage.joint.models, ordinary.joint.models, strict=True):
            check_variables(batched_model, model)
    for number, stage in enumerate(block.stages):
        models = {row_model.model for row_model in stage.joint.models}
        if not models <= checked:
            if not is_equivalent(block, single, number):
                raise ValueError("several clients at once give other numbers than one by one")
            checked |= models


def check_variables(batched_model: RowModel, single: RowModel) -> None:
    """Refuse a batched model whose variables do not hold the values of K clients in one of the two known layouts.

    Args:
        batched_model: Model of K clients.
        single: Model of one client on the same route.

    Raises:
        ValueError: Names the first such variable.
    """
    clients = batched_model.clients
    for variable, single_shape in zip(values(batched_model.model), single.shapes, strict=True):
        shape = tuple(variable.shape)
        # Clients are on a new first axis, or side by side on the last axis.
        first = shape[:1] == (clients,) and len(shape) > len(single_shape)
        first = first and math.prod(shape) == clients * math.prod(single_shape)
        last = len(single_shape) > 0 and shape == (*single_shape[:-1], clients * single_shape[-1])
        if not (first or last):
            raise ValueError(
                f"the variable {variable.path} has shape {shape}, which is not that of {clients} clients "
                f"with {single_shape} each"
            )


def is_equivalent(block: ClientBlock, single: ClientBlock, stage: int) -> bool:
    """Return whether a block computes each client's logits and gradients like its single model, on two examples."""
    rng, model = np.random.default_rng(0), single.stages[stage].joint.models[0].model
    # A bfloat16 product is off by up to 0.4 %, and sums in another order may round to the next value.
    mixed = any(layer.compute_dtype == "bfloat16" for layer in all_layers(model))
    tolerance = 5e-2 if mixed else 1e-2
    dtype = model.trainable_variables[0].dtype
    matrix = tf.constant(rng.normal(0, 0.1, (block.clients, sum(block.sizes))), dtype)
    inputs, key = _random_inputs(block.clients, model, rng), tf.reshape(tf.range(3 * block.clients), [-1, 3])
    # Logits and gradients [K, ...] of all clients at once, then of each client.
    batched = _logits_and_gradients(block, stage, matrix, inputs, key)
    for client in range(block.clients):
        one = slice(client, client + 1)
        expected_of_client = _logits_and_gradients(single, stage, matrix[one], inputs[one], key[one])
        for actual_value, expected in zip(batched, expected_of_client, strict=True):
            if not np.allclose(actual_value[one], expected, rtol=tolerance, atol=tolerance * np.max(np.abs(expected))):
                return False
    return True


def _random_inputs(clients, model, rng):
    """Return random inputs [clients, 2, ...] of a single-client model; three positions if their number varies."""
    spec = model.inputs[0]
    shape = (clients, 2, *[3 if size is None else size for size in spec.shape[1:]])
    whole_numbers = spec.dtype.startswith("int")
    return tf.constant(rng.integers(0, 2, shape) if whole_numbers else rng.normal(size=shape), spec.dtype)


@tf.autograph.experimental.do_not_convert
def _logits_and_gradients(block, stage, matrix, inputs, key):
    """Return the logits of each output, and the gradient of the sum of their squares, each [K, ...]."""
    with tf.GradientTape() as tape:
        tape.watch(matrix)
        outputs, _ = block.stages[stage].joint.call(matrix, key, inputs)
        total = tf.add_n([tf.reduce_sum(logits**2) for logits in outputs])
    return [*(logits.numpy() for logits in outputs), tape.gradient(total, matrix).numpy()]
