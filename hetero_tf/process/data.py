"""Loads the data of a recipe, splits them over the clients, and checks that the recipe fits them."""

import inspect
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from hetero_tf import data
from hetero_tf.base import hardware, registry
from hetero_tf.base.errors import InputError
from hetero_tf.data.dataset import Dataset
from hetero_tf.inputs import Input
from hetero_tf.partitions.partition import Partition
from hetero_tf.planning.availability import check_deadline
from hetero_tf.planning.split import deal
from hetero_tf.recipe import located
from hetero_tf.recipe.fit import Facts, check_fit, check_kind
from hetero_tf.recipe.nodes import InvalidValue
from hetero_tf.recipe.schema import Recipe


def build_input(recipe: Recipe, dataset: Dataset | None = None) -> Input:
    """Returns the recipe's `Input`; without data, one that knows no statistics of them."""
    build = registry.find("inputs", recipe.input.name).build
    learned = {}
    if dataset is not None and "statistics" in inspect.signature(build).parameters:
        learned["statistics"] = dataset.feature_statistics
    return build(recipe.float_type, **recipe.input.options, **learned)


def load_data(recipe: Recipe, data_dir: Path | str | None) -> Dataset:
    """Loads the data of a recipe.

    Raises:
        InputError: Names file, line and key of the recipe; see `data.load`.
    """
    # A data folder that is none is no mistake of the recipe.
    folder = data.data_folder(data_dir)
    with located(recipe, "data"):
        return data.load(recipe.data.loader, recipe.data.fallback, folder)


def split(recipe: Recipe, dataset: Dataset) -> Partition:
    """Deals a data set out to the clients, as the recipe says.

    Raises:
        InputError: The data are of another kind than the recipe's, or cannot be split so; names file, line and key.
            Where a stand-in took the place of the data, that is said too.
    """
    with located(recipe, "partition", check=lambda other: _split(other, dataset)):
        try:
            return _split(recipe, dataset)
        except InputError as problem:
            if dataset.stand_in_for is None:
                raise
            raise InputError(f"{problem}. These are not the data that the recipe is for: {dataset.source}") from None


def _split(recipe, dataset):
    check_kind(recipe, build_input(recipe).takes, dataset.kind, dataset.source)
    return deal(recipe, dataset)


def check_data(recipe: Recipe, dataset: Dataset) -> None:
    """Refuses a recipe that does not fit its data, before anything is built.

    Raises:
        InputError: Names file, line and key of the recipe.
    """
    with located(recipe, check=lambda other: _check_data(other, dataset)):
        _check_data(recipe, dataset)


def _check_data(recipe, dataset):
    source = build_input(recipe)
    check_kind(recipe, source.takes, dataset.kind, dataset.source)
    check_fit(recipe, _facts(dataset, source), hardware.memory())


def check_split(recipe: Recipe, partition: Partition, starts: Sequence[int]) -> None:
    """Refuses a recipe in which nobody could return in time, or which chooses by examples that nobody has.

    Args:
        recipe: The recipe.
        partition: Which client has which examples.
        starts: As the recipe's `Input` says.

    Raises:
        InvalidValue: Names the key.
    """
    sizes = partition.train.sizes
    batches = -(-int(sizes[sizes > 0].min()) // recipe.client.batch_size)
    steps = {name: recipe.client.epochs_of(name) * batches * len(starts) for name in recipe.levels.names}
    check_deadline(recipe, steps)
    best = recipe.evaluate.best or ""
    if best.startswith("local_") and not partition.test.sizes.any():
        raise InvalidValue(
            ("evaluate", "best"),
            "no client has test examples, so it cannot be measured; take one of the global metrics, or more test "
            f"examples. Received: {best}",
        )
    for name, value, asks in (
        ("best", best, best.startswith("validation_")),
        ("members", recipe.evaluate.members, recipe.evaluate.members == "best"),
    ):
        if asks and not partition.held_out.sizes.any():
            raise InvalidValue(
                ("evaluate", name),
                "no client holds examples out, so there is nothing to choose by; give partition.held_out, such as 0.1, "
                f"or another value. Received: {value}",
            )


def _facts(dataset, source):
    x, labels = dataset.train.x, dataset.train.labels
    pixels = (float(x.min()), float(x.max())) if np.issubdtype(x.dtype, np.floating) else (0.0, 1.0)
    return Facts(
        source=dataset.source,
        example=example_shape(source, x),
        classes=dataset.classes,
        several=bool((labels != labels.flat[0]).any()),
        pixels=(min(0.0, pixels[0]), max(0.0, pixels[1])),
        train=len(x),
        test=len(dataset.test.x),
        words=len(dataset.vocabulary) if dataset.kind == "sequences" else None,
    )


def example_shape(source: Input, x: np.ndarray) -> tuple[int, ...]:
    """Shape of one input: (height, width, channels), or (positions,) of a segment of text."""
    shape = source.shape(x)
    return (int(source.length(x, source.starts(x)[0])),) if shape == (None,) else shape
