"""Training steps that several levels take, as one function of the graph: each is traced once, however many call it.

With nested and with slimmable widths a level takes steps at its own width and at every narrower one, which are whole
levels elsewhere. Its values at a width are gathered into a row of their own, like the row of the level of that width.
"""

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tensorflow as tf

from hetero_tf.rounds.objective import Objective
from hetero_tf.rounds.routed_model import RoutedModel


@dataclass(frozen=True, eq=False)
class SharedStep:
    """One step of a model, on rows that hold its values and no others.

    Attributes:
        model: The model; its positions are those of `shapes`.
        shapes: Of one client's values: the trainable ones, then its carried ones.
        learned: How many of them are trainable.
    """

    model: RoutedModel
    shapes: tuple[tuple[int, ...], ...]
    learned: int
    _functions: dict[Any, Callable] = field(default_factory=dict)

    @property
    def parameters(self) -> int:
        """Number of trainable values."""
        return sum(map(math.prod, self.shapes[: self.learned]))

    def __call__(
        self, objective: Objective, rows: tf.Tensor, key: tf.Tensor, inputs: tf.Tensor, targets: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor | None]:
        """Returns losses [K], their gradients [K, parameters], and the carried values after the step, if there are any.

        Args:
            objective: What it makes smaller.
            rows: [K, values].
            key: int32 [K, words] for dropout.
            inputs, targets: [K, batch, ...].
        """
        kind = id(objective.algorithm), objective.outside
        if kind not in self._functions:
            self._functions[kind] = tf.function(
                functools.partial(self._computed, objective.algorithm, objective.outside),
                autograph=False,
                # Else each place that calls it would be given a copy before the first round.
                experimental_attributes={"_noinline": True},
            )
        return self._functions[kind](rows, key, inputs, targets, objective.present, objective.round)

    def _computed(self, algorithm, outside, rows, key, inputs, targets, present, round):
        objective = Objective(algorithm, outside, present, round)
        with tf.GradientTape() as tape:
            tape.watch(rows)
            parts = tf.split(rows, list(map(math.prod, self.shapes)), axis=1)
            outputs, statistics = self.model.call(parts, self.shapes, key, inputs)
            loss = objective(outputs, targets)
        gradients = tape.gradient(loss, rows, unconnected_gradients="zero")[:, : self.parameters]
        for position, value in statistics:
            parts[position] = value
        return loss, gradients, tf.concat(parts[self.learned :], 1) if len(parts) > self.learned else None


@dataclass(frozen=True, eq=False)
class StepOnPart:
    """A `SharedStep` on some of the values of a level's row.

    Attributes:
        shared: The step.
        places: int [values of the step], where each lies in the row of the level; None: it is the whole row.
        parameters: Number of trainable values of the level.
    """

    shared: SharedStep
    places: np.ndarray | None
    parameters: int

    def __call__(
        self, objective: Objective, rows: tf.Tensor, key: tf.Tensor, inputs: tf.Tensor, targets: tf.Tensor
    ) -> tuple[tf.Tensor, ...]:
        """Returns losses [K], gradients [K, parameters] and, where there are any, the carried values after the step."""
        if self.places is None:
            loss, gradients, running = self.shared(objective, rows, key, inputs, targets)
        else:
            loss, gradients, running = self.shared(
                objective, tf.gather(rows, self.places, axis=1), key, inputs, targets
            )
            gradients = self._placed(tf.zeros_like(rows[:, : self.parameters]), gradients, 0)
            carried = rows[:, self.parameters :]
            running = carried if running is None else self._placed(carried, running, self.parameters)
        return (loss, gradients) if rows.shape[1] == self.parameters else (loss, gradients, running)

    def _placed(self, before, values, first):
        """Values of the step in their places of a part of the row that begins at `first`; elsewhere what was before."""
        size = before.shape[1]
        places = self.places[(self.places >= first) & (self.places < first + size)] - first
        source = np.arange(size)
        source[places] = size + np.arange(len(places))
        return tf.gather(tf.concat([before, values], 1), source, axis=1)


def summed(
    steps: tuple[StepOnPart, ...],
    objective: Objective,
    rows: tf.Tensor,
    key: tf.Tensor,
    inputs: tf.Tensor,
    targets: tf.Tensor,
) -> tuple[tf.Tensor, ...]:
    """Returns what one step on the sum of the steps' losses returns; each goes on from the statistics of those before.

    Args:
        steps: On parts of the same rows.
        objective, rows, key, inputs, targets: As in `StepOnPart`.
    """
    trainable, losses, gradients = rows[:, : steps[0].parameters], [], []
    for step in steps:
        loss, gradient, *running = step(objective, rows, key, inputs, targets)
        rows = tf.concat([trainable, *running], 1)
        losses.append(loss)
        gradients.append(gradient)
    return tf.add_n(losses), tf.add_n(gradients), *running
