"""One training step of a block's clients in a stage: its losses, their gradients, and the running statistics after it.

A `JointStep` computes all routes of the stage under one tape. A `SummedStep` computes each route by a function of the
graph that several levels share, which is traced once for all of them. With nested and with slimmable widths a level
takes steps at its own width and at every narrower one, which are the full widths of other levels.
"""

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import tensorflow as tf

from hetero_tf.rounds.row_model import RowModel, RowShape, crop, pad_to


@dataclass(frozen=True)
class Objective:
    """The loss that local steps minimise.

    Attributes:
        loss: Loss of one output, see `methods.losses`.
        couple: Combines the losses of several outputs into one, see `methods.couplings`.
        outside: Number of classes that are not on the label axis.
        present: bool [K, label axis], which labels of its label axis each client has.
        round: Scalar int32.
        contrast, anchors: A term on representations, see `LocalStep.gradient`; only of a `JointStep`.
    """

    loss: Callable
    couple: Callable
    outside: int
    present: tf.Tensor
    round: tf.Tensor
    contrast: Callable | None = None
    anchors: tuple[tf.Tensor, ...] = ()

    def __call__(
        self, outputs: list[tf.Tensor], targets: tf.Tensor | tuple[tf.Tensor, tf.Tensor], penalties: list[tf.Tensor]
    ) -> tf.Tensor:
        """Return the loss of each client, [K].

        Args:
            outputs: List of logits [K, batch, ...].
            targets: [K, batch, ...]; or a pair with the weights of the examples, [K, batch].
            penalties: Losses that the model adds, scalars.
        """
        targets, weights = targets if isinstance(targets, tuple) else (targets, None)
        losses = [self._loss(logits, targets) for logits in outputs]
        losses = self.couple(losses, outputs, targets, self.round)
        if weights is not None:
            # A user's loss may be one number for each client, that of a label map one for each pixel.
            losses = losses[:, None] if losses.shape.rank == 1 else losses
            losses *= tf.reshape(weights, [*losses.shape[:1], -1, *[1] * (losses.shape.rank - 2)])
        means = tf.reduce_mean(losses, axis=list(range(1, losses.shape.rank)))
        return tf.add_n(penalties) + means if penalties else means

    def _loss(self, logits, targets):
        shape = [self.present.shape[0], *[1] * (logits.shape.rank - 2), self.present.shape[1]]
        return self.loss(logits, targets, tf.reshape(self.present, shape), self.outside)


@dataclass(frozen=True)
class JointStep(RowShape):
    """A step that computes all routes together, so a coupling may compare their outputs.

    Attributes:
        models: `RowModel` of each route.
    """

    models: tuple[RowModel, ...]

    def call(
        self, rows: tf.Tensor, key: tf.Tensor, inputs: tf.Tensor, features: bool = False
    ) -> tuple[list[tf.Tensor], tf.Tensor | None, list[tf.Tensor]]:
        """Run the models.

        Args:
            features: Whether the last item of the list is the input of the last layer.

        Returns:
            List of logits [K, batch, ...], route by route and exit by exit; the carried values; and the losses that
            the models add.
        """
        # Each route reads the running statistics that the routes before it have updated.
        values, outputs, penalties = self._split(rows), [], []
        for model in self.models:
            logits, statistics, added = model.call(values, self.shapes, key, inputs, features)
            outputs += logits
            penalties += added
            for position, value in statistics:
                values[position] = value
        # Trainable values do not change here: the optimizer's step follows outside.
        return outputs, tf.concat(values[self.learned :], 1) if len(values) > self.learned else None, penalties

    def loss_and_gradients(
        self, objective: Objective, rows: tf.Tensor, key: tf.Tensor, inputs: tf.Tensor, targets: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor | None]:
        """Compute one step of K clients.

        Args:
            rows: [K, values], each client's trainable values, then its carried ones.
            key: int32 [K, words] for dropout.
            inputs, targets: [K, batch, ...].

        Returns:
            Losses [K]; their gradients, [K, parameters]; and the carried values after the step, None without any.
        """
        contrast = objective.contrast
        anchors = [self.call(values, key, inputs, True)[0][-1] for values in objective.anchors]
        with tf.GradientTape() as tape:
            tape.watch(rows)
            outputs, carried, penalties = self.call(rows, key, inputs, contrast is not None)
            features = None if contrast is None else outputs.pop()
            losses = objective(outputs, targets, penalties)
            losses = losses if contrast is None else losses + contrast(features, *anchors)
        gradients = tf.ensure_shape(tape.gradient(losses, rows, unconnected_gradients="zero"), rows.shape)
        return losses, gradients if carried is None else gradients[:, : self.parameters], carried

    def _split(self, rows):
        """Split rows into the values of each variable, [K, values]."""
        if len(self.sizes) == self.learned:
            return tf.split(rows, self.sizes, axis=1)
        trainable, carried = tf.split(rows, [self.parameters, sum(self.sizes) - self.parameters], axis=1)
        # Stop gradients of carried values: their products would be a third of a step.
        carried = tf.stop_gradient(carried)
        return [
            *tf.split(trainable, self.sizes[: self.learned], axis=1),
            *tf.split(carried, self.sizes[self.learned :], axis=1),
        ]


