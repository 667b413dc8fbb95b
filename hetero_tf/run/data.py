"""Loads the data of a recipe and splits them over its clients, without TensorFlow."""

import dataclasses
import inspect
from pathlib import Path

import numpy as np

from hetero_tf import data
from hetero_tf.base import files, registry, seeds, typed_json
from hetero_tf.base.errors import InputError
from hetero_tf.data.dataset import Dataset
from hetero_tf.data.described import DescribedDataset, describe, from_description
from hetero_tf.data.partitions.partition import Partition, check_partition, label_mask
from hetero_tf.data.targets import LABEL, POSITIONS
from hetero_tf.recipe import with_source_location
from hetero_tf.recipe.fit import check_kind
from hetero_tf.recipe.schema import Recipe


def load_data(recipe: Recipe, data_dir: Path | str | None, learned: tuple[str, ...] | None = None) -> Dataset:
    """Load the data of a recipe; `learned`: vocabulary of a started run, see `data.load`.

    Raises:
        InputError: With file, line and key of the recipe; see `data.load`.
    """
    # An invalid data folder is not an error of the recipe.
    folder = data.data_folder(data_dir)
    with with_source_location(recipe, "data"):
        dataset = data.load(recipe.data.loader, recipe.data.fallback, folder, recipe.targets, learned)
        return dataset if recipe.data.class_order is None else dataset.in_class_order(recipe.data.class_order)


def split(recipe: Recipe, dataset: Dataset) -> Partition:
    """Split a data set over the clients of a recipe; equal seeds give equal partitions on every machine.

    Raises:
        InputError: The data have the wrong kind, or cannot be split in this way; with file, line and key. The message
            also mentions a fallback that replaced the original data.
    """
    with with_source_location(recipe, "partition"):
        try:
            return _split(recipe, dataset)
        except InputError as problem:
            if dataset.stand_in_for is None:
                raise
            raise InputError(f"{problem}. The data are a fallback: {dataset.source}") from None


def _split(recipe, dataset):
    check_kind(recipe, dataset.codec.KIND, dataset.targets, dataset.source)
    splitter = registry.find("partitions", recipe.partition.name).split
    owners = {"train_owners": dataset.train.owners, "test_owners": dataset.test.owners}
    parameters = inspect.signature(splitter).parameters
    train, test = dataset.strata
    has_strata = dataset.targets not in (LABEL, POSITIONS)
    classes = int(max(train.max(), test.max())) + 1 if has_strata else dataset.classes
    partition = splitter(
        train,
        test,
        classes,
        seeds.rng(recipe.seed, "partition"),
        **recipe.partition.options,
        **{name: owners_of_split for name, owners_of_split in owners.items() if name in parameters},
    )
    if registry.is_registered("partitions", recipe.partition.name):
        check_partition(partition, f"the partition {recipe.partition.name}", train, test, classes)
    if not has_strata:
        return partition
    mask = label_mask(dataset.train.labels, partition.train, dataset.classes)
    return dataclasses.replace(partition, label_mask=mask)


def fit_data(dataset: Dataset, partition: Partition) -> tuple[Dataset, Partition]:
    """Return the data whose statistics leave out the examples for validation, and the partition of these data.

    A vocabulary of fewer texts changes the ids of the words, which are the labels of running text.
    """
    ids = partition.held_out.ids
    is_fitted = dataset.validation is not None or isinstance(dataset, DescribedDataset)
    # Ids of other data are rejected later.
    if is_fitted or not 0 <= ids.max(initial=-1) < len(dataset.train.x):
        return dataset, partition
    fitted = dataset.without(ids)
    if fitted.targets == POSITIONS:
        mask = label_mask(fitted.train.labels, partition.train, fitted.classes)
        partition = dataclasses.replace(partition, label_mask=mask)
    return fitted, partition


def with_client_noise(recipe: Recipe, dataset: Dataset, partition: Partition) -> Dataset:
    """Return the images that clients see: with the noise of `partition.noise`, drawn once for each example.

    Raises:
        InputError: The data are no images.

    Reference: NIID-Bench (Li et al. 2022, arXiv 2102.02079), noise-based feature imbalance.
    """
    noise, clients = recipe.partition.options.get("noise"), len(partition.train)
    if not noise:
        return dataset
    if dataset.codec.KIND != "images":
        raise InputError(f"partition.noise needs images; remove it. Received: {dataset.codec.KIND}")

    def add(split, rng, *shares):
        pixels = split.x[np.arange(len(split.x))].astype(np.float32) / (255 if split.x.dtype == np.uint8 else 1)
        for each in shares:
            scale = noise * each.owners.reshape(-1, *[1] * (pixels.ndim - 1)) / max(clients - 1, 1)
            pixels[each.ids] += (scale * rng.normal(size=pixels[each.ids].shape)).astype(np.float32)
        return dataclasses.replace(split, x=pixels)

    train = add(dataset.train, seeds.rng(recipe.seed, "client noise train"), partition.train, partition.held_out)
    test = add(dataset.test, seeds.rng(recipe.seed, "client noise test"), partition.test)
    return dataclasses.replace(dataset, train=train, test=test)


def by_strata(partition: Partition, dataset: Dataset) -> Partition:
    """Return a partition whose labels are those of `Dataset.strata`, for figures."""
    labels, _ = dataset.strata
    classes = max(dataset.classes, int(labels.max()) + 1)
    return dataclasses.replace(partition, label_mask=label_mask(labels, partition.train, classes))


ADVICE = "; put it back, or delete it to use the data themselves"


def save_description(path: Path, dataset: Dataset) -> None:
    """Write the description of a data set as one JSON file, atomically.

    Raises:
        InputError: The description is larger than `typed_json.LIMIT`, or a name is not valid Unicode.
        DiskProblem: The write failed.
    """
    files.write_atomic(path, typed_json.dump(describe(dataset), "the description of the data"))


def load_description(path: Path) -> DescribedDataset:
    """Read a file that `save_description` wrote.

    Raises:
        InputError: The file is missing or damaged.
    """
    return from_description(typed_json.parse(files.read_bytes(path, typed_json.LIMIT), path), path, ADVICE)
