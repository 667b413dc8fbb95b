"""A partition that was saved before: the `partition.npz` of a run folder, or what `Partition.save` wrote.

The file is an uncompressed or compressed .npz of these arrays:

    train_ids, test_ids, held_out_ids        int32 [n]: ids of examples (rows of text), client after client
    train_sizes, test_sizes, held_out_sizes  int32 [clients]: how many of them each client has
    label_mask                               bool [clients, classes]: the labels that a client is trained on
    sha256                                   uint8 [32]: digest of all the others, see `Partition.sha256`

An id counts from 0 in the order of the data set; the two arrays of held-out examples may be missing. To make one of
your own, build a `Partition` of `ClientExamples` and call its `save`.
"""

import numpy as np

from hetero_tf.base.constraints import Count
from hetero_tf.base.errors import InputError
from hetero_tf.partitions.partition import Partition, label_mask


def split(
    train_labels: np.ndarray,
    test_labels: np.ndarray,
    classes: int,
    rng: np.random.Generator,
    *,
    clients: Count,
    path: str,
) -> Partition:
    """Loads a partition and checks that it belongs to these data.

    Args:
        train_labels: int `[n]` of images, or int `[rows, length]` of text.
        test_labels: The same for the test split.
        classes: Number of labels.
        rng: Not used: nothing is drawn.
        clients: number of clients, which must be that of the file
        path: the .npz file; a relative path starts from the working folder

    Returns:
        `Partition` of the file.

    Raises:
        InputError: The file is missing or damaged, has a client without examples, or belongs to other data or
            another number of clients.
    """
    partition = Partition.load(path)
    if len(partition.train) != clients:
        raise InputError(f"`clients` must be that of {path}, {len(partition.train)}. Received: clients={clients}")
    if partition.label_mask.shape[1] != classes:
        raise InputError(
            f"{path}: belongs to data with {partition.label_mask.shape[1]} labels. Received: {classes} labels"
        )
    for name, shares, labels in (
        ("train", partition.train, train_labels),
        ("held-out", partition.held_out, train_labels),
        ("test", partition.test, test_labels),
    ):
        highest = int(np.max(shares.ids, initial=-1))
        if highest >= len(labels):
            raise InputError(
                f"{path}: belongs to other data: {name} example {highest} is asked for. "
                f"Received: {len(labels)} examples"
            )
    empty = np.flatnonzero(partition.train.sizes == 0)
    if empty.size:
        raise InputError(f"{path}: every client must have a training example. Received: none of client {empty[0]}")
    # A label outside its mask would be trained towards a logit that is masked out.
    client = np.flatnonzero((label_mask(train_labels, partition.train, classes) & ~partition.label_mask).any(axis=1))
    if client.size:
        raise InputError(
            f"{path}: belongs to other data: examples of client {client[0]} have labels that its `label_mask` lacks"
        )
    return partition
