"""Local training of the clients of one stack: the optimizer's steps inside the graph."""

import dataclasses
import functools
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import tensorflow as tf

from hetero_tf.models.entry_masks import spread
from hetero_tf.rounds.batches import Batches
from hetero_tf.rounds.client_block import ClientBlock
from hetero_tf.rounds.objective import Objective
from hetero_tf.rounds.round_setup import LocalOptimizer
from hetero_tf.rounds.width_step import summed


@dataclass(frozen=True)
class LocalResult:
    """What local training leaves.

    Attributes:
        weights: [K, values], every client's trained sub-model.
        losses: [most, K], before each update; 0 where a client is idle.
        gradient_norms: [most, K], L2 norm of all of a client's gradients before clipping; 0 where it is idle.
        steps: int32 [K], how many steps each client has done.
    """

    weights: tf.Tensor
    losses: tf.Tensor
    gradient_norms: tf.Tensor
    steps: tf.Tensor


def train_locally(
    stack: ClientBlock,
    objective: Objective,
    correct: Callable | None,
    optimizer: LocalOptimizer,
    batches: Batches,
    weights: tf.Tensor,
    learning_rate: tf.Tensor,
    key: tf.Tensor,
    mask: Callable | None = None,
    note: Callable | None = None,
) -> LocalResult:
    """Runs the steps of a stack's clients in a loop of the graph.

    Args:
        stack: `stack.ClientBlock` of K clients.
        objective: What the steps make smaller.
        correct: `weights [K, parameters] -> [K, parameters]`, added to the gradients; None: nothing is.
        optimizer: `LocalOptimizer`.
        batches: `batches.Batches`.
        weights: [K, values], the starting values.
        learning_rate: Scalar.
        key: int32 [K, 3] (seed, round, client) for dropout and masks; each client's own step is added to it.
        mask: `weights [K, parameters] -> [K, parameters]`, what they are multiplied by in the forward pass; entries at
            0 stand still. None: all move.
        note: `tick -> 0`, called after each tick, see `watch.build_progress`; None: nothing is.

    Returns:
        `LocalResult`.
    """
    stage_masks = _stage_masks(stack)

    def step(batches, stages, tick, steps, weights, slots, losses, norms):
        # Trainable values come first in a row [K, values]; running statistics, where there are any, behind them.
        step_key = tf.concat([key, steps[:, None]], 1)
        loss, gradients, *running = _gradients(stack, objective, batches, stages, tick, step_key, weights, mask)
        trainable = weights[:, : stack.parameters] if running else weights
        gradients = gradients if correct is None else gradients + correct(trainable)
        # What a stage freezes or a mask leaves out has no gradient, and no decay or momentum moves it either.
        moves = _moving_values(stage_masks, mask, batches, tick, trainable)
        gradients = gradients if moves is None else tf.where(moves, gradients, tf.zeros([], gradients.dtype))
        norm = tf.sqrt(tf.reduce_sum(tf.square(gradients), 1))
        gradients = clipped(gradients, norm, optimizer.clip_norm)
        stepped, next_slots = optimizer.step(trainable, gradients, slots, learning_rate, steps)
        if moves is not None:
            stepped, *next_slots = _where(moves, (stepped, *next_slots), (trainable, *slots))
        stepped = tf.concat([stepped, *running], 1) if running else stepped
        after = (steps + 1, stepped, tuple(next_slots), loss, norm)
        if batches.active is not None:
            after = _keep_idle(batches.active(tick), after, (steps, weights, slots))
        steps, weights, slots, loss, norm = after
        following = tick + 1 if note is None else tick + 1 + note(tick)
        return following, steps, weights, slots, losses.write(tick, loss), norms.write(tick, norm)

    # Two, since a function that runs eagerly writes into the array itself.
    records = (tf.TensorArray(weights.dtype, size=batches.most, element_shape=[stack.clients]) for _ in range(2))
    slots = tuple(tf.zeros_like(weights[:, : stack.parameters]) for _ in range(optimizer.slots))
    state = (0, tf.zeros([stack.clients], tf.int32), weights, slots, *records)
    for stages in stack.loops:
        of_loop = _batches_of(stack, batches, stages, weights=_masked(stack, state[2], mask))
        body = functools.partial(step, of_loop, stages)
        state = tf.while_loop(lambda tick, *_, end=of_loop.ticks: tick < end, body, state, parallel_iterations=1)
    _, steps, weights, _, losses, norms = state
    return LocalResult(weights, losses.stack(), norms.stack(), steps)


