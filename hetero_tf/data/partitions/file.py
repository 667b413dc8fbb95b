"""Loads a saved partition: `partition.npz` of a run folder, or a file of `Partition.save`.

The file is an uncompressed or compressed .npz of these arrays:

    train_ids, test_ids, held_out_ids        int32 [n]: ids of examples (rows of text), grouped by client
    train_sizes, test_sizes, held_out_sizes  int32 [clients]: number of examples of each client
    label_mask                               bool [clients, classes]: the labels that a client is trained on
    sha256                                   uint8 [32]: digest of the other arrays, see `Partition.sha256`

Ids count from 0 in the order of the data set. The two arrays of held-out examples are optional. To write such a file,
build a `Partition` of `ClientExamples` and call `save`.
"""

import numpy as np

from hetero_tf.base.constraints import Count
from hetero_tf.base.errors import InputError
from hetero_tf.data.partitions.partition import Partition, check_partition


def split(
    train_labels: np.ndarray,
    test_labels: np.ndarray,
    classes: int,
    rng: np.random.Generator,
    *,
    clients: Count,
    path: str,
) -> Partition:
    """Load a partition and check that it fits the data.

    Args:
        clients: number of clients; must equal the number in the file
        path: the .npz file, relative to the working folder
    """
    partition = Partition.load(path)
    if len(partition.train) != clients:
        raise InputError(
            f"`clients` must be {len(partition.train)}, the number of clients in {path}. Received: clients={clients}"
        )
    check_partition(partition, path, train_labels, test_labels, classes)
    return partition
