"""Label statistics of a partition, computed from a sparse table of clients and labels."""

import numpy as np

from hetero_tf.data.partitions.shares import ClientExamples


def label_counts(
    labels: np.ndarray, examples: ClientExamples, classes: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Count the labels of each client as a sparse table.

    Args:
        labels: int `[n]` of images, or int `[rows, length]` of text.
        examples: Example ids of each client.
        classes: Number of labels.

    Returns:
        client, label, count: int64 `[pairs]` each, sorted by client, then by label.
    """
    present = labels[examples.ids]
    owners = examples.owners.astype(np.int64).reshape(-1, *[1] * (present.ndim - 1))
    # A dense table of a million clients or of all words would not fit into memory.
    pairs, counts = np.unique(owners * classes + present, return_counts=True)
    return *np.divmod(pairs, classes), counts


def label_distances(labels: np.ndarray, examples: ClientExamples, classes: int) -> np.ndarray:
    """Compute the distance between each client's label distribution and that of all clients.

    Args:
        labels, examples, classes: As for `label_counts`.

    Returns:
        float64 `[clients]`, the total variation distance: 0 for equal distributions, 1 if they have no label in common.
        It is 0 for a client without examples.
    """
    client, label, count = label_counts(labels, examples, classes)
    sizes = np.bincount(client, weights=count, minlength=len(examples))
    overall = np.bincount(label, weights=count, minlength=classes) / max(count.sum(), 1)
    # The total variation distance is the sum of positive differences, so absent labels contribute nothing.
    above = np.maximum(count / sizes[client] - overall[label], 0)
    return np.bincount(client, weights=above, minlength=len(examples))