def _keep_idle(active, after, before):
    """The loop's values after a tick in which idle clients (bool [K]) stay as they are and record zeros."""
    steps, stepped, next_slots, loss, norm = after
    _, weights, slots = before
    weights, *slots = _where(active[:, None], (stepped, *next_slots), (weights, *slots))
    loss, norm = _where(active, (loss, norm), (tf.zeros_like(loss), tf.zeros_like(norm)))
    return before[0] + tf.cast(active, tf.int32), weights, tuple(slots), loss, norm


def _batches_of(stack, batches, stages, weights):
    """The batches up to the end of some stages; from a buffer where these begin behind frozen units."""
    if stages[-1] + 1 < len(stack.stages):
        batches = dataclasses.replace(batches, ticks=batches.end(stages[-1]))
    before = stack.stages[stages[0]].before
    if before is None:
        return batches
    forward, shape = functools.partial(stack.run_frozen, before, weights), before.model.outputs[0].shape[1:]
    return dataclasses.replace(batches, read=batches.buffered(stages[0], forward, shape, weights.dtype))


def _gradients(stack, objective, batches, stages, tick, key, weights, mask):
    """Losses [K], their gradients [K, parameters] and, where there are any, the new running statistics."""

    def branch(stage, shape):
        inputs, targets = batches.read(tick, key, shape)
        if stack.stages[stage].shared and mask is None:
            return summed(stack.stages[stage].shared, objective, weights, key, inputs, targets)
        with tf.GradientTape() as tape:
            tape.watch(weights)
            outputs, running = stack.call(_masked(stack, weights, mask), key, inputs, stage)
            loss = objective(outputs, targets)
        gradients = tape.gradient(loss, weights, unconnected_gradients="zero")
        gradients = tf.ensure_shape(gradients, weights.shape)
        return (loss, gradients) if running is None else (loss, gradients[:, : stack.parameters], running)

    branches = [functools.partial(branch, stage, shape) for stage in stages for shape in batches.shapes]
    if len(branches) == 1:
        return branches[0]()
    return tf.switch_case((batches.stage(tick) - stages[0]) * len(batches.shapes) + batches.shape_at(tick), branches)


def _masked(stack, weights, mask):
    """Rows [K, values] whose trainable values are multiplied by their mask; without a mask as they are."""
    if mask is None:
        return weights
    trainable = weights[:, : stack.parameters]
    return tf.concat([trainable * mask(trainable), weights[:, stack.parameters :]], 1)


def _moving_values(stage_masks, mask, batches, tick, trainable):
    """Which values move in a step: those that its stage trains and the mask lets through; None: all of them."""
    of_stage = None if stage_masks is None else stage_masks[batches.stage(tick)]
    if mask is None:
        return of_stage
    let_through = tf.not_equal(mask(trainable), 0)
    return let_through if of_stage is None else of_stage & let_through


def _where(which, new, old):
    """Entry by entry the new values where `which` holds, else the old ones."""
    return tuple(tf.where(which, one, other) for one, other in zip(new, old))


def _stage_masks(stack):
    """bool [stages, parameters], the values that a stage trains; None where every stage trains all of them."""
    if all(stage.trained is None for stage in stack.stages):
        return None
    everything = (True,) * stack.learned
    trained = np.array([everything if stage.trained is None else stage.trained for stage in stack.stages])
    return spread(trained, stack.sizes[: stack.learned])


def clipped(gradients: tf.Tensor, norm: tf.Tensor, clip_norm: float | None) -> tf.Tensor:
    """`gradient * min(1, clip_norm / (norm + 1e-6))` for every client, as PyTorch's clip_grad_norm_ does it.

    Args:
        gradients: [K, parameters].
        norm: [K], their L2 norms.
        clip_norm: The largest norm; None leaves them as they are.
    """
    if clip_norm is None:
        return gradients
    return gradients * tf.minimum(tf.ones([], gradients.dtype), clip_norm / (norm + 1e-6))[:, None]
