"""Dirichlet labels of every client, drawn in turns, with equal or lognormal sizes (balanced, and quantity skew)."""

import math
from typing import Annotated, Literal

import numpy as np

from hetero_tf.base.constraints import Count, Positive, Range, Share
from hetero_tf.partitions import splitting
from hetero_tf.partitions.partition import Partition, check_clients, label_mask

# Turns whose labels are drawn at once, which bounds the memory.
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
    """Clients take examples in random turns, each of a label drawn from the client's own distribution.

    Every example is used. Where a label is used up, the others keep the proportions of their chances; where a client
    has no other, it takes from all that is left.

    Args:
        train_labels: int `[n]`.
        test_labels: int `[n]`.
        classes: Number of labels.
        rng: NumPy generator.
        clients: number of clients
        alpha: concentration of the Dirichlet distribution; the smaller, the fewer labels a client has
        sigma: standard deviation of the logarithm of a client's size; 0: equal sizes
        held_out: share of each client's training examples that nobody trains on, for validation metrics
        test: a client's test examples; own (labels as in its training examples), equal or contiguous

    Returns:
        `Partition`; a client's labels are those that occur in its training examples.

    Raises:
        InputError: Text, more clients than examples, an option out of its range, or a client without examples.

    Reference: authors' code of FedDyn (arXiv 2111.04263) and FedDC (arXiv 2203.11751).
    """
    splitting.check_images("dirichlet_turns", train_labels)
    check_clients(clients, len(train_labels))
    dealt = _deal(train_labels, classes, clients, alpha, sigma, rng)
    splitting.check_all_served(dealt, f"lower sigma or use fewer clients. Received: clients={clients}, sigma={sigma}")
    train, validation = splitting.hold_out(dealt, held_out)
    tests = splitting.deal_test(test, train_labels, test_labels, classes, train, rng)
    return Partition(train, tests, label_mask(train_labels, train, classes), validation)


def _deal(labels, classes, clients, alpha, sigma, rng):
    mixed = rng.permutation(len(labels))
    mixed = mixed[np.argsort(labels[mixed], kind="stable")]
    sizes = _sizes(len(labels), clients, sigma, rng)
    priors = rng.dirichlet(np.full(classes, alpha), size=clients)
    turns = rng.permutation(np.repeat(np.arange(clients), sizes))
    left = np.bincount(labels, minlength=classes)
    label = _labels(turns, priors, left.copy(), rng)
    # The last example of a label goes first and a client's last example is dealt first, as the authors count down.
    ids = mixed[np.cumsum(left)[label] - 1 - _running(label)]
    return splitting.group(ids[::-1], turns[::-1], clients)


def _sizes(total, clients, sigma, rng):
    drawn = rng.lognormal(math.log(total // clients), sigma, clients)
    sizes = (drawn / drawn.sum() * total).astype(np.int64)
    sizes[0] += total - sizes.sum()
    return sizes


def _labels(turns, priors, left, rng):
    """The label of each turn, int64 `[turns]`; `left` counts down to 0."""
    labels = np.empty(len(turns), np.int64)
    for first in range(0, len(turns), BLOCK):
        waiting = np.arange(first, min(first + BLOCK, len(turns)))
        while waiting.size:
            chances = priors[turns[waiting]] * (left > 0)
            chances[chances.sum(axis=1) == 0] = left
            ends = np.cumsum(chances, axis=1)
            drawn = (rng.random(len(waiting))[:, None] * ends[:, -1:] > ends).sum(axis=1)
            # From the first turn on that finds its label used up, chances are different and are drawn again.
            late = _running(drawn) >= left[drawn]
            good = np.argmax(late) if late.any() else len(late)
            labels[waiting[:good]] = drawn[:good]
            left -= np.bincount(drawn[:good], minlength=len(left))
            waiting = waiting[good:]
    return labels


def _running(values):
    """How often each value occurred before: int64 of the same length."""
    order = np.argsort(values, kind="stable")
    counts = np.bincount(values)
    running = np.empty(len(values), np.int64)
    running[order] = splitting.ranges(np.zeros(len(counts), np.int64), counts)
    return running
