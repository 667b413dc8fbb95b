"""The clients that the data name: each example belongs to its owner, such as the writer of a character."""

from typing import Literal

import numpy as np

from hetero_tf.base.constraints import Count, Share
from hetero_tf.base.errors import InputError
from hetero_tf.partitions import splitting
from hetero_tf.partitions.partition import Partition, label_mask


def split(
    train_labels: np.ndarray,
    test_labels: np.ndarray,
    classes: int,
    rng: np.random.Generator,
    *,
    clients: Count,
    least: Count = 1,
    held_out: Share = 0.0,
    test: Literal["own", "equal", "contiguous"] = "own",
    train_owners,
    test_owners,
) -> Partition:
    """Makes clients of the owners with enough examples; of more owners than clients, some are drawn at random.

    Args:
        train_labels: int `[n]` of images, or int `[rows, length]` of text.
        test_labels: The same for the test split; of text no client gets a test row.
        classes: Number of labels.
        rng: NumPy generator.
        clients: number of clients, at most that of the owners
        least: fewest training examples of an owner who becomes a client
        held_out: share of each client's training examples that nobody trains on, for validation metrics
        test: a client's test examples; own (those of its owner), equal or contiguous
        train_owners: The owner of each training example, int32 `[n]`, supplied with the data; None: not known.
        test_owners: The same for the test split.

    Returns:
        `Partition`; clients are in the order of their owners' numbers, and a client's labels are those that occur in
        its training examples.

    Raises:
        InputError: The data name no owners, or too few with enough examples.

    Reference: LEAF (arXiv 1812.01097) for FEMNIST, which drops writers with few examples.
    """
    if train_owners is None:
        raise InputError(
            "the partition `natural` needs data that name the owner of each example; use another partition, "
            "or data with owners"
        )
    chosen = _choose(train_owners, clients, max(least, 1), rng)
    dealt = splitting.shuffle(_of(train_owners, chosen), rng)
    train, validation = splitting.hold_out(dealt, held_out)
    if test == "own" and test_labels.ndim == 1:
        if test_owners is None:
            raise InputError(
                "`test` must be equal or contiguous: the data name no owners of test examples. Received: test='own'"
            )
        tests = _of(test_owners, chosen)
    else:
        tests = splitting.deal_test(test, train_labels, test_labels, classes, train, rng)
    return Partition(train, tests, label_mask(train_labels, train, classes), validation)


def _choose(owners, clients, least, rng):
    """Owners that become clients, ascending: int `[clients]`."""
    candidates, counts = np.unique(owners, return_counts=True)
    candidates = candidates[counts >= least]
    if not 1 <= clients <= len(candidates):
        raise InputError(
            f"`clients` must be in 1..{len(candidates)}, the number of owners with at least {least} training "
            f"examples. Received: clients={clients}"
        )
    return np.sort(rng.permutation(candidates)[:clients])


def _of(owners, chosen):
    """`ClientExamples` of the examples that belong to the chosen owners."""
    client = np.searchsorted(chosen, owners).clip(max=len(chosen) - 1)
    ids = np.flatnonzero(chosen[client] == owners)
    return splitting.group(ids, client[ids], len(chosen))
