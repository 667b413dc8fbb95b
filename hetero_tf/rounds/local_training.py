"""Local training of one block of clients: the optimizer's steps inside the graph."""

import dataclasses
import functools
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import tensorflow as tf

from hetero_tf.models.entry_masks import broadcast_to_values
from hetero_tf.rounds.batches import Batches
from hetero_tf.rounds.client_block import ClientBlock
from hetero_tf.rounds.objective import Objective
from hetero_tf.rounds.round_setup import LocalOptimizer
from hetero_tf.rounds.width_step import sum_of_steps


@dataclass(frozen=True)
class LocalResult:
    """Result of local training.

    Attributes:
        weights: [K, values], every client's trained sub-model.
        losses: [max_ticks, K], before each update; 0 if a client is idle.
        gradient_norms: [max_ticks, K], L2 norm of all of a client's gradients before clipping; 0 if it is idle.
        steps: int32 [K], number of steps of each client.
    """

    weights: tf.Tensor
    losses: tf.Tensor
    gradient_norms: tf.Tensor
    steps: tf.Tensor


def train_locally(
    block: ClientBlock,
    objective: Objective,
    correct: Callable | None,
    optimizer: LocalOptimizer,
    batches: Batches,
    weights: tf.Tensor,
    learning_rate: tf.Tensor,
    key: tf.Tensor,
    mask: Callable | None = None,
    progress: Callable | None = None,
) -> LocalResult:
    """Run the steps of a block's clients in a loop of the graph.

    Args:
        block: `client_block.ClientBlock` of K clients.
        objective: The loss that the steps minimise.
        correct: `weights [K, parameters] -> [K, parameters]`, added to the gradients; None: no correction.
        optimizer: `LocalOptimizer`.
        batches: `batches.Batches`.
        weights: [K, values], the starting values.
        learning_rate: Scalar.
        key: int32 [K, 3] (seed, round, client) for dropout and masks; each step appends the client's step number.
        mask: `weights [K, parameters] -> [K, parameters]`, their factors in the forward pass; entries at 0 are frozen.
            None: no mask.
        progress: `tick -> 0`, called after each tick, see `block_training.build_progress`; None: no callback.

    Returns:
        `LocalResult`.
    """
    stage_masks = _stage_masks(block)

    def step(batches, stages, tick, steps, weights, slots, losses, norms):
        # Trainable values come first in a row [K, values], running statistics after them.
        step_key = tf.concat([key, steps[:, None]], 1)
        loss, gradients, *running = _gradients(block, objective, batches, stages, tick, step_key, weights, mask)
        trainable = weights[:, : block.parameters] if running else weights
        gradients = gradients if correct is None else gradients + correct(trainable)
        # Frozen and masked values have no gradient, and neither weight decay nor momentum moves them.
        is_moving = _moving_values(stage_masks, mask, batches, tick, trainable)
        gradients = gradients if is_moving is None else tf.where(is_moving, gradients, tf.zeros([], gradients.dtype))
        # L2 norm of each client's gradient, [K], before clipping.
        norm = tf.sqrt(tf.reduce_sum(tf.square(gradients), 1))
        gradients = clip_by_norm(gradients, norm, optimizer.clip_norm)
        stepped, next_slots = optimizer.step(trainable, gradients, slots, learning_rate, steps)
        if is_moving is not None:
            stepped, *next_slots = _where(is_moving, (stepped, *next_slots), (trainable, *slots))
        stepped = tf.concat([stepped, *running], 1) if running else stepped
        after = (steps + 1, stepped, tuple(next_slots), loss, norm)
        if batches.active is not None:
            after = _keep_idle(batches.active(tick), after, (steps, weights, slots))
        steps, weights, slots, loss, norm = after
        next_tick = tick + 1 if progress is None else tick + 1 + progress(tick)
        return next_tick, steps, weights, slots, losses.write(tick, loss), norms.write(tick, norm)

    # Two arrays: in eager mode TensorArray.write mutates its argument.
    records = (tf.TensorArray(weights.dtype, size=batches.max_ticks, element_shape=[block.clients]) for _ in range(2))
    # Optimizer state [K, parameters], zero at every call: clients start each round without momentum.
    slots = tuple(tf.zeros_like(weights[:, : block.parameters]) for _ in range(optimizer.slots))
    state = (0, tf.zeros([block.clients], tf.int32), weights, slots, *records)
    # One loop for all stages, or a loop for each stage if it reads from a buffer.
    for stages in block.loops:
        loop_batches = _batches_of(block, batches, stages, weights=_masked(block, state[2], mask))
        body = functools.partial(step, loop_batches, stages)
        state = tf.while_loop(lambda tick, *_, end=loop_batches.ticks: tick < end, body, state, parallel_iterations=1)
    _, steps, weights, _, losses, norms = state
    return LocalResult(weights, losses.stack(), norms.stack(), steps)