@dataclass(frozen=True, eq=False)
class WidthStep(RowShape):
    """One step of a model on a row of exactly its values."""

    model: RowModel
    _functions: dict[Any, Callable] = field(default_factory=dict)

    def __call__(
        self, objective: Objective, values: list[tf.Tensor], key: tf.Tensor, inputs: tf.Tensor, targets: tf.Tensor
    ) -> tuple[tf.Tensor, list[tf.Tensor], list[tf.Tensor]]:
        """Return losses [K], gradients of the trainable values, and the carried values after the step.

        Args:
            values: The values of K clients, each [K, values], like the results.
            key: int32 [K, words] for dropout.
            inputs, targets: [K, batch, ...].
        """
        function_key = objective.loss, objective.couple, objective.outside
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
            outputs, statistics, penalties = self.model.call(values, self.shapes, key, inputs)
            loss = objective(outputs, targets, penalties)
        # The gradient of a value without influence is zero, not None.
        gradients = tape.gradient(loss, trainable, unconnected_gradients="zero")
        for position, value in statistics:
            values[position] = value
        return loss, gradients, values[self.learned :]


@dataclass(frozen=True)
class SummedStep(RowShape):
    """A step on the sum of separate steps' losses; each reads the running statistics that the one before updated.

    Attributes:
        steps: `WidthStep` of each route.
        positions: For each step the positions of its values among the level's values, which may be wider.
    """

    steps: tuple[WidthStep, ...]
    positions: tuple[tuple[int, ...], ...]

    def loss_and_gradients(
        self, objective: Objective, rows: tf.Tensor, key: tf.Tensor, inputs: tf.Tensor, targets: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor | None]:
        """See `JointStep.loss_and_gradients`."""
        # One [K, values] tensor for each variable; carried ones pass from step to step.
        values = tf.split(rows, self.sizes, axis=1)
        losses: list[tf.Tensor] = []
        gradients_of: list[list[tf.Tensor]] = [[] for _ in range(self.learned)]
        for step, positions in zip(self.steps, self.positions):
            # The step's values, cropped from the level's.
            parts = [
                crop(values[position], self.shapes[position], shape) for position, shape in zip(positions, step.shapes)
            ]
            loss, gradients, carried = step(objective, parts, key, inputs, targets)
            losses.append(loss)
            # Gradients [K, values] in the level's shapes, zero outside the crop.
            for position, shape, gradient in zip(positions, step.shapes, gradients):
                gradients_of[position].append(pad_to(gradient, shape, self.shapes[position]))
            for position, shape, value in zip(positions[step.learned :], step.shapes[step.learned :], carried):
                # A cropped value is a constant: each width has separate running statistics.
                if shape == self.shapes[position]:
                    values[position] = value
        gradients = [_sum(each) if each else tf.zeros_like(part) for each, part in zip(gradients_of, values)]
        carried = values[self.learned :]
        return _sum(losses), tf.concat(gradients, 1), tf.concat(carried, 1) if carried else None


def _sum(values: Sequence[tf.Tensor]) -> tf.Tensor:
    """Sum tensors, without an operation for a single one."""
    return values[0] if len(values) == 1 else tf.add_n(values)
