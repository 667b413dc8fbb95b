"""Dirichlet label distribution with clients of equal size that draw in sequence (balanced)."""

from typing import Literal

import numpy as np

from hetero_tf.base.constraints import Count, Positive, Share
from hetero_tf.data.partitions.partition import (
    Partition,
    build_partition,
    check_labels,
    group,
    ranges,
    shuffle,
    shuffle_within_labels,
)

# Smallest weight: a label of probability 0 is still used when no other label remains.
SMALLEST = 1e-290


def split(
    train_labels: np.ndarray,
    test_labels: np.ndarray,
    classes: int,
    rng: np.random.Generator,
    *,
    clients: Count,
    alpha: Positive,
    held_out: Share = 0.0,
    test: Literal["own", "equal", "contiguous"] = "own",
) -> Partition:
    """Give every client floor(n / clients) examples, weighted by label; the rest is unused.

    In sequence, each client draws label weights from a Dirichlet distribution, then examples without replacement with
    probability proportional to the weight of their label. The probability of a label is thus its weight times its
    remaining examples, and the last clients get the remaining labels. The loop over clients takes about half a minute
    for a million clients.

    Args:
        clients: number of clients
        alpha: concentration of the Dirichlet distribution; smaller values give clients fewer labels
        held_out: share of each client's training examples reserved for validation metrics, never trained on
        test: test examples of a client: own (same labels as its training examples), equal (equal numbers at random) or
            contiguous (equal numbers in data order)

    Reference: FeDepth authors' code, "balanced-dir".
    """
    check_labels("dirichlet_equal", train_labels, clients)
    size = len(train_labels) // clients
    # Examples of a label are interchangeable: a draw of the label uses its next example in random order.
    shuffled = shuffle_within_labels(train_labels, rng)
    remaining = np.bincount(train_labels, minlength=classes)
    ends = np.cumsum(remaining)
    weights = np.maximum(rng.dirichlet(np.full(classes, alpha), size=clients), SMALLEST)
    positions = np.empty((clients, size), np.int64)
    for client in range(clients):
        counts = _draw_label_counts(weights[client], remaining, size, rng)
        positions[client] = ranges(ends - remaining, counts)
        remaining -= counts
    assigned = group(shuffled[positions.reshape(-1)], np.repeat(np.arange(clients), size), clients)
    assigned = shuffle(assigned, rng)
    return build_partition(assigned, held_out, test, train_labels, test_labels, classes, rng)


def _draw_label_counts(weights, remaining, count, rng):
    """Count the labels of `count` examples drawn by weight without replacement: int64 `[classes]`.

    Weighted sampling without replacement is a race of exponential clocks: the examples are the first `count` arrivals.
    Within a label, the gaps between arrivals are exponential too, scaled by the number of waiting examples.
    """
    waiting = remaining[:, None] - np.arange(count)
    intervals = rng.standard_exponential(waiting.shape) / (weights[:, None] * np.maximum(waiting, 1))
    times = np.where(waiting > 0, np.cumsum(intervals, axis=1), np.inf)
    first = np.argpartition(times, count - 1, axis=None)[:count]
    return np.bincount(first // count, minlength=len(remaining))
