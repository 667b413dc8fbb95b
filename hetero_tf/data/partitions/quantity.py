"""Assigns random parts of unequal size to clients (quantity skew)."""

from typing import Annotated, Literal

import numpy as np

from hetero_tf.base.constraints import Count, Range, Share
from hetero_tf.data.partitions.partition import (
    ClientExamples,
    Partition,
    build_partition,
    check_clients,
    check_least,
    cut,
)


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
    """Split the examples into parts of random size, independent of labels; every example is used.

    Args:
        clients: number of clients
        sizes: distribution of client sizes: equal, dirichlet (over clients) or lognormal
        spread: dirichlet: concentration, where smaller values give less equal sizes; lognormal: standard deviation of
            the logarithm of a size, where larger values give less equal sizes
        least: smallest number of training examples of a client; the distribution divides the rest
        shuffled: whether to shuffle the examples; false: in data order
        held_out: share of each client's training examples reserved for validation metrics, never trained on
        test: test examples of a client: own (in proportion to its training examples), new (sizes drawn again), equal
            (equal numbers at random) or contiguous (equal numbers in data order)

    Reference: authors' code of FeDepth (sizes equal or dirichlet with spread 1, not shuffled, test new).
    """
    check_clients(clients, len(train_labels))
    check_least("least", least, len(train_labels), clients, "training examples")
    proportions = _draw_proportions(sizes, spread, clients, rng)
    assigned = _assign(len(train_labels), clients, least, proportions, shuffled, rng)
    tests: str | ClientExamples = test
    if test in ("own", "new") and test_labels.ndim == 1:
        # A small test split may not have `least` examples for each client.
        smallest = 0 if test == "own" else min(least, len(test_labels) // clients)
        is_new, shares = test == "new", assigned.sizes / len(train_labels)
        proportions = _draw_proportions(sizes, spread, clients, rng) if is_new else shares
        tests = _assign(len(test_labels), clients, smallest, proportions, shuffled, rng)
    return build_partition(assigned, held_out, tests, train_labels, test_labels, classes, rng)


def _draw_proportions(sizes, spread, clients, rng):
    """Draw each client's proportion, float64 `[clients]`; None for equal proportions."""
    if sizes == "equal":
        return None
    if sizes == "dirichlet":
        return rng.dirichlet(np.full(clients, spread))
    drawn = rng.lognormal(0.0, spread, clients)
    return drawn / drawn.sum()


def _assign(total, clients, least, proportions, shuffled, rng):
    ids = rng.permutation(total) if shuffled else np.arange(total)
    return ClientExamples.from_sizes(ids.astype(np.int32), cut(total, clients, least, proportions, rng))
