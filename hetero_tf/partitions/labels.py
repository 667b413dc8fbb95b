"""Few labels for each client in shards (pathological non-IID), as HeteroFL (arXiv 2010.01264) splits its data."""

import numpy as np

from hetero_tf.base.constraints import Count, Share
from hetero_tf.base.errors import InputError
from hetero_tf.partitions import splitting
from hetero_tf.partitions.partition import Partition, check_clients
from hetero_tf.partitions.shares import ClientExamples


def split(
    train_labels: np.ndarray,
    test_labels: np.ndarray,
    classes: int,
    rng: np.random.Generator,
    *,
    clients: Count,
    per_client: Count = 2,
    keep_duplicates: bool = False,
    held_out: Share = 0.0,
) -> Partition:
    """Gives every client up to `per_client` labels and one shard of the examples of each.

    Every class is cut into `clients * per_client / classes` shards, contiguous in the order of the data. As many
    copies of every label are shuffled and dealt out in rows of `per_client`. The test split is dealt by the same
    labels, with shards of its own.

    Args:
        train_labels: int `[n]`.
        test_labels: int `[n]`.
        classes: Number of labels.
        rng: NumPy generator.
        clients: number of clients
        per_client: most labels that a client has
        keep_duplicates: whether a client that was dealt a label twice gets two shards of it (as LG-FedAvg, arXiv
            2001.01523); false: one (as HeteroFL), so it has fewer examples, and some shards are used by nobody
        held_out: share of each client's training examples that nobody trains on, for validation metrics

    Returns:
        `Partition`; `label_mask` holds the dealt labels.

    Raises:
        InputError: Text, or numbers that cannot be dealt out evenly.
    """
    splitting.check_images("labels", train_labels)
    check_clients(clients, len(train_labels))
    shards = _shards(train_labels, classes, clients, per_client)
    dealt = np.repeat(np.arange(classes), shards)
    hands = rng.permutation(dealt).reshape(clients, per_client)
    mask = np.zeros((clients, classes), bool)
    mask[np.arange(clients)[:, None], hands] = True
    client, label = np.indices(hands.shape)[0].reshape(-1), hands.reshape(-1)
    if not keep_duplicates:
        client, label = np.nonzero(mask)
    train, test = (_deal(labels, client, label, mask.shape, shards, rng) for labels in (train_labels, test_labels))
    # A client's examples stand label by label. They are mixed after all other draws, which are those of the authors.
    train, validation = splitting.hold_out(splitting.shuffle(train, rng) if held_out else train, held_out)
    return Partition(train, test, mask, validation)


def _shards(labels, classes, clients, per_client):
    """Shards of each class, after the checks."""
    if not 1 <= per_client <= classes:
        raise InputError(
            f"`per_client` must be in 1..{classes}, the number of labels. Received: per_client={per_client}"
        )
    shards, rest = divmod(clients * per_client, classes)
    if rest or not shards:
        raise InputError(
            f"`clients` times `per_client` must be a multiple of the {classes} labels. "
            f"Received: clients={clients}, per_client={per_client}"
        )
    counts = np.bincount(labels, minlength=classes)
    if counts.min() < shards:
        raise InputError(
            f"every label must have an example for each of its {shards} shards; label {counts.argmin()} has "
            f"{counts.min()}; use fewer clients or labels. Received: clients={clients}, "
            f"per_client={per_client}"
        )
    return shards


def _deal(labels, client, label, shape, shards, rng):
    """For each pair of a client and a label, by client, a random unused shard of the label: `ClientExamples`."""
    clients, classes = shape
    drawn = np.empty(len(label), np.int64)
    owners = np.bincount(label, minlength=classes)
    drawn[np.argsort(label, kind="stable")] = np.concatenate([rng.permutation(shards)[:many] for many in owners])
    counts = np.bincount(labels, minlength=classes)
    start, (each, rest) = (np.cumsum(counts) - counts)[label], np.divmod(counts, shards)
    # A shard is a contiguous part of its label's examples, and for the first shards one of the last (count mod shards).
    firsts = np.stack([start + drawn * each[label], start + shards * each[label] + drawn], axis=1)
    lengths = np.stack([each[label], drawn < rest[label]], axis=1)
    order = np.argsort(labels, kind="stable").astype(np.int32)
    sizes = np.bincount(client, weights=lengths.sum(axis=1), minlength=clients).astype(np.int64)
    return ClientExamples.from_sizes(order[splitting.ranges(firsts.reshape(-1), lengths.reshape(-1))], sizes)
