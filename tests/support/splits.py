"""Labels to split, and shares of clients from lists of example ids."""

import numpy as np

from hetero_tf.data.partitions.partition import ClientExamples

TRAIN = np.random.default_rng(0).integers(0, 10, 2000).astype(np.int32)
TEST = np.random.default_rng(1).integers(0, 10, 600).astype(np.int32)
CIFAR = np.arange(50000, dtype=np.int32) % 10
# Too few examples for most splits: two of each label.
FEW = np.arange(20, dtype=np.int32) % 10
# Label counts of MNIST (shared by every copy of the set: LeCun, Cortes, Burges).
MNIST_TRAIN = (5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949)
MNIST_TEST = (980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009)


def rng(seed=0):
    return np.random.default_rng(seed)


def mnist_labels():
    """The labels of MNIST in some order."""
    generator, digits = rng(), np.arange(10, dtype=np.int32)
    return tuple(generator.permutation(np.repeat(digits, counts)) for counts in (MNIST_TRAIN, MNIST_TEST))


def shares(*lists):
    """The `ClientExamples` of clients with these examples."""
    return ClientExamples.from_lists(np.array(ids, np.int32) for ids in lists)
