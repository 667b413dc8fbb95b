"""Few labels for each client (pathological non-IID), as HeteroFL (arXiv 2010.01264) splits its data."""

import numpy as np

from hetero_tf.errors import BadInput
from hetero_tf.partitions.partition import Partition, check_clients


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
    """For each client one random, not yet used shard of each of its labels."""
    clients, classes = mask.shape
    drawn = np.zeros(mask.shape, np.int64)
    for label in range(classes):
        owners = np.flatnonzero(mask[:, label])
        drawn[owners, label] = rng.permutation(shards)[:len(owners)]
    order = np.argsort(labels, kind="stable").astype(np.int32)
    counts = np.bincount(labels, minlength=classes)
    starts = np.cumsum(counts) - counts
    parts = [[] for _ in range(clients)]
    for client, label in np.argwhere(mask):
        own = order[starts[label]:starts[label] + counts[label]]
        parts[client] += _shard(own, shards, drawn[client, label])
    return tuple(np.concatenate(part) for part in parts)


def _shard(examples, shards, number):
    """Pieces of one shard: its contiguous part, and for the first shards one of the last (count mod shards)."""
    each = len(examples) // shards
    rest = examples[shards * each:]
    return [examples[number * each:(number + 1) * each], rest[number:number + 1]]
