"""Local training of one block of clients: the optimizer's steps inside the graph."""

import dataclasses
import functools
import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from hetero_tf.models.entry_masks import broadcast_to_values
from hetero_tf.rounds.batches import Batches
from hetero_tf.rounds.client_block import ClientBlock
from hetero_tf.rounds.round_setup import LocalOptimizer
from hetero_tf.rounds.training_step import Objective

# Calls to the host before the first tick: number of ticks of the next call and of the last one, and its time.
NO_CALLS = (1.0, 0.0, -np.inf)


class Twin(NamedTuple):
    """A second model of each client, see `methods.personalizations`.

    Attributes:
        values: [K, parameters].
        slots: State of its optimizer, each in the shape of the values.
        alpha: [K, 1], its share in the client's model.
    """

    values: tf.Tensor
    slots: tuple[tf.Tensor, ...]
    alpha: tf.Tensor


class LocalResult(NamedTuple):
    """Result of local training.

    Attributes:
        rows: [K, values], every client's trained sub-model.
        losses: [max_ticks, K], before each update; 0 if a client is idle.
        gradient_norms: [max_ticks, K], L2 norm of all of a client's gradients before clipping; 0 if it is idle.
        steps: int32 [K], number of steps of each client.
        twin: The clients' twins; empty without a personalization.
    """

    rows: tf.Tensor
    losses: tf.Tensor
    gradient_norms: tf.Tensor
    steps: tf.Tensor
    twin: Twin | tuple


