"""What a call of the compiled round is given of examples that stay on disk: the rows that its clients train on."""

import dataclasses

import numpy as np
import tensorflow as tf

from hetero_tf.data.disk_array import DiskArray
from hetero_tf.inputs.examples import Examples
from hetero_tf.planning.packing import PackedRounds


def reads_from_disk(examples: Examples) -> bool:
    """Whether the round is given its examples call by call, since they stay on disk."""
    return isinstance(examples.x, DiskArray)


def given_specs(examples: Examples) -> dict[str, tf.TensorSpec]:
    """The types of what `read_training_rows` reads, for any number of rows."""
    x, y = tf.TensorSpec([None, *examples.x.shape[1:]], examples.x.dtype), tf.TensorSpec([None], tf.int32)
    return {"x": x, "y": y}


def read_training_rows(
    examples: Examples, packed: PackedRounds, replicas: range
) -> tuple[PackedRounds, dict[str, tf.Tensor]]:
    """Reads the rows of some replicas' clients.

    Args:
        examples: Those of the round, whose `x` stays on disk.
        packed: Rounds whose `rows` are those of the stored split.
        replicas: Those of this process: it reads nothing for the clients of others.

    Returns:
        The same rounds, whose `rows` are positions in what was read, and the `x` and `y` of these rows. Where XLA
        compiles, so many rows are behind them that their number is the same each time.
    """
    here = packed.rows[np.isin(packed.replicas, replicas)]
    # Ascending, so that neighbours are read together. One row is there even where nobody takes a step.
    chosen = np.unique(here[here >= 0]) if (here >= 0).any() else np.zeros(1, np.int32)
    positions = np.minimum(np.searchsorted(chosen, packed.rows), len(chosen) - 1)
    rows = np.where(packed.rows < 0, -1, positions).astype(np.int32)
    if len(chosen) < examples.min_rows:
        chosen = np.pad(chosen, [0, examples.min_rows - len(chosen)], mode="edge")
    given = {"x": tf.constant(examples.x[chosen]), "y": tf.gather(examples.y, chosen)}
    return dataclasses.replace(packed, rows=rows), given
