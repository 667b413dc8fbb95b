"""Rows of on-disk examples for one call of the compiled round: those that its clients train on."""

import numpy as np
import tensorflow as tf

from hetero_tf.data.inputs.examples import Examples
from hetero_tf.planning.packing import PackedRounds


def row_specs(examples: Examples) -> dict[str, tf.TensorSpec]:
    """Return the types of the values of `read_training_rows`, for any number of rows."""
    arrays = {"x": examples.x, "y": examples.y}
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
    return packed._replace(rows=rows), values