@dataclass(frozen=True)
class LocalTraining:
    """The local steps of a block's clients.

    Attributes:
        key: int32 [K, 3] (seed, round, client) for dropout and masks; each step appends the client's step number.
        correct: `weights [K, parameters] -> [K, parameters]`, added to the gradients, or None for no correction.
        mask: `weights [K, parameters] -> [K, parameters]`, their factors in the forward pass; entries at 0 are frozen.
            None: no mask.
        trained: bool [parameters], the values that this round trains, or None for all values.
        personalize: A step of a personalization from the other fields of its `LocalStep`, or None.
        progress: `(tick, calls) -> calls`, called after each tick, see `block_training.build_progress`, or None for no
            callback.
    """

    block: ClientBlock
    objective: Objective
    batches: Batches
    optimizer: LocalOptimizer
    learning_rate: tf.Tensor
    key: tf.Tensor
    correct: Callable | None = None
    mask: Callable | None = None
    trained: tf.Tensor | None = None
    personalize: Callable | None = None
    progress: Callable | None = None

    def run(self, rows: tf.Tensor, twin: tuple[tf.Tensor, tf.Tensor] | None = None) -> LocalResult:
        """Run the steps of the clients in a loop of the graph.

        Args:
            rows: [K, values], the starting values.
            twin: The starting `values` and `alpha` of `Twin`, with a personalization.
        """
        clients, parameters = self.block.clients, self.block.parameters
        # Two arrays: in eager mode TensorArray.write mutates its argument.
        size = self.batches.max_ticks
        records = (tf.TensorArray(rows.dtype, size=size, element_shape=[clients]) for _ in range(2))
        # Optimizer state [K, parameters], zero at every call: clients start each round without momentum.
        slots = tuple(tf.zeros_like(rows[:, :parameters]) for _ in range(self.optimizer.slots))
        twins = () if twin is None else Twin(twin[0], slots, twin[1])
        calls = () if self.progress is None else tf.constant(NO_CALLS, tf.float64)
        state = (0, tf.zeros([clients], tf.int32), rows, slots, twins, *records, calls)
        stage_masks = _stage_masks(self.block)
        body = functools.partial(self._tick, stage_masks)
        state = tf.while_loop(lambda tick, *_: tick < self.batches.plan.ticks, body, state, parallel_iterations=1)
        _, steps, rows, _, twins, losses, norms, _ = state
        return LocalResult(rows, losses.stack(), norms.stack(), steps, twins)

    def _tick(self, stage_masks, tick, steps, rows, slots, twin, losses, norms, calls):
        """Take the steps of a tick: the body of the loop."""
        step_key = tf.concat([self.key, steps[:, None]], 1)
        trainable = rows[:, : self.block.parameters] if rows.shape[1] > self.block.parameters else rows
        is_moving = self._moving_values(stage_masks, tick, trainable)
        gradient = functools.partial(self._gradients, tick, step_key)
        # Losses [K], gradients [K, parameters] and, if there are any, the running statistics after the step.
        if self.personalize is None:
            (loss, gradients, *carried), next_twin = gradient(rows), twin
        else:
            (loss, gradients, carried), is_moving, next_twin = self._personalized(
                gradient, rows, twin, steps, is_moving
            )
        stepped, next_slots, norm = self._update(trainable, gradients, slots, steps, is_moving)
        next_rows = tf.concat([stepped, *carried], 1) if carried else stepped
        active = self.batches.is_active(tick)
        if active is None:
            next_steps = steps + 1
        else:
            # Idle clients keep their values and record zeros.
            next_rows, *next_slots = _where(active[:, None], (next_rows, *next_slots), (rows, *slots))
            loss, norm = _where(active, (loss, norm), (tf.zeros_like(loss), tf.zeros_like(norm)))
            next_twin = tf.nest.map_structure(lambda new, old: tf.where(active[:, None], new, old), next_twin, twin)
            next_steps = steps + tf.cast(active, tf.int32)
        records = losses.write(tick, loss), norms.write(tick, norm)
        next_calls = () if self.progress is None else self.progress(tick, calls)
        # TensorFlow removes calls on which no result depends.
        with tf.control_dependencies(tf.nest.flatten(next_calls)):
            next_tick = tick + 1
        return next_tick, next_steps, next_rows, tuple(next_slots), next_twin, *records, next_calls

    def _personalized(self, gradient, rows, twin, steps, is_moving):
        """Take the personalization's step; return its gradient, which values move, and the twins after the step."""
        assert self.personalize is not None
        trainable, carried = rows[:, : self.block.parameters], rows[:, self.block.parameters :]

        def step(values, gradients):
            # A correction is that of the returned values.
            uncorrected = dataclasses.replace(self, correct=None)
            return uncorrected._update(values, gradients, twin.slots, steps, is_moving)[:2]

        update = self.personalize(
            weights=trainable,
            twin=twin.values,
            alpha=twin.alpha,
            number=steps,
            evaluate=lambda values, contrast, anchors: gradient(
                tf.concat([values, carried], 1), contrast, [tf.concat([anchor, carried], 1) for anchor in anchors]
            ),
            step=step,
        )
        values, slots = update.twin or (twin.values, twin.slots)
        alpha = twin.alpha if update.alpha is None else update.alpha
        moving = [each for each in (is_moving, update.moving) if each is not None]
        is_moving = functools.reduce(operator.and_, moving) if moving else None
        result = update.gradient._replace(statistics=update.gradient.statistics or (carried,))
        return result, is_moving, Twin(values, tuple(slots) or twin.slots, alpha)

    def _gradients(self, tick, key, rows, contrast=None, anchors=()):
        """Return losses [K], their gradients [K, parameters] and, if there are any, the new running statistics."""

        def branch(stage, shape):
            inputs, targets = self.batches.read(tick, key, shape)
            with tf.GradientTape() as tape:
                tape.watch(rows)
                masked = self._masked(rows)
            loss, gradients, carried = stage.step.loss_and_gradients(
                dataclasses.replace(self.objective, contrast=contrast, anchors=anchors), masked, key, inputs, targets
            )
            if self.mask is not None:
                # The chain rule through the product with the mask.
                masked_gradients = tf.pad(gradients, [[0, 0], [0, rows.shape[1] - gradients.shape[1]]])
                gradients = tape.gradient(masked, rows, masked_gradients)[:, : self.block.parameters]
            return (loss, gradients) if carried is None else (loss, gradients, carried)

        # A branch for each stage and each static batch shape.
        branches = [
            functools.partial(branch, stage, shape) for stage in self.block.stages for shape in self.batches.shapes
        ]
        if len(branches) == 1:
            return branches[0]()
        number = self.batches.stage_at(tick) * len(self.batches.shapes) + self.batches.shape_at(tick)
        return tf.switch_case(number, branches)

    def _masked(self, rows):
        """Multiply the trainable values of rows [K, values] by their mask; without a mask return them unchanged."""
        if self.mask is None:
            return rows
        trainable = rows[:, : self.block.parameters]
        return tf.concat([trainable * self.mask(trainable), rows[:, self.block.parameters :]], 1)

    def _moving_values(self, stage_masks, tick, trainable):
        """Return which values a step moves: those that round and stage train and the mask keeps, or None for all."""
        moving = [
            *([] if stage_masks is None else [stage_masks[self.batches.stage_at(tick)]]),
            *([] if self.trained is None else [self.trained]),
            *([] if self.mask is None else [tf.not_equal(self.mask(trainable), 0)]),
        ]
        return functools.reduce(operator.and_, moving) if moving else None

    def _update(self, trainable, gradients, slots, steps, is_moving):
        """Take the optimizer's step: new values and slots [K, parameters], and gradient norms [K] before clipping."""
        gradients = gradients if self.correct is None else gradients + self.correct(trainable)
        # Frozen and masked values have no gradient, and neither weight decay nor momentum moves them.
        gradients = gradients if is_moving is None else tf.where(is_moving, gradients, tf.zeros([], gradients.dtype))
        norm = tf.sqrt(tf.reduce_sum(tf.square(gradients), 1))
        gradients = clip_by_norm(gradients, norm, self.optimizer.clip_norm)
        stepped, next_slots = self.optimizer.step(trainable, gradients, slots, self.learning_rate, steps)
        if is_moving is not None:
            stepped, *next_slots = _where(is_moving, (stepped, *next_slots), (trainable, *slots))
        return stepped, next_slots, norm


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
        clip_norm: The largest norm, or None for no clipping.
    """
    if clip_norm is None:
        return gradients
    return gradients * tf.minimum(tf.ones([], gradients.dtype), clip_norm / (norm + 1e-6))[:, None]
