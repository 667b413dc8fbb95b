"""Training steps that several levels share: each is one function of the graph and is traced once for all of them.

With nested and with slimmable widths a level takes steps at its own width and at every narrower one, which are the
full widths of other levels. Its values at a width are cropped from its values, as in the model of that width's level.
"""

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import tensorflow as tf

from hetero_tf.rounds.global_row import crop, pad_to
from hetero_tf.rounds.objective import Objective
from hetero_tf.rounds.row_model import RowModel


@dataclass(frozen=True, eq=False)
class WidthStep:
    """One step of a model on exactly its values.

    Attributes:
        model: The model; its positions are those of `shapes`.
        shapes: Of one client's values: the trainable ones, then its carried ones.
        learned: Number of trainable values.
    """

    model: RowModel
    shapes: tuple[tuple[int, ...], ...]
    learned: int
    _functions: dict[Any, Callable] = field(default_factory=dict)

    def __call__(
        self, objective: Objective, values: list[tf.Tensor], key: tf.Tensor, inputs: tf.Tensor, targets: tf.Tensor
    ) -> tuple[tf.Tensor, list[tf.Tensor], list[tf.Tensor]]:
        """Return losses [K], gradients of the trainable values, and the carried values after the step.

        Args:
            objective: The loss.
            values: The values of K clients, each [K, values], like the results.
            key: int32 [K, words] for dropout.
            inputs, targets: [K, batch, ...].
        """
        function_key = id(objective.loss), id(objective.couple), objective.outside
        if function_key not in self._functions:
            self._functions[function_key] = tf.function(
                functools.partial(self._compute, objective.loss, objective.couple, objective.outside),
                autograph=False,
                # Without it each caller would get a copy of the function before the first round.
                experimental_attributes={"_noinline": True},
            )
        return self._functions[function_key](values, key, inputs, targets, objective.present, objective.round)

    def _compute(self, loss, couple, outside, values, key, inputs, targets, present, round):
        objective, values = Objective(loss, couple, outside, present, round), list(values)
        trainable = values[: self.learned]
        with tf.GradientTape() as tape:
            tape.watch(trainable)
            outputs, statistics = self.model.call(values, self.shapes, key, inputs)
            loss = objective(outputs, targets)
        # The gradient of a value without influence is zero, not None.
        gradients = tape.gradient(loss, trainable, unconnected_gradients="zero")
        for position, value in statistics:
            values[position] = value
        return loss, gradients, values[self.learned :]


@dataclass(frozen=True, eq=False)
class WidthStepOnRow:
    """A `WidthStep` on some of the values of a level.

    Attributes:
        shared: The step.
        positions: For each value of the step its position among the level's, which may be wider.
        shapes: Of the level's values for one client: the trainable ones, then its carried ones.
        learned: Number of trainable values.
    """

    shared: WidthStep
    positions: tuple[int, ...]
    shapes: tuple[tuple[int, ...], ...]
    learned: int

    def __call__(
        self, objective: Objective, values: list[tf.Tensor], key: tf.Tensor, inputs: tf.Tensor, targets: tf.Tensor
    ) -> tuple[tf.Tensor, dict[int, tf.Tensor], list[tf.Tensor]]:
        """Return losses [K], gradients by the position of their value, and the level's carried values.

        Args:
            objective, key, inputs, targets: As in `WidthStep`.
            values: The level's values, each [K, values], like the results.
        """
        cropped_shapes = list(zip(self.positions, self.shared.shapes))
        cut = [crop(values[position], self.shapes[position], shape) for position, shape in cropped_shapes]
        loss, gradients, carried = self.shared(objective, cut, key, inputs, targets)
        # Gradients [K, values] in the level's shapes, zero outside the crop.
        padded = {
            position: pad_to(gradient, shape, self.shapes[position])
            for (position, shape), gradient in zip(cropped_shapes, gradients)
        }
        after = list(values)
        for (position, shape), value in zip(cropped_shapes[self.shared.learned :], carried, strict=True):
            # A cropped value is a constant: each width has separate running statistics.
            if shape == self.shapes[position]:
                after[position] = value
        return loss, padded, after[self.learned :]


def sum_of_steps(
    steps: tuple[WidthStepOnRow, ...],
    objective: Objective,
    rows: tf.Tensor,
    key: tf.Tensor,
    inputs: tf.Tensor,
    targets: tf.Tensor,
) -> tuple[tf.Tensor, ...]:
    """Take a step on the sum of the steps' losses; each step reads the running statistics that the last one updated.

    Args:
        steps: On values of the same level.
        objective, key, inputs, targets: As in `WidthStep`.
        rows: [K, values], the level's values.

    Returns:
        Losses [K], gradients [K, parameters] and, if there are any, the carried values after the step.
    """
    shapes, learned = steps[0].shapes, steps[0].learned
    # One [K, values] tensor for each variable; carried ones pass from step to step.
    values = tf.split(rows, list(map(math.prod, shapes)), axis=1)
    losses: list[tf.Tensor] = []
    gradients_by_position: list[list[tf.Tensor]] = [[] for _ in range(learned)]
    for step in steps:
        loss, gradients, carried = step(objective, values, key, inputs, targets)
        values[learned:] = carried
        losses.append(loss)
        for position, gradient in gradients.items():
            gradients_by_position[position].append(gradient)
    # Sum the gradients of each value over the steps that use it.
    all_gradients = tf.concat(
        [
            _sum(gradients_of_value) if gradients_of_value else tf.zeros_like(part)
            for gradients_of_value, part in zip(gradients_by_position, values)
        ],
        1,
    )
    running = [tf.concat(values[learned:], 1)] if len(values) > learned else []
    return _sum(losses), all_gradients, *running


def _sum(values):
    """Return the sum of tensors, without an operation for a single one."""
    return values[0] if len(values) == 1 else tf.add_n(values)
