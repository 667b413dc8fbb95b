"""Dirichlet shares of every label, with clients of unequal size (unbalanced, capped)."""

from typing import Literal

import numpy as np

from hetero_tf.base.constraints import Count, Positive, Share
from hetero_tf.base.errors import InputError
from hetero_tf.partitions import splitting
from hetero_tf.partitions.partition import Partition, check_clients, label_mask

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
    """Cuts the examples of each label by a Dirichlet draw over clients, until every client has enough.

    A client that already has its equal part, n / clients, gets nothing of the following labels. Without this cap the
    sizes would spread more than those of the papers.

    Args:
        train_labels: int `[n]`.
        test_labels: int `[n]`.
        classes: Number of labels.
        rng: NumPy generator.
        clients: number of clients
        alpha: concentration of the Dirichlet distribution; the smaller, the fewer labels a client has
        least: fewest training examples of a client; draws with a smaller client are repeated
        held_out: share of each client's training examples that nobody trains on, for validation metrics
        test: a client's test examples; own (labels as in its training examples), equal or contiguous

    Returns:
        `Partition`; a client's labels are those that occur in its training examples.

    Raises:
        InputError: Text, impossible numbers, or no draw in which every client has `least` examples.

    Reference: probabilistic federated neural matching (arXiv 1905.12022), as FeDepth and DepthFL use it, with
    `least` 50 and 10.
    """
    splitting.check_images("dirichlet", train_labels)
    check_clients(clients, len(train_labels))
    splitting.check_least("least", least, len(train_labels), clients, "training examples")
    dealt = splitting.shuffle(_enough(train_labels, classes, clients, alpha, max(least, 1), rng), rng)
    train, validation = splitting.hold_out(dealt, held_out)
    tests = splitting.deal_test(test, train_labels, test_labels, classes, train, rng)
    return Partition(train, tests, label_mask(train_labels, train, classes), validation)


def _enough(labels, classes, clients, alpha, least, rng):
    """`ClientExamples` of the first draw in which every client has `least` examples."""
    ids_of = [np.flatnonzero(labels == label) for label in range(classes)]
    best = 0
    for _ in range(ATTEMPTS):
        shares = _draw(ids_of, len(labels), clients, alpha, rng)
        best = max(best, int(shares.sizes.min()))
        if best >= least:
            return shares
    raise InputError(
        f"none of {ATTEMPTS} Dirichlet draws gave every client {least} training examples, at best {best}; "
        f"use a larger alpha, fewer clients or a smaller least. Received: clients={clients}, alpha={alpha}, "
        f"least={least}"
    )


def _draw(ids_of, total, clients, alpha, rng):
    sizes, mixed, owners = np.zeros(clients, np.int64), [], []
    for ids in ids_of:
        mixed.append(rng.permutation(ids))
        parts = rng.dirichlet(np.full(clients, alpha)) * (sizes < total / clients)
        # All of a draw may be on clients that are full already; then nothing is left to scale.
        parts = parts / parts.sum() if parts.sum() > 0 else np.full(clients, 1 / clients)
        ends = (np.cumsum(parts)[:-1] * len(ids)).astype(np.int64)
        added = np.diff(ends, prepend=0, append=len(ids))
        owners.append(np.repeat(np.arange(clients), added))
        sizes += added
    return splitting.group(np.concatenate(mixed), np.concatenate(owners), clients)
