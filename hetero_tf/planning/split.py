"""Deals a data set out to the clients of a recipe, without TensorFlow."""

import inspect

from hetero_tf.base import registry, seeds
from hetero_tf.data.dataset import Dataset
from hetero_tf.partitions.partition import Partition
from hetero_tf.recipe.schema import Recipe


def deal(recipe: Recipe, dataset: Dataset) -> Partition:
    """Returns the recipe's split of a data set; the same seed gives the same one on every machine.

    Raises:
        InputError: The data cannot be split so.
    """
    splitter = registry.find("partitions", recipe.partition.name).split
    owners = {"train_owners": dataset.train.owners, "test_owners": dataset.test.owners}
    asked = inspect.signature(splitter).parameters
    return splitter(
        dataset.train.labels,
        dataset.test.labels,
        dataset.classes,
        seeds.rng(recipe.seed, "partition"),
        **recipe.partition.options,
        **{name: of_examples for name, of_examples in owners.items() if name in asked},
    )
