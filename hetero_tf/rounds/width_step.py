"""Training steps that several levels take, as one function of the graph: each is traced once, however many call it.

With nested and with slimmable widths a level takes steps at its own width and at every narrower one, which are whole
levels elsewhere. Its values at a width are cut out of its own ones, as the model of the level of that width has them.
"""

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import tensorflow as tf

from hetero_tf.rounds.global_row import narrowed, pad_to
from hetero_tf.rounds.objective import Objective
from hetero_tf.rounds.row_model import RowModel


@dataclass(frozen=True, eq=False)
class WidthStep:
    """One step of a model, on its own values and no others.

    Attributes:
        model: The model; its positions are those of `shapes`.
        shapes: Of one client's values: the trainable ones, then its carried ones.
        learned: How many of them are trainable.
    """

    model: RowModel
    shapes: tuple[tuple[int, ...], ...]
    learned: int
    _functions: dict[Any, Callable] = field(default_factory=dict)

    def __call__(
        self, objective: Objective, parts: list[tf.Tensor], key: tf.Tensor, inputs: tf.Tensor, targets: tf.Tensor
    ) -> tuple[tf.Tensor, list[tf.Tensor], list[tf.Tensor]]:
        """Returns losses [K], gradients of the trainable values, and the carried values after the step.

        Args:
            objective: What it makes smaller.
            parts: The values of K clients, each [K, values], like what is returned.
            key: int32 [K, words] for dropout.
            inputs, targets: [K, batch, ...].
        """
        kind = id(objective.loss), id(objective.couple), objective.outside
        if kind not in self._functions:
            self._functions[kind] = tf.function(
                functools.partial(self._computed, objective.loss, objective.couple, objective.outside),
                autograph=False,
                # Else each place that calls it would be given a copy before the first round.
                experimental_attributes={"_noinline": True},
            )
        return self._functions[kind](parts, key, inputs, targets, objective.present, objective.round)

    def _computed(self, loss, couple, outside, parts, key, inputs, targets, present, round):
        objective, parts = Objective(loss, couple, outside, present, round), list(parts)
        trainable = parts[: self.learned]
        with tf.GradientTape() as tape:
            tape.watch(trainable)
            outputs, statistics = self.model.call(parts, self.shapes, key, inputs)
            loss = objective(outputs, targets)
        gradients = tape.gradient(loss, trainable, unconnected_gradients="zero")
        for position, value in statistics:
            parts[position] = value
        return loss, gradients, parts[self.learned :]


@dataclass(frozen=True, eq=False)
class WidthStepOnRow:
    """A `WidthStep` on some of the values of a level.

    Attributes:
        shared: The step.
        positions: For each value of the step its position among the level's, which may be wider.
        shapes: Of the level's values for one client: the trainable ones, then its carried ones.
        learned: How many of them are trainable.
    """

    shared: WidthStep
    positions: tuple[int, ...]
    shapes: tuple[tuple[int, ...], ...]
    learned: int

    def __call__(
        self, objective: Objective, parts: list[tf.Tensor], key: tf.Tensor, inputs: tf.Tensor, targets: tf.Tensor
    ) -> tuple[tf.Tensor, dict[int, tf.Tensor], list[tf.Tensor]]:
        """Returns losses [K], gradients by the position of what they belong to, and the level's carried values.

        Args:
            objective, key, inputs, targets: As in `WidthStep`.
            parts: The level's values, each [K, values], like what is returned.
        """
        held = list(zip(self.positions, self.shared.shapes))
        cut = [narrowed(parts[position], self.shapes[position], shape) for position, shape in held]
        loss, gradients, carried = self.shared(objective, cut, key, inputs, targets)
        placed = {
            position: pad_to(gradient, shape, self.shapes[position])
            for (position, shape), gradient in zip(held, gradients)
        }
        after = list(parts)
        for (position, shape), value in zip(held[self.shared.learned :], carried, strict=True):
            # What is held in part is a constant: a width's running statistics are its own.
            if shape == self.shapes[position]:
                after[position] = value
        return loss, placed, after[self.learned :]


def summed(
    steps: tuple[WidthStepOnRow, ...],
    objective: Objective,
    rows: tf.Tensor,
    key: tf.Tensor,
    inputs: tf.Tensor,
    targets: tf.Tensor,
) -> tuple[tf.Tensor, ...]:
    """Takes a step on the sum of the steps' losses; each goes on from the running statistics of those before it.

    Args:
        steps: On values of the same level.
        objective, key, inputs, targets: As in `WidthStep`.
        rows: [K, values], the level's values.

    Returns:
        Losses [K], gradients [K, parameters] and, where there are any, the carried values after the step.
    """
    shapes, learned = steps[0].shapes, steps[0].learned
    parts = tf.split(rows, list(map(math.prod, shapes)), axis=1)
    losses: list[tf.Tensor] = []
    found: list[list[tf.Tensor]] = [[] for _ in range(learned)]
    for step in steps:
        loss, gradients, carried = step(objective, parts, key, inputs, targets)
        parts[learned:] = carried
        losses.append(loss)
        for position, gradient in gradients.items():
            found[position].append(gradient)
    whole = tf.concat([_sum(one) if one else tf.zeros_like(part) for one, part in zip(found, parts)], 1)
    running = [tf.concat(parts[learned:], 1)] if len(parts) > learned else []
    return _sum(losses), whole, *running


def _sum(values):
    """The sum of tensors; without an operation where there is one alone."""
    return values[0] if len(values) == 1 else tf.add_n(values)
