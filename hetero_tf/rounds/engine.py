"""Chooses the engine: clients of each sub-model are computed one by one, or several at once in a block."""

import collections
import functools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from hetero_tf.base import hardware
from hetero_tf.base.replicas import Replicas
from hetero_tf.layers.fast_conv2d import FORMS
from hetero_tf.methods.policies import round_policy
from hetero_tf.models.costs.counting import total
from hetero_tf.models.family import ModelFamily
from hetero_tf.models.variables import all_layers, is_seed, layer_signature
from hetero_tf.rounds.client_block import ClientBlock, build_client_block

# On a CPU larger blocks gain nothing: the operations are long enough. On a GPU the largest measured block is fastest.
MAX_CLIENTS, MAX_GPU_CLIENTS = 8, 20
# Multiply-adds of one product (convolution, matrix product) over a batch, on average over a forward pass, up to which
# the number of operations bounds a CPU step more than their arithmetic. Measured, see BUILD.md: blocks are 1.1 to 2.3
# times as fast below, equally fast at this cost, and slower from three times as much on.
MAX_PRODUCT_COST = 5_000_000


@dataclass(frozen=True)
class Engine:
    """The engine of a round: how its blocks are computed.

    Attributes:
        compiled: Whether XLA compiles the local training.
        reasons: One sentence for each sub-model that could have been batched and is not.
        replicas: The replicas that share the round, and the number of blocks that each has in flight.
    """

    compiled: bool
    reasons: tuple[str, ...]
    replicas: Replicas


def choose_engine(
    family: ModelFamily, label_axis: int, batch: int, replicas: Replicas
) -> tuple[Engine, list[ClientBlock]]:
    """Choose the engine of a model family and build the block of each sub-model.

    The choice depends on the arguments alone, so a resumed run repeats it.

    Args:
        label_axis: Length of the label axis that clients train.
        batch: Examples of a client's largest batch.
    """
    engine, device, blocks, reasons = family.recipe.engine, family.device, [], []
    checked: set[keras.Model] = set()
    for level, expected in expected_clients(family).items():
        share = expected / replicas.count
        clients = 1 if level in family.unbatched_levels else clients_at_once(engine, share, device, replicas.parallel)
        # Counting needs a new model, so count only when the result matters.
        if clients > 1 and engine == "auto" and device == "cpu":
            clients = clients if product_cost(family, level, label_axis, batch) <= MAX_PRODUCT_COST else 1
        block, reason = _build_block(family, level, clients, label_axis, checked)
        blocks.append(block)
        if reason is not None:
            reasons.append(f"level {level} is computed client by client: {reason}")
    # XLA compiles a step as a whole, and needs shapes that a function would compute.
    if engine == "auto" and device == "cpu":
        call_by_functions(model for block in blocks for model in block.models)
    return Engine(device == "gpu", tuple(reasons), replicas), blocks


def expected_clients(family: ModelFamily) -> dict[str, float]:
    """Return `{a level: mean clients in a round}` of each sub-model; each network of an ensemble counts as one."""
    levels, expected = family.recipe.levels, dict.fromkeys(family.submodels, 0.0)
    # With an asynchronous policy, a version of the global model has as many starts as results.
    starts = getattr(round_policy(family.recipe.round.policy), "buffer", family.recipe.round.clients)
    by_level = levels.active(starts)
    for level, submodel in zip(by_level, family.submodel_of):
        expected[family.submodels[submodel]] += by_level[level] * levels.networks_of(level)
    return expected


