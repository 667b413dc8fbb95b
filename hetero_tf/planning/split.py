"""Splits a data set over the clients of a recipe, without TensorFlow."""

import inspect

from hetero_tf.base import registry, seeds
from hetero_tf.data.dataset import Dataset
from hetero_tf.partitions.partition import Partition
from hetero_tf.recipe.schema import Recipe


def split_dataset(recipe: Recipe, dataset: Dataset) -> Partition:
    """Return the partition of a data set; equal seeds give equal partitions on every machine.

    Raises:
        InputError: The data cannot be split in this way.
    """
    splitter = registry.find("partitions", recipe.partition.name).split
    owners = {"train_owners": dataset.train.owners, "test_owners": dataset.test.owners}
    parameters = inspect.signature(splitter).parameters
    return splitter(
        dataset.train.labels,
        dataset.test.labels,
        dataset.classes,
        seeds.rng(recipe.seed, "partition"),
        **recipe.partition.options,
        **{name: owners_of_split for name, owners_of_split in owners.items() if name in parameters},
    )
