"""Equal parts at random (IID), as HeteroFL (arXiv 2010.01264) splits its data."""

import numpy as np

from hetero_tf.base.constraints import Count, Share
from hetero_tf.partitions import splitting
from hetero_tf.partitions.partition import Partition, check_clients, label_mask
from hetero_tf.partitions.shares import ClientExamples


def split(
    train_labels: np.ndarray,
    test_labels: np.ndarray,
    classes: int,
    rng: np.random.Generator,
    *,
    clients: Count,
    held_out: Share = 0.0,
) -> Partition:
    """Gives every client floor(n / clients) examples, drawn without replacement; the rest is not used.

    The test split is dealt in the same way, on its own; for text no client has test rows.

    Args:
        train_labels: int `[n]` of images, or int `[rows, length]` of text.
        test_labels: The same for the test split.
        classes: Number of labels.
        rng: NumPy generator.
        clients: number of clients
        held_out: share of each client's training examples that nobody trains on, for validation metrics

    Returns:
        `Partition`; a client's labels are those that occur in its training examples.

    Raises:
        InputError: More clients than examples, or a share that holds none out.
    """
    check_clients(clients, len(train_labels))
    train, validation = splitting.hold_out(_deal(len(train_labels), clients, rng), held_out)
    test = _deal(len(test_labels) if train_labels.ndim == 1 else 0, clients, rng)
    return Partition(train, test, label_mask(train_labels, train, classes), validation)


def _deal(examples, clients, rng):
    # Drawing client after client without replacement is the same as cutting one permutation.
    each = examples // clients
    drawn = rng.permutation(examples)[: each * clients].astype(np.int32)
    return ClientExamples.from_sizes(drawn, np.full(clients, each))