def clients_at_once(engine: str, expected: float, device: str, parallel: int) -> int:
    """Return the number of clients of a sub-model to compute at once, if their operations are short.

    Args:
        engine: "auto", "sequential" or "stacked".
        expected: Clients of the sub-model in a round on each replica, on average.
        device: "cpu" or "gpu".
        parallel: Stacks in flight at once on a replica.
    """
    if engine == "sequential":
        return 1
    min_clients = 1 if engine == "auto" else 2
    # On a CPU as many blocks as run in parallel: a larger block would leave a core idle.
    num_clients = round(expected) if device == "gpu" else -int(-expected // parallel)
    limit = MAX_GPU_CLIENTS if device == "gpu" else MAX_CLIENTS
    if device == "gpu" and num_clients > limit:
        # As few blocks as possible, of equal size: a full block and a small rest would leave half of the slots empty.
        num_clients = -int(-num_clients // -int(-num_clients // limit))
    return min(limit, max(min_clients, num_clients))


def product_cost(family: ModelFamily, level: str, label_axis: int, batch: int) -> float:
    """Return the mean multiply-adds of a product over a batch in a forward pass of a level's sub-model."""
    cost = total(family.forward(family.route(level), label_axis))
    return batch * cost.multiply_adds / max(cost.products, 1)


def _build_block(
    family: ModelFamily, level: str, clients: int, label_axis: int, checked: set[keras.Model]
) -> tuple[ClientBlock, str | None]:
    """Build the block of a level's clients; of one client if they cannot be batched, and then the reason."""
    single = build_client_block(family, level, 1, label_axis)
    if clients == 1:
        return single, None
    try:
        block = build_client_block(family, level, clients, label_axis)
        check_block(block, single, checked)
    # Layers without a batched form may raise anything; fall back to one client at a time.
    except Exception as error:
        return single, first_line(error)
    return block, None


def report(engine: Engine, blocks: Sequence[ClientBlock], family: ModelFamily) -> dict:
    """Return a description of the engine as a dict of plain JSON.

    Args:
        blocks: Blocks of each sub-model.

    Returns:
        {"clients_at_once": {level: clients}, "by_taps": [level], "by_winograd": [level], "by_function": [level],
        "reasons": [sentence], "compiled", "parallel" (blocks in flight), "threads" (of each kernel), "precision",
        "device", "replicas" (that share a round)}. The levels of "by_taps" and "by_winograd" train convolutions in
        these forms of `layers.fast_conv2d`; at those of "by_function" repeated blocks are one function, see
        `call_by_functions`.
    """
    block_of = {level: blocks[index] for level, index in zip(family.recipe.levels.names, family.submodel_of)}
    return {
        "clients_at_once": {level: block.clients for level, block in block_of.items()},
        **{f"by_{form}": _levels_with(block_of, "form", form) for form in FORMS},
        "by_function": _levels_with(block_of, "by_function", True),
        "reasons": list(engine.reasons),
        "compiled": engine.compiled,
        "parallel": engine.replicas.parallel,
        "threads": hardware.KERNEL_THREADS,
        "precision": family.recipe.precision,
        "device": hardware.device_type(),
        "replicas": engine.replicas.count,
    }


def _levels_with(block_of, attribute, value):
    """Return the levels whose models have a layer with this value of an attribute."""
    return [
        level
        for level, block in block_of.items()
        if any(getattr(layer, attribute, None) == value for model in block.models for layer in all_layers(model))
    ]


def first_line(error: Exception) -> str:
    """Return the first line of an exception's message; its type if the message is empty."""
    return (str(error).strip() or repr(error)).splitlines()[0]


def check_block(block: ClientBlock, single: ClientBlock, checked: set[keras.Model]) -> None:
    """Refuse a block whose results differ from those of each client's single model.

    Args:
        single: Model of one client of the same level.
        checked: Batched models that were checked in blocks of other levels; those of this block are added.

    Raises:
        ValueError: A layer has no batched form: its shapes or its numbers are wrong.
        Exception: A layer fails in its own way.
    """
    for number, stage in enumerate(block.stages):
        models = {row_model.model for row_model in stage.joint.models}
        if not models <= checked:
            try:
                equivalent = is_equivalent(block, single, number)
            except tf.errors.InvalidArgumentError as error:
                raise ValueError("a layer has no form for several clients at once") from error
            if not equivalent:
                raise ValueError("several clients at once give other numbers than one by one")
            checked |= models


def is_equivalent(block: ClientBlock, single: ClientBlock, stage: int) -> bool:
    """Return whether a block computes each client's results of a step like its single model, on two examples."""
    rng, model = np.random.default_rng(0), single.stages[stage].joint.models[0].model
    # A bfloat16 product is off by up to 0.4 %, and sums in another order may round to the next value.
    mixed = any(layer.compute_dtype == "bfloat16" for layer in all_layers(model))
    tolerance = 5e-2 if mixed else 1e-2
    dtype = model.trainable_variables[0].dtype
    matrix = tf.constant(rng.normal(0, 0.1, (block.clients, sum(block.sizes))), dtype)
    inputs, key = _random_inputs(block.clients, model, rng), tf.reshape(tf.range(3 * block.clients), [-1, 3])
    # Results [K, ...] of all clients at once, then of each client.
    batched = _results_of_a_step(block, stage, matrix, inputs, key)
    for client in range(block.clients):
        one = slice(client, client + 1)
        expected_of_client = _results_of_a_step(single, stage, matrix[one], inputs[one], key[one])
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
def _results_of_a_step(block, stage, matrix, inputs, key):
    """Return the logits of each output, the gradient of the sum of their squares, and carried values: [K, ...]."""
    with tf.GradientTape() as tape:
        tape.watch(matrix)
        outputs, carried, _ = block.stages[stage].joint.call(matrix, key, inputs)
        total = tf.add_n([tf.reduce_sum(logits**2) for logits in outputs])
    results = [*outputs, tape.gradient(total, matrix), *([] if carried is None else [carried])]
    return [result.numpy() for result in results]


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
