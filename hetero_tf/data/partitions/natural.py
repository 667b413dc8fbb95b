"""Uses the natural clients of the data: each example belongs to its owner, such as the writer of a character."""

from typing import Literal

import numpy as np

from hetero_tf.base.constraints import Count, Share
from hetero_tf.base.errors import InputError
from hetero_tf.data.partitions.partition import ClientExamples, Partition, build_partition, group, shuffle


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
    """Use owners with enough examples as clients; draw a random subset if there are more owners than clients.

    Clients are sorted by the ids of their owners.

    Args:
        clients: number of clients, at most the number of owners
        least: smallest number of training examples of an owner that becomes a client
        held_out: share of each client's training examples reserved for validation metrics, never trained on
        test: test examples of a client: own (those of its owner), equal (equal numbers at random) or contiguous (equal
            numbers in data order)

    Reference: LEAF (arXiv 1812.01097) for FEMNIST, which drops writers with few examples.
    """
    if train_owners is None:
        raise InputError("the partition `natural` needs data with an owner for each example; use another partition")
    least = max(least, 1)
    candidates, counts = np.unique(train_owners, return_counts=True)
    candidates = candidates[counts >= least]
    if not 1 <= clients <= len(candidates):
        raise InputError(
            f"`clients` must be in 1..{len(candidates)}, the number of owners with at least {least} training "
            f"examples. Received: clients={clients}"
        )
    chosen = np.sort(rng.permutation(candidates)[:clients])
    assigned = shuffle(_select_owners(train_owners, chosen), rng)
    tests: str | ClientExamples = test
    if test == "own" and test_labels.ndim == 1:
        if test_owners is None:
            raise InputError(
                "`test` must be equal or contiguous: the data have no owners of test examples. Received: test='own'"
            )
        tests = _select_owners(test_owners, chosen)
    return build_partition(assigned, held_out, tests, train_labels, test_labels, classes, rng)


def _select_owners(owners, chosen):
    client = np.searchsorted(chosen, owners).clip(max=len(chosen) - 1)
    ids = np.flatnonzero(chosen[client] == owners)
    return group(ids, client[ids], len(chosen))
