"""Blocks: K clients of one level computed together, each client's values as one row of a matrix.

One row instead of dozens of variables makes an optimiser step a handful of operations, which are most of the cost of a
narrow model. Clients of a block share the rest of the operations.
"""

from dataclasses import dataclass

import keras
import tensorflow as tf

from hetero_tf.models.state import split_values
from hetero_tf.rounds.row_model import RowShape
from hetero_tf.rounds.training_step import JointStep, SummedStep


@dataclass(frozen=True)
class BlockStage:
    """The steps of a block in one stage.

    Attributes:
        joint: The same step with all routes under one tape, for probes and reports.
        trained: For each trainable variable, whether the steps train it. If None, they train all.
        before: The frozen units, if the steps start after them and read their outputs from a buffer.
    """

    step: JointStep | SummedStep
    joint: JointStep
    trained: tuple[bool, ...] | None
    before: JointStep | None


@dataclass(frozen=True)
class ClientBlock(RowShape):
    """Layout and steps of the clients of one level that are computed together.

    A row has the trainable values of a client's network and of its peers, then their constants and running statistics.

    Attributes:
        networks: Number of networks of a client: 1 and its peers.
        stages: `BlockStage` of each stage.
    """

    clients: int
    networks: int
    stages: tuple[BlockStage, ...]

    @property
    def client_shapes(self) -> list[tuple[int, ...]]:
        """Shapes of the values of a client's first network, the one that it returns."""
        trainable, carried = self.learned // self.networks, (len(self.shapes) - self.learned) // self.networks
        return [*self.shapes[:trainable], *self.shapes[self.learned : self.learned + carried]]

    @property
    def models(self) -> list[keras.Model]:
        """Models of all stages and routes, and of the frozen units before them."""
        steps = [step for stage in self.stages for step in (stage.joint, stage.before) if step is not None]
        return [row_model.model for step in steps for row_model in step.models]

    @property
    def loops(self) -> list[list[int]]:
        """Positions of the stages of each training loop: all in one loop, or one a loop if buffers are filled."""
        numbers = range(len(self.stages))
        return [[number] for number in numbers] if any(stage.before for stage in self.stages) else [list(numbers)]

    def join_networks(self, networks: list[tf.Tensor]) -> tf.Tensor:
        """Join the rows of each network, [K, values of a network], to the rows of clients, [K, values]."""
        if self.networks == 1:
            return networks[0]
        # All trainable values come first, network by network, then all carried ones.
        trainable = self.parameters // self.networks
        return tf.concat([*(rows[:, :trainable] for rows in networks), *(rows[:, trainable:] for rows in networks)], 1)

    def network_rows(self, rows: tf.Tensor, network: int = 0) -> tf.Tensor:
        """Invert `join_networks` for one network: [K, values] to [K, values of a network]."""
        if self.networks == 1:
            return rows
        trainable, carried = self.parameters // self.networks, (rows.shape[1] - self.parameters) // self.networks
        # A network has one slice of each of the two groups.
        trainable_start, carried_start = network * trainable, self.parameters + network * carried
        return tf.concat(
            [rows[:, trainable_start : trainable_start + trainable], rows[:, carried_start : carried_start + carried]],
            1,
        )

    def values_of(self, row: tf.Tensor, network: int = 0) -> list[tf.Tensor]:
        """Split the values of one network, in their shapes, from one client's row [values]."""
        return split_values(self.network_rows(row[None], network)[0], self.client_shapes)
