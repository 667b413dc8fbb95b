"""Dirichlet labels of every client, with clients of equal size that draw one after the other (balanced)."""

from typing import Literal

import numpy as np

from hetero_tf.base.constraints import Count, Positive, Share
from hetero_tf.partitions import splitting
from hetero_tf.partitions.partition import Partition, check_clients, label_mask

# A label of chance 0 is still taken when nothing else is left.
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
    """Gives every client floor(n / clients) examples, weighted by label; the rest is not used.

    One client after the other draws its label weights from a Dirichlet distribution, then examples without
    replacement in proportion to the weight of their label. So a label is drawn by its weight times what is left of
    it, and the last clients take what the others left. Clients depend on those before: the time grows with them,
    about half a minute for a million.

    Args:
        train_labels: int `[n]`.
        test_labels: int `[n]`.
        classes: Number of labels.
        rng: NumPy generator.
        clients: number of clients
        alpha: concentration of the Dirichlet distribution; the smaller, the fewer labels a client has
        held_out: share of each client's training examples that nobody trains on, for validation metrics
        test: a client's test examples; own (labels as in its training examples), equal or contiguous

    Returns:
        `Partition`; a client's labels are those that occur in its training examples.

    Raises:
        InputError: Text, more clients than examples, or an option out of its range.

    Reference: FeDepth authors' code, "balanced-dir".
    """
    splitting.check_images("dirichlet_equal", train_labels)
    check_clients(clients, len(train_labels))
    dealt = splitting.shuffle(_deal(train_labels, classes, clients, alpha, rng), rng)
    train, validation = splitting.hold_out(dealt, held_out)
    tests = splitting.deal_test(test, train_labels, test_labels, classes, train, rng)
    return Partition(train, tests, label_mask(train_labels, train, classes), validation)


def _deal(labels, classes, clients, alpha, rng):
    each = len(labels) // clients
    mixed = rng.permutation(len(labels))
    # Examples of one label are alike: whoever draws the label takes its next one in random order.
    mixed = mixed[np.argsort(labels[mixed], kind="stable")]
    left = np.bincount(labels, minlength=classes)
    ends = np.cumsum(left)
    weights = np.maximum(rng.dirichlet(np.full(classes, alpha), size=clients), SMALLEST)
    places = np.empty((clients, each), np.int64)
    for client in range(clients):
        taken = _arrivals(weights[client], left, each, rng)
        places[client] = splitting.ranges(ends - left, taken)
        left -= taken
    return splitting.group(mixed[places.reshape(-1)], np.repeat(np.arange(clients), each), clients)


def _arrivals(weights, left, count, rng):
    """How many examples of each label are among the first `count` drawn by weight: int64 `[classes]`.

    An example drawn by weight is the one whose exponential clock rings first. Of a label, the clocks ring one after
    the other at intervals that are exponential too, scaled by the number still waiting.
    """
    waiting = left[:, None] - np.arange(count)
    intervals = rng.standard_exponential(waiting.shape) / (weights[:, None] * np.maximum(waiting, 1))
    times = np.where(waiting > 0, np.cumsum(intervals, axis=1), np.inf)
    first = np.argpartition(times, count - 1, axis=None)[:count]
    return np.bincount(first // count, minlength=len(left))