def _keep_idle(active, after, before):
    """Return the loop's values after a tick in which idle clients (bool [K]) keep theirs and record zeros."""
    steps, stepped, next_slots, loss, norm = after
    _, weights, slots = before
    weights, *slots = _where(active[:, None], (stepped, *next_slots), (weights, *slots))
    loss, norm = _where(active, (loss, norm), (tf.zeros_like(loss), tf.zeros_like(norm)))
    return before[0] + tf.cast(active, tf.int32), weights, tuple(slots), loss, norm


def _batches_of(block, batches, stages, weights):
    """Return the batches up to the end of some stages; from a buffer if these start after frozen units."""
    if stages[-1] + 1 < len(block.stages):
        batches = dataclasses.replace(batches, ticks=batches.end(stages[-1]))
    before = block.stages[stages[0]].before
    if before is None:
        return batches
    forward, shape = functools.partial(block.run_frozen, before, weights), before.model.outputs[0].shape[1:]
    return dataclasses.replace(batches, read=batches.buffered(stages[0], forward, shape, weights.dtype))


def _gradients(block, objective, batches, stages, tick, key, weights, mask):
    """Return losses [K], their gradients [K, parameters] and, if there are any, the new running statistics."""

    def branch(stage, shape):
        inputs, targets = batches.read(tick, key, shape)
        if block.stages[stage].shared and mask is None:
            return sum_of_steps(block.stages[stage].shared, objective, weights, key, inputs, targets)
        with tf.GradientTape() as tape:
            tape.watch(weights)
            outputs, running = block.call(_masked(block, weights, mask), key, inputs, stage)
            loss = objective(outputs, targets)
        gradients = tape.gradient(loss, weights, unconnected_gradients="zero")
        gradients = tf.ensure_shape(gradients, weights.shape)
        return (loss, gradients) if running is None else (loss, gradients[:, : block.parameters], running)

    # A branch for each stage and each static batch shape.
    branches = [functools.partial(branch, stage, shape) for stage in stages for shape in batches.shapes]
    if len(branches) == 1:
        return branches[0]()
    return tf.switch_case((batches.stage(tick) - stages[0]) * len(batches.shapes) + batches.shape_at(tick), branches)


def _masked(block, weights, mask):
    """Multiply the trainable values of rows [K, values] by their mask; without a mask return them unchanged."""
    if mask is None:
        return weights
    trainable = weights[:, : block.parameters]
    return tf.concat([trainable * mask(trainable), weights[:, block.parameters :]], 1)


def _moving_values(stage_masks, mask, batches, tick, trainable):
    """Return which values a step moves: those that its stage trains and the mask keeps; None: all values."""
    moving_by_stage = None if stage_masks is None else stage_masks[batches.stage(tick)]
    if mask is None:
        return moving_by_stage
    unmasked = tf.not_equal(mask(trainable), 0)
    return unmasked if moving_by_stage is None else moving_by_stage & unmasked


def _where(condition, new, old):
    """Select the new values where `condition` is True, else the old ones."""
    return tuple(tf.where(condition, new_value, old_value) for new_value, old_value in zip(new, old))


def _stage_masks(block):
    """Return bool [stages, parameters], the values that each stage trains; None if all stages train all values."""
    if all(stage.trained is None for stage in block.stages):
        return None
    all_trained = (True,) * block.learned
    trained = np.array([all_trained if stage.trained is None else stage.trained for stage in block.stages])
    return broadcast_to_values(trained, block.sizes[: block.learned])


def clip_by_norm(gradients: tf.Tensor, norm: tf.Tensor, clip_norm: float | None) -> tf.Tensor:
    """Return `gradient * min(1, clip_norm / (norm + 1e-6))` for every client, like PyTorch's clip_grad_norm_.

    Args:
        gradients: [K, parameters].
        norm: [K], their L2 norms.
        clip_norm: The largest norm; None: no clipping.
    """
    if clip_norm is None:
        return gradients
    return gradients * tf.minimum(tf.ones([], gradients.dtype), clip_norm / (norm + 1e-6))[:, None]
