"""What a device has of a recipe: its examples, its labels and its level; without TensorFlow."""

from dataclasses import dataclass

import numpy as np

from hetero_tf.base.errors import BadInput
from hetero_tf.data.dataset import Dataset
from hetero_tf.partitions.partition import Partition
from hetero_tf.planning.levels import assign
from hetero_tf.recipe.schema import Recipe


@dataclass(frozen=True)
class Share:
    """A device's part of the data.

    Attributes:
        position: Of its examples in the partition.
        level: Name of its level.
    """

    position: int
    level: str


def share_of(recipe: Recipe, partition: Partition, client: int, level: str | None) -> Share:
    """Returns what a device has.

    Args:
        recipe: Of the device.
        partition: Its split: of all clients, or of one, whose examples are then the device's own data.
        client: Its number.
        level: Name of its level; None: the recipe's for a client of that number.

    Raises:
        BadInput: The partition has several shares, but none for it; or its level is not in the mix or unknown.
    """
    clients = len(partition.train)
    if client < 0 or clients > 1 and client >= clients:
        raise BadInput(
            f"--client must be one of the {clients} clients of the recipe's partition, 0 to {clients - 1}; a device "
            f"with data of its own sets partition='{{name: iid, clients: 1}}'. Received: --client={client}"
        )
    if level is None and clients == 1:
        raise BadInput("--level is missing; a device with data of its own must say which level of the recipe it holds")
    if level is None:
        level = recipe.levels.names[assign(recipe.levels, clients, recipe.seed, 0, np.asarray([client]))[0]]
    if level not in recipe.levels.names:
        raise BadInput(f"--level must be one of the mix, {', '.join(recipe.levels.names)}. Received: --level={level}")
    return Share(0 if clients == 1 else client, level)


def own_examples(dataset: Dataset, partition: Partition, position: int) -> tuple[np.ndarray, np.ndarray | None]:
    """Returns the examples of a share and their labels, None for text."""
    rows = partition.train[position]
    return dataset.train.x[rows], None if dataset.train.y is None else dataset.train.y[rows]
