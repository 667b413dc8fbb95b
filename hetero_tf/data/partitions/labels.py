"""Assigns shards of few labels to each client (pathological non-IID), as in HeteroFL (arXiv 2010.01264)."""

from typing import Literal

import numpy as np

from hetero_tf.base.constraints import Count, Probability, Share
from hetero_tf.base.errors import InputError
from hetero_tf.data.partitions.partition import ClientExamples, Partition, check_labels, hold_out, ranges, shuffle

UNUSED = {
    "consecutive labels have no duplicates": {"draw": "consecutive", "keep_duplicates": True},
    "random labels have no order": {"draw": "random", "shuffled": True},
}


def split(
    train_labels: np.ndarray,
    test_labels: np.ndarray,
    classes: int,
    rng: np.random.Generator,
    *,
    clients: Count,
    per_client: Count = 2,
    draw: Literal["random", "consecutive"] = "random",
    shuffled: Probability = 0.0,
    keep_duplicates: bool = False,
    held_out: Share = 0.0,
) -> Partition:
    """Give every client up to `per_client` labels and one shard of the examples of each.

    Every class is divided into `clients * per_client / classes` shards, contiguous in data order. As many copies of
    every label are shuffled, and each client gets `per_client` of them. The test split is divided into shards in the
    same way and assigned by the same labels. `label_mask` has the labels drawn by each client.

    Args:
        clients: number of clients
        per_client: largest number of labels of a client
        draw: labels of a client: random; consecutive, client k of n holds the labels from `k * classes / n` on, modulo
            their number, so clients with neighbouring numbers hold similar labels (with `fleet.assign: order`, a device
            class has labels of its own); n must be a multiple of the number of labels
        shuffled: share of the clients, drawn at random, that exchange their consecutive labels with each other: at 1,
            labels do not follow devices
        keep_duplicates: whether a client that draws a label twice gets two shards of it (as LG-FedAvg, arXiv
            2001.01523); false: one shard (as HeteroFL), so it has fewer examples, and some shards are unused
        held_out: share of each client's training examples reserved for validation metrics, never trained on
    """
    check_labels("labels", train_labels, clients)
    shards = _count_shards(train_labels, classes, clients, per_client)
    if draw == "consecutive":
        if clients % classes:
            raise InputError(
                f"`clients` must be a multiple of the {classes} labels with draw: consecutive. Received: {clients=}"
            )
        first = np.repeat(np.arange(classes), clients // classes)
        class_sets = (first[:, None] + np.arange(per_client)) % classes
        if shuffled:
            exchanging = rng.permutation(clients)[: round(shuffled * clients)]
            class_sets[np.sort(exchanging)] = class_sets[exchanging]
    else:
        class_sets = rng.permutation(np.repeat(np.arange(classes), shards)).reshape(clients, per_client)
    mask = np.zeros((clients, classes), bool)
    mask[np.arange(clients)[:, None], class_sets] = True
    client, label = np.indices(class_sets.shape)[0].reshape(-1), class_sets.reshape(-1)
    if not keep_duplicates:
        client, label = np.nonzero(mask)
    train, test = (
        _assign_shards(labels, client, label, mask.shape, shards, rng) for labels in (train_labels, test_labels)
    )
    # A client's examples are grouped by label. Shuffle them after all other draws, which follow the authors' code.
    train, validation = hold_out(shuffle(train, rng) if held_out else train, held_out)
    return Partition(train, test, mask, validation)


def _count_shards(labels, classes, clients, per_client):
    if not 1 <= per_client <= classes:
        raise InputError(f"`per_client` must be in 1..{classes}, the number of labels. Received: {per_client=}")
    shards, rest = divmod(clients * per_client, classes)
    if rest or not shards:
        raise InputError(
            f"`clients` times `per_client` must be a multiple of the {classes} labels. "
            f"Received: clients={clients}, per_client={per_client}"
        )
    counts = np.bincount(labels, minlength=classes)
    if counts.min() < shards:
        raise InputError(
            f"every label needs at least one example for each of its {shards} shards, but label {counts.argmin()} has "
            f"{counts.min()} examples; use fewer clients or labels. Received: {clients=}, {per_client=}"
        )
    return shards


def _assign_shards(labels, client, label, shape, shards, rng):
    """Assign a random unused shard of the label to each pair of a client and a label, sorted by client."""
    clients, classes = shape
    drawn = np.empty(len(label), np.int64)
    owners = np.bincount(label, minlength=classes)
    drawn[np.argsort(label, kind="stable")] = np.concatenate([rng.permutation(shards)[:count] for count in owners])
    counts = np.bincount(labels, minlength=classes)
    start, (shard_size, rest) = (np.cumsum(counts) - counts)[label], np.divmod(counts, shards)
    # A shard is a contiguous range of its label's examples, plus one from the end for the first (count mod shards).
    firsts = np.stack([start + drawn * shard_size[label], start + shards * shard_size[label] + drawn], axis=1)
    lengths = np.stack([shard_size[label], drawn < rest[label]], axis=1)
    order = np.argsort(labels, kind="stable").astype(np.int32)
    sizes = np.bincount(client, weights=lengths.sum(axis=1), minlength=clients).astype(np.int64)
    return ClientExamples.from_sizes(order[ranges(firsts.reshape(-1), lengths.reshape(-1))], sizes)
