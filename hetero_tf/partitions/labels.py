"""Few labels for each client (pathological non-IID), as HeteroFL (arXiv 2010.01264) splits its data."""

import numpy as np

from hetero_tf.errors import BadInput
from hetero_tf.partitions.partition import Partition, check_clients
from hetero_tf.partitions.shares import Shares


def split(train_labels, test_labels, classes, rng, *, clients: int, per_client: int = 2):
    """Gives every client up to `per_client` labels and one shard of the examples of each.

    Every class is cut into `clients * per_client / classes` shards, contiguous in the order of the data. As many
    copies of every label are shuffled and dealt out in rows of `per_client`; a row that holds a label twice counts
    it once, so that client has fewer labels and examples, and some shards are used by nobody. The test split is
    dealt by the same labels, with shards of its own.

    Args:
        train_labels: int `[n]`.
        test_labels: int `[n]`.
        classes: Number of labels.
        rng: NumPy generator.
        clients: number of clients
        per_client: most labels that a client has

    Returns:
        `Partition`; `label_mask` holds the dealt labels.

    Raises:
        BadInput: Text, or numbers that cannot be dealt out evenly.
    """
    if train_labels.ndim != 1:
        raise BadInput("the partition `labels` needs one label for each example, which text has not; use `iid`")
    check_clients(clients, len(train_labels))
    shards = _shards(train_labels, classes, clients, per_client)
    dealt = np.repeat(np.arange(classes), shards)
    rows = rng.permutation(dealt).reshape(clients, per_client)
    mask = np.zeros((clients, classes), bool)
    mask[np.arange(clients)[:, None], rows] = True
    train, test = (_deal(labels, mask, shards, rng) for labels in (train_labels, test_labels))
    return Partition(train, test, mask)


def _shards(labels, classes, clients, per_client):
    """Shards of each class, after the checks."""
    if not 1 <= per_client <= classes:
        raise BadInput(f"`per_client` must be in 1..{classes}, the number of labels. Received: per_client={per_client}")
    shards, rest = divmod(clients * per_client, classes)
    if rest or not shards:
        raise BadInput(f"`clients` times `per_client` must be a multiple of the {classes} labels. "
                       f"Received: clients={clients}, per_client={per_client}")
    counts = np.bincount(labels, minlength=classes)
    if counts.min() < shards:
        raise BadInput(f"every label must have an example for each of its {shards} shards; label {counts.argmin()} has "
                       f"{counts.min()}; use fewer clients or labels. Received: clients={clients}, "
                       f"per_client={per_client}")
    return shards


def _deal(labels, mask, shards, rng):
    """For each client one random, not yet used shard of each of its labels: `Shares`."""
    client, label = np.nonzero(mask)
    drawn = np.empty(len(label), np.int64)
    owners = np.bincount(label, minlength=mask.shape[1])
    drawn[np.argsort(label, kind="stable")] = np.concatenate([rng.permutation(shards)[:many] for many in owners])
    counts = np.bincount(labels, minlength=mask.shape[1])
    start, (each, rest) = (np.cumsum(counts) - counts)[label], np.divmod(counts, shards)
    # A shard is a contiguous part of its label's examples, and for the first shards one of the last (count mod shards).
    firsts = np.stack([start + drawn * each[label], start + shards * each[label] + drawn], axis=1)
    lengths = np.stack([each[label], drawn < rest[label]], axis=1)
    order = np.argsort(labels, kind="stable").astype(np.int32)
    sizes = np.bincount(client, weights=lengths.sum(axis=1), minlength=len(mask)).astype(np.int64)
    return Shares.from_sizes(order[_ranges(firsts.reshape(-1), lengths.reshape(-1))], sizes)


def _ranges(firsts, lengths):
    """`first, first + 1, ...` so many times for each first, one after the other: int64 [sum of lengths]."""
    ends = np.cumsum(lengths)
    return np.repeat(firsts - ends + lengths, lengths) + np.arange(ends[-1])
