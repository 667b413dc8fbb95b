"""Batches that the clients of a block read in each tick of their training, inside the graph of a round."""

from dataclasses import dataclass

import numpy as np
import tensorflow as tf

from hetero_tf.data.inputs import Examples, Labels, all_labels
from hetero_tf.models.cut import Cut
from hetero_tf.planning.packing import BlockPlan, PackedRounds
from hetero_tf.rounds.submodel_cut import positions_in


@dataclass(frozen=True)
class Batches:
    """Reader of the batches of a block's clients.

    Attributes:
        plan: The examples and the stage of each tick.
        clients: int32 [K], rows of the clients in `examples`.
    """

    examples: Examples
    plan: BlockPlan
    clients: tf.Tensor
    label_axis: Labels

    @property
    def shapes(self) -> tuple[tuple[int, int] | None, ...]:
        """Every (examples, positions) of a batch, for XLA, which compiles each; None as the only one: dynamic."""
        return self.examples.batch_shapes

    @property
    def max_ticks(self) -> tf.Tensor:
        """Scalar int32 >= plan.ticks, the length of the records."""
        return tf.shape(self.plan.rows)[1]

    def read(
        self, tick: tf.Tensor, key: tf.Tensor, shape: tuple[int, int] | None
    ) -> tuple[tf.Tensor, tf.Tensor | tuple[tf.Tensor, tf.Tensor]]:
        """Read the inputs and targets of a tick, [K, batch, ...]; an idle client reads its first row.

        If examples have weights, the targets are a pair with the weights, [K, batch].

        Args:
            key: int32 [K, words] for random numbers.
            shape: One of `shapes`.
        """
        examples, num_examples = self.examples, tf.reduce_max(self._counts(tick)) if shape is None else shape[0]
        # int32 [K, batch] without padding.
        rows = tf.maximum(self.plan.rows[:, tick, :num_examples], 0)
        rows = rows if shape is None else tf.ensure_shape(rows, [self.clients.shape[0], num_examples])
        start, length = self.plan.starts[tick], None if shape is None else shape[1]
        inputs, targets = examples.input.batch(
            examples.x, examples.y, rows, start, key, self.label_axis, training=True, length=length
        )
        return inputs, targets if examples.weights is None else (targets, tf.gather(examples.weights, rows))

    def _counts(self, tick):
        """Return int32 [K], the number of examples that each client reads in a tick; 0 if it is idle."""
        return tf.math.count_nonzero(self.plan.rows[:, tick] >= 0, axis=1, dtype=tf.int32)

    def shape_at(self, tick: tf.Tensor) -> tf.Tensor | int:
        """Return the position of a tick's batch shape in `shapes`."""
        if len(self.shapes) == 1:
            return 0
        # The largest client of the block determines the number of examples.
        length = self.examples.input.length(self.examples.x, self.plan.starts[tick])
        shape = tf.stack([tf.reduce_max(self._counts(tick)), length])
        return tf.argmax(tf.reduce_all(shape == tf.constant(self.shapes), axis=1), output_type=tf.int32)

    def stage_at(self, tick: tf.Tensor) -> tf.Tensor:
        """Return the position of a tick's stage in the stages of the block."""
        return self.plan.stages[tick]

    def is_active(self, tick: tf.Tensor) -> tf.Tensor | None:
        """Return bool [K], False for idle clients, or None: a single client is active in each of its ticks."""
        return self._counts(tick) > 0 if self.clients.shape[0] > 1 else None


def labels_of(examples: Examples, client: tf.Tensor) -> tf.Tensor:
    """Return the labels of a client's label axis, int32 [label axis], -1 = padding.

    Args:
        client: Scalar int32.
    """
    return tf.range(examples.present.shape[1]) if examples.labels is None else tf.gather(examples.labels, client)


def label_axis_of(examples: Examples, cut: Cut, labels: list[tf.Tensor]) -> Labels:
    """Return the `Labels` of a block's clients.

    Args:
        labels: The result of `labels_of` for each client.
    """
    if examples.labels is None:
        return all_labels(examples.present.shape[1])
    count, classes = labels[0].shape[0], global_classes(examples, cut)
    # An idle client reads another client's example, whose label may be missing on its axis.
    positions = tf.stack([tf.minimum(positions_in(label, classes), count - 1) for label in labels])
    return Labels(local=lambda targets: tf.gather(positions, targets, batch_dims=1), count=count)


def global_classes(examples: Examples, cut: Cut) -> int:
    """Return the length of the global label axis."""
    if examples.labels is None:
        return examples.present.shape[1]
    return next(axis for axis in cut.distinct if axis.label).size


def row_specs(examples: Examples) -> dict[str, tf.TensorSpec]:
    """Return the types of the values of `read_training_rows`, for any number of rows."""
    arrays = {"x": examples.x, "y": examples.y, "weights": examples.weights}
    return {
        name: tf.TensorSpec([None, *array.shape[1:]], array.dtype)
        for name, array in arrays.items()
        if array is not None
    }


def read_training_rows(
    examples: Examples, packed: PackedRounds, replicas: range
) -> tuple[PackedRounds, dict[str, tf.Tensor]]:
    """Read the rows of some replicas' clients.

    Args:
        examples: Those of the round, whose `x` stays on disk.
        packed: Rounds whose `rows` are those of the stored split.
        replicas: Those of this process: rows of clients of other processes are not read.

    Returns:
        The same rounds, whose `rows` are positions in the read values, and the `x` and `y` of these rows. With XLA
        the rows are padded to a constant number.
    """
    local_rows = packed.rows[np.isin(packed.replicas, replicas)]
    # Ascending, so that adjacent rows are read together; at least one row, even if no client takes a step.
    row_ids = np.unique(local_rows[local_rows >= 0]) if (local_rows >= 0).any() else np.zeros(1, np.int32)
    # Index of each row among the read ones; padding remains -1.
    positions = np.minimum(np.searchsorted(row_ids, packed.rows), len(row_ids) - 1)
    rows = np.where(packed.rows < 0, -1, positions).astype(np.int32)
    if len(row_ids) < examples.min_rows:
        row_ids = np.pad(row_ids, [0, examples.min_rows - len(row_ids)], mode="edge")
    values = {"x": tf.constant(examples.x[row_ids]), "y": tf.gather(examples.y, row_ids)}
    if examples.weights is not None:
        values["weights"] = tf.gather(examples.weights, row_ids)
    return packed._replace(rows=rows), values
