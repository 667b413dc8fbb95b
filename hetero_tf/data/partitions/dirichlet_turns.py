"""Dirichlet label distribution, drawn in turns, with equal or lognormal sizes (balanced, or quantity skew)."""

import math
from typing import Annotated, Literal

import numpy as np

from hetero_tf.base.constraints import Count, Positive, Range, Share
from hetero_tf.data.partitions.partition import (
    Partition,
    build_partition,
    check_labels,
    group,
    ranges,
    shuffle_within_labels,
)

# Turns per vectorised draw, which bounds the memory.
BLOCK = 2**12


def split(
    train_labels: np.ndarray,
    test_labels: np.ndarray,
    classes: int,
    rng: np.random.Generator,
    *,
    clients: Count,
    alpha: Positive,
    sigma: Annotated[float, Range(low=0.0, high=10.0)] = 0.0,
    held_out: Share = 0.0,
    test: Literal["own", "equal", "contiguous"] = "own",
) -> Partition:
    """Let clients draw examples in random turns, each with a label drawn from the client's distribution.

    Every example is used. When a label is exhausted, the others keep their relative probabilities. A client without
    remaining labels draws from all remaining examples.

    Args:
        clients: number of clients
        alpha: concentration of the Dirichlet distribution; smaller values give clients fewer labels
        sigma: standard deviation of the logarithm of client sizes; 0: equal sizes
        held_out: share of each client's training examples reserved for validation metrics, never trained on
        test: test examples of a client: own (same labels as its training examples), equal (equal numbers at random) or
            contiguous (equal numbers in data order)

    Reference: authors' code of FedDyn (arXiv 2111.04263) and FedDC (arXiv 2203.11751).
    """
    check_labels("dirichlet_turns", train_labels, clients)
    total, shuffled = len(train_labels), shuffle_within_labels(train_labels, rng)
    drawn = rng.lognormal(math.log(total // clients), sigma, clients)
    sizes = (drawn / drawn.sum() * total).astype(np.int64)
    sizes[0] += total - sizes.sum()
    priors = rng.dirichlet(np.full(classes, alpha), size=clients)
    turns = rng.permutation(np.repeat(np.arange(clients), sizes))
    remaining = np.bincount(train_labels, minlength=classes)
    label = _draw_labels(turns, priors, remaining.copy(), rng)
    # Count down as in the authors' code: a label's last example is used first, a client's last slot is filled first.
    ids = shuffled[np.cumsum(remaining)[label] - 1 - _previous_counts(label)]
    assigned = group(ids[::-1], turns[::-1], clients)
    return build_partition(assigned, held_out, test, train_labels, test_labels, classes, rng)


def _draw_labels(turns, priors, remaining, rng):
    """Draw the label of each turn, int64 `[turns]`; `remaining` is reduced to 0 in place."""
    labels = np.empty(len(turns), np.int64)
    for first in range(0, len(turns), BLOCK):
        waiting = np.arange(first, min(first + BLOCK, len(turns)))
        while waiting.size:
            chances = priors[turns[waiting]] * (remaining > 0)
            chances[chances.sum(axis=1) == 0] = remaining
            ends = np.cumsum(chances, axis=1)
            drawn = (rng.random(len(waiting))[:, None] * ends[:, -1:] > ends).sum(axis=1)
            # Redraw from the first turn whose label is exhausted: the probabilities change there.
            late = _previous_counts(drawn) >= remaining[drawn]
            accepted = np.argmax(late) if late.any() else len(late)
            labels[waiting[:accepted]] = drawn[:accepted]
            remaining -= np.bincount(drawn[:accepted], minlength=len(remaining))
            waiting = waiting[accepted:]
    return labels


def _previous_counts(values):
    """Count the earlier occurrences of each value: int64 of the same length."""
    order = np.argsort(values, kind="stable")
    counts = np.bincount(values)
    previous = np.empty(len(values), np.int64)
    previous[order] = ranges(np.zeros(len(counts), np.int64), counts)
    return previous
