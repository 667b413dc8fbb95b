"""Assigns equal random parts to clients (IID), as in HeteroFL (arXiv 2010.01264)."""

import numpy as np

from hetero_tf.base.constraints import Count, Positive, Share
from hetero_tf.data.partitions.partition import ClientExamples, Partition, build_partition, check_clients


def split(
    train_labels: np.ndarray,
    test_labels: np.ndarray,
    classes: int,
    rng: np.random.Generator,
    *,
    clients: Count,
    held_out: Share = 0.0,
    noise: Positive | None = None,
) -> Partition:
    """Give every client floor(n / clients) examples, drawn without replacement; the rest is unused.

    The test split is divided independently in the same way; clients get no test rows of text.

    Args:
        clients: number of clients
        held_out: share of each client's training examples reserved for validation metrics, never trained on
        noise: standard deviation of Gaussian noise on the images of the last client, whose values are 0 to 1; client i
            of N, from 0, has i / (N - 1) of it, on its training and on its test examples (feature skew of NIID-Bench);
            null: none
    """
    check_clients(clients, len(train_labels))
    assigned = _assign(len(train_labels), clients, rng)
    tests = _assign(len(test_labels) if train_labels.ndim == 1 else 0, clients, rng)
    return build_partition(assigned, held_out, tests, train_labels, test_labels, classes, rng)


def _assign(examples, clients, rng):
    # Drawing without replacement for each client is the same as splitting one permutation.
    size = examples // clients
    drawn = rng.permutation(examples)[: size * clients].astype(np.int32)
    return ClientExamples.from_sizes(drawn, np.full(clients, size))
