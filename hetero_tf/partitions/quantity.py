"""Clients of unequal size with labels at random (quantity skew)."""

from typing import Annotated, Literal

import numpy as np

from hetero_tf.base.constraints import Count, Range, Share
from hetero_tf.partitions import splitting
from hetero_tf.partitions.partition import Partition, check_clients, label_mask
from hetero_tf.partitions.shares import ClientExamples


def split(
    train_labels: np.ndarray,
    test_labels: np.ndarray,
    classes: int,
    rng: np.random.Generator,
    *,
    clients: Count,
    sizes: Literal["equal", "dirichlet", "lognormal"] = "lognormal",
    spread: Annotated[float, Range(above=0.0, high=100.0)] = 1.0,
    least: Count = 1,
    shuffled: bool = True,
    held_out: Share = 0.0,
    test: Literal["own", "new", "equal", "contiguous"] = "own",
) -> Partition:
    """Cuts the examples into parts of random size; every example is used, and labels play no role.

    Args:
        train_labels: int `[n]` of images, or int `[rows, length]` of text.
        test_labels: The same for the test split; of text no client gets a test row.
        classes: Number of labels.
        rng: NumPy generator.
        clients: number of clients
        sizes: distribution of the sizes; equal, dirichlet (over clients) or lognormal
        spread: concentration of the Dirichlet distribution, where smaller is less equal; standard deviation of the
            logarithm of a size for lognormal, where larger is less equal
        least: fewest training examples of a client; the distribution divides the rest
        shuffled: whether examples are dealt at random; false: in the order of the data
        held_out: share of each client's training examples that nobody trains on, for validation metrics
        test: a client's test examples; own (as many, in proportion), new (sizes drawn anew), equal or contiguous

    Returns:
        `Partition`; a client's labels are those that occur in its training examples.

    Raises:
        InputError: More clients than examples, an option out of its range, or a client without examples.

    Reference: authors' code of FeDepth (sizes equal or dirichlet with spread 1, not shuffled, test new).
    """
    check_clients(clients, len(train_labels))
    splitting.check_least("least", least, len(train_labels), clients, "training examples")
    parts = _parts(sizes, spread, clients, rng)
    dealt = _deal(len(train_labels), clients, least, parts, shuffled, rng)
    splitting.check_all_served(
        dealt, f"use a larger least or fewer clients. Received: clients={clients}, least={least}"
    )
    train, validation = splitting.hold_out(dealt, held_out)
    if test_labels.ndim != 1:
        tests = ClientExamples.empty(clients)
    elif test in ("own", "new"):
        parts = dealt.sizes / len(train_labels) if test == "own" else _parts(sizes, spread, clients, rng)
        # A small test split need not have so many examples for each client.
        floor = 0 if test == "own" else min(least, len(test_labels) // clients)
        tests = _deal(len(test_labels), clients, floor, parts, shuffled, rng)
    else:
        tests = splitting.deal_test(test, train_labels, test_labels, classes, train, rng)
    return Partition(train, tests, label_mask(train_labels, train, classes), validation)


def _parts(sizes, spread, clients, rng):
    """Each client's part of what is divided, float64 `[clients]`, or None for equal parts."""
    if sizes == "equal":
        return None
    if sizes == "dirichlet":
        return rng.dirichlet(np.full(clients, spread))
    drawn = rng.lognormal(0.0, spread, clients)
    return drawn / drawn.sum()


def _deal(total, clients, least, parts, shuffled, rng):
    ids = rng.permutation(total) if shuffled else np.arange(total)
    return ClientExamples.from_sizes(ids.astype(np.int32), splitting.cut(total, clients, least, parts, rng))
