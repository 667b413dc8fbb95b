"""A fixed number of labels for each client, dealt from a deck of labels (pathological non-IID)."""

from typing import Literal

import numpy as np

from hetero_tf.base.constraints import Count, CountOrZero, Share
from hetero_tf.base.errors import InputError
from hetero_tf.partitions import splitting
from hetero_tf.partitions.partition import Partition, check_clients, label_mask


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
    """Deals labels from a shuffled deck, shuffled anew when it is empty, and cuts each label among its clients.

    A client gets the same label twice where two decks meet in its hand: it has fewer labels then, but as many shares,
    and no example is lost.

    Args:
        train_labels: int `[n]`.
        test_labels: int `[n]`.
        classes: Number of labels; the deck holds those that occur in the training examples.
        rng: NumPy generator.
        clients: number of clients
        per_client: how many labels are dealt to each client
        sizes: how a label is cut among its clients; equal, or dirichlet (all divisions are equally likely)
        least: fewest training examples of a share of a label
        held_out: share of each client's training examples that nobody trains on, for validation metrics
        test: a client's test examples; own (the same deal of labels), new (another deal), equal or contiguous
        test_least: fewest test examples of a share of a label, for own and new

    Returns:
        `Partition`; a client's labels are those that occur in its training examples.

    Raises:
        InputError: Text, or numbers that cannot be dealt.

    Reference: authors' code of SplitMix (arXiv 2203.09747) and FeDepth, which take a new deal for the test split
    unless told otherwise.
    """
    splitting.check_images("class_deck", train_labels)
    check_clients(clients, len(train_labels))
    deck = np.unique(train_labels)
    if not 1 <= per_client <= len(deck) or clients * per_client <= len(deck):
        raise InputError(
            f"`per_client` must be in 1..{len(deck)}, and `clients` times `per_client` more than the "
            f"{len(deck)} labels, so that each is dealt. Received: clients={clients}, "
            f"per_client={per_client}"
        )
    hands = _hands(deck, clients, per_client, rng)
    dealt = splitting.shuffle(_deal(train_labels, hands, sizes, "least", least, rng), rng)
    splitting.check_all_served(
        dealt, f"use fewer clients or a larger least. Received: clients={clients}, least={least}"
    )
    train, validation = splitting.hold_out(dealt, held_out, first=True)
    if test in ("equal", "contiguous"):
        tests = splitting.deal_test(test, train_labels, test_labels, classes, train, rng)
    else:
        hands = hands if test == "own" else _hands(deck, clients, per_client, rng)
        tests = splitting.shuffle(_deal(test_labels, hands, sizes, "test_least", test_least, rng), rng)
    return Partition(train, tests, label_mask(train_labels, train, classes), validation)


def _hands(deck, clients, per_client, rng):
    """The labels dealt to each client: int `[clients, per_client]`."""
    dealt = clients * per_client
    decks = np.tile(deck, (-(-dealt // len(deck)), 1))
    return rng.permuted(decks, axis=1).reshape(-1)[:dealt].reshape(clients, per_client)


def _deal(labels, hands, sizes, name, least, rng):
    """`ClientExamples` in which the holders of each label, in their order, have neighbouring parts of its examples."""
    clients, per_client = hands.shape
    present, firsts = np.unique(labels, return_index=True)
    ids, owners = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for label in present[np.argsort(firsts)]:
        holders = np.flatnonzero(hands == label) // per_client
        if holders.size:
            examples = np.flatnonzero(labels == label)
            splitting.check_least(name, least, len(examples), len(holders), f"examples of label {label}")
            parts = rng.dirichlet(np.ones(len(holders))) if sizes == "dirichlet" else None
            ids.append(examples)
            owners.append(np.repeat(holders, splitting.cut(len(examples), len(holders), least, parts, rng)))
    return splitting.group(np.concatenate(ids), np.concatenate(owners), clients)
