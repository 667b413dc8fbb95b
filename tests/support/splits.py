"""Labels to split, and shares of clients from lists of example ids."""

import numpy as np

from hetero_tf.partitions.shares import ClientExamples

TRAIN = np.random.default_rng(0).integers(0, 10, 2000).astype(np.int32)
TEST = np.random.default_rng(1).integers(0, 10, 600).astype(np.int32)
CIFAR = np.arange(50000, dtype=np.int32) % 10


def shares(*lists):
    """The `ClientExamples` of clients with these examples."""
    return ClientExamples.from_lists(np.array(ids, np.int32) for ids in lists)
