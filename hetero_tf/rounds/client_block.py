"""Stacks: K clients of one level computed at once, each client's values as one row of a matrix.

One row instead of dozens of variables makes an optimiser step a handful of operations, which is most of the cost of a
narrow model; several clients side by side share what is left.
"""

import math
from dataclasses import dataclass

import tensorflow as tf

from hetero_tf.rounds.global_row import split_values
from hetero_tf.rounds.row_model import RowModel
from hetero_tf.rounds.width_step import WidthStepOnRow


@dataclass(frozen=True)
class StageStep:
    """What the steps of a stage compute.

    Attributes:
        models: `RowModel` of each route.
        trained: For each trainable variable whether the steps train it; None: they train all.
        before: The frozen units, where the steps begin behind them and read what they give from a buffer.
        shared: The step of each route as other levels take it too; empty: no other does.
    """

    models: tuple[RowModel, ...]
    trained: tuple[bool, ...] | None
    before: RowModel | None
    shared: tuple[WidthStepOnRow, ...] = ()


@dataclass(frozen=True)
class ClientBlock:
    """How the clients of one level are computed.

    Attributes:
        clients: K.
        shapes: Of one client's values: the trainable ones of its network and of its peers, then their carried ones:
            constants and running statistics.
        learned: How many of them are trainable.
        networks: Of a client: 1 and its peers.
        stages: `StageStep` of each stage.
    """

    clients: int
    shapes: tuple[tuple[int, ...], ...]
    learned: int
    networks: int
    stages: tuple[StageStep, ...]

    @property
    def sizes(self) -> list[int]:
        """Number of values of each variable."""
        return [math.prod(shape) for shape in self.shapes]

    @property
    def parameters(self) -> int:
        """Number of trainable values."""
        return sum(self.sizes[: self.learned])

    @property
    def own_shapes(self) -> list[tuple[int, ...]]:
        """Shapes of the values of a client's first network, the one that it returns."""
        trainable, carried = self.learned // self.networks, (len(self.shapes) - self.learned) // self.networks
        return [*self.shapes[:trainable], *self.shapes[self.learned : self.learned + carried]]

    @property
    def loops(self) -> list[list[int]]:
        """Positions of the stages that are trained in one loop: all, or one where a buffer is filled between them."""
        numbers = range(len(self.stages))
        return [[number] for number in numbers] if any(stage.before for stage in self.stages) else [list(numbers)]

    def to_rows(self, clients: list[list[tf.Tensor]]) -> tf.Tensor:
        """Makes a matrix [K, values] of the rows of K clients' networks: for each client one row [values] a network."""
        if self.networks == 1:
            return tf.stack([row for (row,) in clients])
        trainable = self.parameters // self.networks
        return tf.stack(
            [
                tf.concat([*(row[:trainable] for row in networks), *(row[trainable:] for row in networks)], 0)
                for networks in clients
            ]
        )

    def network_row(self, row: tf.Tensor, network: int = 0) -> tf.Tensor:
        """Takes the values of one network, [values], out of one client's row [values]."""
        if self.networks == 1:
            return row
        trainable, carried = self.parameters // self.networks, (row.shape[0] - self.parameters) // self.networks
        first, behind = network * trainable, self.parameters + network * carried
        return tf.concat([row[first : first + trainable], row[behind : behind + carried]], 0)

    def from_row(self, row: tf.Tensor, network: int = 0) -> list[tf.Tensor]:
        """Takes the values of one network, in their own shapes, out of one client's row [values]."""
        return split_values(self.network_row(row, network), self.own_shapes)

    def run_frozen(self, before: RowModel, matrix: tf.Tensor, inputs: tf.Tensor) -> tf.Tensor:
        """Runs the frozen units before a stage: inputs [K, batch, ...] to what they hand on, [K, batch, ...]."""
        parts, key = self._parts(matrix), tf.zeros([self.clients, 1], tf.int32)
        (outputs,), _ = before.call(parts, self.shapes, key, inputs)
        return outputs

    def _parts(self, matrix):
        """The values of each variable, [K, values], out of a matrix of rows."""
        if len(self.sizes) == self.learned:
            return tf.split(matrix, self.sizes, axis=1)
        trainable, carried = tf.split(matrix, [self.parameters, sum(self.sizes) - self.parameters], axis=1)
        # Nobody wants the gradient of what is not trained, and its products would be a third of a step.
        carried = tf.stop_gradient(carried)
        return [
            *tf.split(trainable, self.sizes[: self.learned], axis=1),
            *tf.split(carried, self.sizes[self.learned :], axis=1),
        ]

    def call(
        self, matrix: tf.Tensor, key: tf.Tensor, inputs: tf.Tensor, stage: int = 0
    ) -> tuple[list[tf.Tensor], tf.Tensor | None]:
        """Runs one training step of a stage.

        Args:
            matrix: [K, values].
            key: int32 [K, words] for dropout.
            inputs: [K, batch, ...].
            stage: Position of the stage.

        Returns:
            List of logits [K, batch, ...], route by route and exit by exit; and the carried values, which stand
            behind the trainable ones, after the step: [K, values], None where there are none.
        """
        parts, outputs = self._parts(matrix), []
        for model in self.stages[stage].models:
            logits, statistics = model.call(parts, self.shapes, key, inputs)
            outputs += logits
            for position, value in statistics:
                parts[position] = value
        return outputs, tf.concat(parts[self.learned :], 1) if len(parts) > self.learned else None
