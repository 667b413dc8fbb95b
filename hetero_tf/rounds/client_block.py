"""Blocks: K clients of one level computed together, each client's values as one row of a matrix.

One row instead of dozens of variables makes an optimiser step a handful of operations, which are most of the cost of a
narrow model. Clients of a block share the rest of the operations.
"""

import math
from dataclasses import dataclass

import tensorflow as tf

from hetero_tf.rounds.global_row import split_values
from hetero_tf.rounds.row_model import RowModel
from hetero_tf.rounds.width_step import WidthStepOnRow


@dataclass(frozen=True)
class StageStep:
    """Models and options of the steps of one stage.

    Attributes:
        models: `RowModel` of each route.
        trained: For each trainable variable, whether the steps train it; None: they train all.
        before: The frozen units, if the steps start after them and read their outputs from a buffer.
        shared: The step of each route that other levels share; empty if no other level does.
    """

    models: tuple[RowModel, ...]
    trained: tuple[bool, ...] | None
    before: RowModel | None
    shared: tuple[WidthStepOnRow, ...] = ()


@dataclass(frozen=True)
class ClientBlock:
    """Layout and models of the clients of one level that are computed together.

    Attributes:
        clients: K.
        shapes: Of one client's values: the trainable ones of its network and of its peers, then their carried ones:
            constants and running statistics.
        learned: Number of trainable variables among them.
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
    def client_shapes(self) -> list[tuple[int, ...]]:
        """Shapes of the values of a client's first network, the one that it returns."""
        trainable, carried = self.learned // self.networks, (len(self.shapes) - self.learned) // self.networks
        return [*self.shapes[:trainable], *self.shapes[self.learned : self.learned + carried]]

    @property
    def loops(self) -> list[list[int]]:
        """Positions of the stages of each training loop: all in one loop, or one a loop if buffers are filled."""
        numbers = range(len(self.stages))
        return [[number] for number in numbers] if any(stage.before for stage in self.stages) else [list(numbers)]

    def to_rows(self, clients: list[list[tf.Tensor]]) -> tf.Tensor:
        """Pack the rows of K clients, one row [values] for each network, into a matrix [K, values]."""
        if self.networks == 1:
            return tf.stack([row for (row,) in clients])
        # All trainable values come first, network by network, then all carried ones.
        trainable = self.parameters // self.networks
        return tf.stack(
            [
                tf.concat([*(row[:trainable] for row in networks), *(row[trainable:] for row in networks)], 0)
                for networks in clients
            ]
        )

    def network_row(self, row: tf.Tensor, network: int = 0) -> tf.Tensor:
        """Slice the values of one network, [values], from one client's row [values]."""
        if self.networks == 1:
            return row
        trainable, carried = self.parameters // self.networks, (row.shape[0] - self.parameters) // self.networks
        # A network has one slice of each of the two groups.
        trainable_start, carried_start = network * trainable, self.parameters + network * carried
        return tf.concat(
            [row[trainable_start : trainable_start + trainable], row[carried_start : carried_start + carried]], 0
        )

    def from_row(self, row: tf.Tensor, network: int = 0) -> list[tf.Tensor]:
        """Slice the values of one network, in their shapes, from one client's row [values]."""
        return split_values(self.network_row(row, network), self.client_shapes)

    def run_frozen(self, before: RowModel, matrix: tf.Tensor, inputs: tf.Tensor) -> tf.Tensor:
        """Run the frozen units before a stage: inputs [K, batch, ...] to their outputs, [K, batch, ...]."""
        values, key = self._split_matrix(matrix), tf.zeros([self.clients, 1], tf.int32)
        (outputs,), _ = before.call(values, self.shapes, key, inputs)
        return outputs

    def _split_matrix(self, matrix):
        """Split a matrix of rows into the values of each variable, [K, values]."""
        if len(self.sizes) == self.learned:
            return tf.split(matrix, self.sizes, axis=1)
        trainable, carried = tf.split(matrix, [self.parameters, sum(self.sizes) - self.parameters], axis=1)
        # Stop gradients of carried values: their products would be a third of a step.
        carried = tf.stop_gradient(carried)
        return [
            *tf.split(trainable, self.sizes[: self.learned], axis=1),
            *tf.split(carried, self.sizes[self.learned :], axis=1),
        ]

    def call(
        self, matrix: tf.Tensor, key: tf.Tensor, inputs: tf.Tensor, stage: int = 0
    ) -> tuple[list[tf.Tensor], tf.Tensor | None]:
        """Run one training step of a stage.

        Args:
            matrix: [K, values].
            key: int32 [K, words] for dropout.
            inputs: [K, batch, ...].
            stage: Position of the stage.

        Returns:
            List of logits [K, batch, ...], route by route and exit by exit; and the carried values after the step,
            [K, values], or None if there are none.
        """
        # Each route reads the running statistics that the routes before it have updated.
        values, outputs = self._split_matrix(matrix), []
        for model in self.stages[stage].models:
            logits, statistics = model.call(values, self.shapes, key, inputs)
            outputs += logits
            for position, value in statistics:
                values[position] = value
        # Trainable values do not change here: the optimizer's step follows outside.
        return outputs, tf.concat(values[self.learned :], 1) if len(values) > self.learned else None
