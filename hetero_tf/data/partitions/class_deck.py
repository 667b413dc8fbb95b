"""Assigns a fixed number of labels to each client, drawn from shuffled decks of labels (pathological non-IID)."""

from typing import Literal

import numpy as np

from hetero_tf.base.constraints import Count, CountOrZero, Share
from hetero_tf.base.errors import InputError
from hetero_tf.data.partitions.partition import (
    ClientExamples,
    Partition,
    build_partition,
    check_labels,
    check_least,
    cut,
    group,
    shuffle,
)


def split(
    train_labels: np.ndarray,
    test_labels: np.ndarray,
    classes: int,
    rng: np.random.Generator,
    *,
    clients: Count,
    per_client: Count = 2,
    sizes: Literal["equal", "dirichlet"] = "equal",
    least: Count = 1,
    held_out: Share = 0.0,
    test: Literal["own", "new", "equal", "contiguous"] = "own",
    test_least: CountOrZero = 0,
) -> Partition:
    """Draw labels from a deck that is reshuffled when empty, then divide each label's examples among its clients.

    A client may draw a label twice, from the end of one deck and the start of the next. It then has fewer labels but
    the same number of shares. Every example is used.

    Args:
        clients: number of clients
        per_client: number of labels drawn by each client
        sizes: division of a label among its clients: equal, or dirichlet (uniform over all divisions)
        least: smallest number of training examples in a share of a label
        held_out: share of each client's training examples reserved for validation metrics, never trained on
        test: test examples of a client: own (same labels as for training), new (labels drawn again), equal (equal
            numbers at random) or contiguous (equal numbers in data order)
        test_least: smallest number of test examples in a share of a label, for own and new

    Reference: authors' code of SplitMix (arXiv 2203.09747) and FeDepth, which by default draw new labels for the test
    split.
    """
    check_labels("class_deck", train_labels, clients)
    deck = np.unique(train_labels)
    if not 1 <= per_client <= len(deck) or clients * per_client <= len(deck):
        raise InputError(
            f"`per_client` must be in 1..{len(deck)}, and `clients` times `per_client` must exceed the number of "
            f"labels, {len(deck)}, so that each label is used. Received: {clients=}, {per_client=}"
        )
    class_sets = _draw_class_sets(deck, clients, per_client, rng)
    assigned = shuffle(_assign(train_labels, class_sets, sizes, "least", least, rng), rng)
    tests: str | ClientExamples = test
    if test in ("own", "new"):
        class_sets = class_sets if test == "own" else _draw_class_sets(deck, clients, per_client, rng)
        tests = shuffle(_assign(test_labels, class_sets, sizes, "test_least", test_least, rng), rng)
    split_of = train_labels, test_labels, classes, rng
    return build_partition(assigned, held_out, tests, *split_of, first=True)


def _draw_class_sets(deck, clients, per_client, rng):
    count = clients * per_client
    decks = np.tile(deck, (-(-count // len(deck)), 1))
    return rng.permuted(decks, axis=1).reshape(-1)[:count].reshape(clients, per_client)


def _assign(labels, class_sets, sizes, name, least, rng):
    """Assign consecutive ranges of each label's examples to the clients with that label."""
    clients, per_client = class_sets.shape
    present, firsts = np.unique(labels, return_index=True)
    ids, owners = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for label in present[np.argsort(firsts)]:
        holders = np.flatnonzero(class_sets == label) // per_client
        if holders.size:
            examples = np.flatnonzero(labels == label)
            check_least(name, least, len(examples), len(holders), f"examples of label {label}")
            proportions = rng.dirichlet(np.ones(len(holders))) if sizes == "dirichlet" else None
            ids.append(examples)
            owners.append(np.repeat(holders, cut(len(examples), len(holders), least, proportions, rng)))
    return group(np.concatenate(ids), np.concatenate(owners), clients)
