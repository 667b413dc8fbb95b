"""Dirichlet label distribution with clients of unequal size (unbalanced, capped)."""

from typing import Literal

import numpy as np

from hetero_tf.base.constraints import Count, Positive, Share
from hetero_tf.base.errors import InputError
from hetero_tf.data.partitions.partition import Partition, build_partition, check_labels, check_least, group, shuffle

ATTEMPTS = 1000


def split(
    train_labels: np.ndarray,
    test_labels: np.ndarray,
    classes: int,
    rng: np.random.Generator,
    *,
    clients: Count,
    alpha: Positive,
    least: Count = 10,
    held_out: Share = 0.0,
    test: Literal["own", "equal", "contiguous"] = "own",
) -> Partition:
    """Divide each label among clients by a Dirichlet draw, repeated until every client has enough examples.

    A client with at least n / clients examples gets no more of the following labels. Without this cap, sizes would vary
    more than in the papers.

    Args:
        clients: number of clients
        alpha: concentration of the Dirichlet distribution; smaller values give clients fewer labels
        least: smallest number of training examples of a client; other draws are repeated
        held_out: share of each client's training examples reserved for validation metrics, never trained on
        test: test examples of a client: own (same labels as its training examples), equal (equal numbers at random) or
            contiguous (equal numbers in data order)

    Reference: probabilistic federated neural matching (arXiv 1905.12022), as used by FeDepth and DepthFL with `least`
    50 and 10.
    """
    check_labels("dirichlet", train_labels, clients)
    check_least("least", least, len(train_labels), clients, "training examples")
    ids_by_label, best = [np.flatnonzero(train_labels == label) for label in range(classes)], 0
    for _ in range(ATTEMPTS):
        assigned = _draw(ids_by_label, len(train_labels), clients, alpha, rng)
        best = max(best, int(assigned.sizes.min()))
        if best >= max(least, 1):
            assigned = shuffle(assigned, rng)
            return build_partition(assigned, held_out, test, train_labels, test_labels, classes, rng)
    raise InputError(
        f"none of {ATTEMPTS} Dirichlet draws gave every client {least} training examples, at best {best}; "
        f"use a larger alpha, fewer clients or a smaller least. Received: {clients=}, {alpha=}, {least=}"
    )


def _draw(ids_by_label, total, clients, alpha, rng):
    sizes, shuffled, owners = np.zeros(clients, np.int64), [], []
    for ids in ids_by_label:
        shuffled.append(rng.permutation(ids))
        proportions = rng.dirichlet(np.full(clients, alpha)) * (sizes < total / clients)
        # The draw may give everything to clients that are already full; then use equal proportions.
        proportions = proportions / proportions.sum() if proportions.sum() > 0 else np.full(clients, 1 / clients)
        ends = (np.cumsum(proportions)[:-1] * len(ids)).astype(np.int64)
        added = np.diff(ends, prepend=0, append=len(ids))
        owners.append(np.repeat(np.arange(clients), added))
        sizes += added
    return group(np.concatenate(shuffled), np.concatenate(owners), clients)
