"""Assigns equal random parts to clients (IID), as in HeteroFL (arXiv 2010.01264)."""

import numpy as np

from hetero_tf.base.constraints import Count, Share
from hetero_tf.data.partitions import splitting
from hetero_tf.data.partitions.partition import Partition, check_clients, label_mask
from hetero_tf.data.partitions.shares import ClientExamples


def split(
    train_labels: np.ndarray,
    test_labels: np.ndarray,
    classes: int,
    rng: np.random.Generator,
    *,
    clients: Count,
    held_out: Share = 0.0,
) -> Partition:
    """Give every client floor(n / clients) examples, drawn without replacement; the rest is unused.

    The test split is divided independently in the same way; clients get no test rows of text.

    Args:
        train_labels: int `[n]` of images, or int `[rows, length]` of text.
        test_labels: The same for the test split.
        classes: Number of labels.
        rng: NumPy random generator.
        clients: number of clients
        held_out: share of each client's training examples reserved for validation metrics, never trained on

    Returns:
        `Partition`; the labels of a client are those of its training examples.

    Raises:
        InputError: There are more clients than examples, or `held_out` is too small for any example.
    """
    check_clients(clients, len(train_labels))
    train, validation = splitting.hold_out(_assign(len(train_labels), clients, rng), held_out)
    test = _assign(len(test_labels) if train_labels.ndim == 1 else 0, clients, rng)
    return Partition(train, test, label_mask(train_labels, train, classes), validation)


def _assign(examples, clients, rng):
    # Drawing without replacement for each client is the same as splitting one permutation.
    size = examples // clients
    drawn = rng.permutation(examples)[: size * clients].astype(np.int32)
    return ClientExamples.from_sizes(drawn, np.full(clients, size))
