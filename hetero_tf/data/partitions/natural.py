"""Uses the natural clients of the data: each example belongs to its owner, such as the writer of a character."""

from typing import Literal

import numpy as np

from hetero_tf.base.constraints import Count, Share
from hetero_tf.base.errors import InputError
from hetero_tf.data.partitions import splitting
from hetero_tf.data.partitions.partition import Partition, label_mask


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

    Args:
        train_labels: int `[n]` of images, or int `[rows, length]` of text.
        test_labels: The same for the test split; clients get no test rows of text.
        classes: Number of labels.
        rng: NumPy random generator.
        clients: number of clients, at most the number of owners
        least: smallest number of training examples of an owner that becomes a client
        held_out: share of each client's training examples reserved for validation metrics, never trained on
        test: test examples of a client: own (those of its owner), equal (equal numbers at random) or contiguous (equal
            numbers in data order)
        train_owners: The owner of each training example, int32 `[n]`, from the data set; None: unknown.
        test_owners: The same for the test split.

    Returns:
        `Partition`; clients are sorted by the ids of their owners, and the labels of a client are those of its training
        examples.

    Raises:
        InputError: The data have no owners, or too few owners with enough examples.

    Reference: LEAF (arXiv 1812.01097) for FEMNIST, which drops writers with few examples.
    """
    if train_owners is None:
        raise InputError(
            "the partition `natural` needs data with an owner for each example; use another partition, or data with "
            "owners"
        )
    chosen = _choose_owners(train_owners, clients, max(least, 1), rng)
    assigned = splitting.shuffle(_select_owners(train_owners, chosen), rng)
    train, validation = splitting.hold_out(assigned, held_out)
    if test == "own" and test_labels.ndim == 1:
        if test_owners is None:
            raise InputError(
                "`test` must be equal or contiguous: the data have no owners of test examples. Received: test='own'"
            )
        tests = _select_owners(test_owners, chosen)
    else:
        tests = splitting.split_test(test, train_labels, test_labels, classes, train, rng)
    return Partition(train, tests, label_mask(train_labels, train, classes), validation)


def _choose_owners(owners, clients, least, rng):
    """Select the owners that become clients, sorted: int `[clients]`."""
    candidates, counts = np.unique(owners, return_counts=True)
    candidates = candidates[counts >= least]
    if not 1 <= clients <= len(candidates):
        raise InputError(
            f"`clients` must be in 1..{len(candidates)}, the number of owners with at least {least} training "
            f"examples. Received: clients={clients}"
        )
    return np.sort(rng.permutation(candidates)[:clients])


def _select_owners(owners, chosen):
    """Return the `ClientExamples` of the selected owners."""
    client = np.searchsorted(chosen, owners).clip(max=len(chosen) - 1)
    ids = np.flatnonzero(chosen[client] == owners)
    return splitting.group(ids, client[ids], len(chosen))
