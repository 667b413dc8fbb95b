"""Label statistics of a split, from the pairs of a client and a label that occur."""

import numpy as np

from hetero_tf.partitions.shares import ClientExamples


def label_counts(labels: np.ndarray, shares: ClientExamples, classes: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Counts how often each client has each of its labels, as a sparse table.

    Args:
        labels: int `[n]` of images, or int `[rows, length]` of text.
        shares: `ClientExamples`, each client's example ids.
        classes: Number of labels.

    Returns:
        client, label, count: int64 `[pairs]` each, ascending by client, then by label.
    """
    present = labels[shares.ids]
    owners = shares.owners.astype(np.int64).reshape(-1, *[1] * (present.ndim - 1))
    # A dense table of a million clients or of all words would not fit into memory.
    pairs, counts = np.unique(owners * classes + present, return_counts=True)
    return *np.divmod(pairs, classes), counts


def label_distances(labels: np.ndarray, shares: ClientExamples, classes: int) -> np.ndarray:
    """Measures how far each client's labels are from those of all clients together.

    Args:
        labels, shares, classes: As for `label_counts`.

    Returns:
        float64 `[clients]`, the total variation distance: 0 where both distributions are equal, 1 where they have no
        label in common. For a client without examples it is 0.
    """
    client, label, count = label_counts(labels, shares, classes)
    sizes = np.bincount(client, weights=count, minlength=len(shares))
    together = np.bincount(label, weights=count, minlength=classes) / max(count.sum(), 1)
    # Half of the absolute differences is what the client's distribution has too much, so absent labels add nothing.
    above = np.maximum(count / sizes[client] - together[label], 0)
    return np.bincount(client, weights=above, minlength=len(shares))
