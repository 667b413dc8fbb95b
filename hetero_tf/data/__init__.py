"""Data loaders: each module with a `load` function is a loader, selected in a recipe by its module name.

Each loader has the signature `load(data_dir, *, options...) -> Dataset`. It searches relative paths in the folder
`data_dir`, unless None, and then in the working folder. It raises `NotAvailable` if the data are missing and cannot be
downloaded, `InputError` for damaged data or an invalid option, `MemoryProblem` for data that exceed the memory, and
`DiskProblem` if they cannot be read, or written to the cache. `load` in this module selects the loader and applies the
fallback. `from_arrays` and `from_tf_data` build a `Dataset` from data in memory or from a `DiskArray`.

A loader of files with a format of its own has the constant `ENDINGS`, such as (".ts",), and the function
`possible_tasks(path) -> (names, reason)`, the likely task first, for `hetero_tf new`.
"""

import dataclasses
import functools
import inspect
import os
from pathlib import Path
from typing import Any

from hetero_tf.base import registry
from hetero_tf.base.errors import InputError, did_you_mean
from hetero_tf.data.dataset import Dataset, NotAvailable
from hetero_tf.data.disk_array import DiskArray
from hetero_tf.data.in_memory import from_arrays, from_tf_data
from hetero_tf.data.targets import LABEL

__all__ = ["Dataset", "DiskArray", "NotAvailable", "data_folder", "from_arrays", "from_tf_data", "load"]

# Embedded data sets that a recipe may name as fallback, with the options that they inherit from the recipe.
FALLBACKS = {"digits": ("size", "channels"), "pydoc": ("rows", "test_rows")}
# Shapes of well-known image sets, needed when the set itself is not available.
SHAPES = dict.fromkeys(("mnist", "fashion_mnist", "kmnist", "emnist", "femnist"), (28, 1))
SHAPES |= {"cifar10": (32, 3), "cifar100": (32, 3), "svhn_cropped": (32, 3), "tiny_imagenet": (64, 3)}


def load(
    plugin: Any,
    fallback: str | None = None,
    data_dir: str | Path | None = None,
    targets: str = LABEL,
    learned: tuple[str, ...] | None = None,
) -> Dataset:
    """Load the data of a recipe.

    Args:
        plugin: `recipe.schema.Plugin`: name and options of the loader.
        fallback: Embedded data set to use if the real one is not available: "digits", "pydoc" or None.
        data_dir: The data folder; None: the folder in HETERO_TF_DATA, if set.
        targets: Form of the targets, see `targets`; a loader that supports several declares the parameter `targets`.
        learned: Vocabulary that a run learned at its start, so that it is not learned again; for loaders that declare
            the parameter `learned`. A loader that declares `validation` takes the ids of training examples of which it
            takes no fill values, categories and words, see `Dataset.refit`.

    Returns:
        `Dataset`; its `stand_in_for` names the missing data set if the fallback was used.

    Raises:
        NotAvailable: The data are missing and cannot be downloaded, and no fallback is set.
        InputError: A name, an option or the data are invalid; damaged data are never replaced by the fallback.
    """
    if fallback is not None and fallback not in FALLBACKS:
        raise InputError(
            f"`fallback` must be an embedded data set. Received: fallback={fallback!r}"
            f"{did_you_mean(fallback, FALLBACKS)}"
        )
    try:
        loader = registry.find("data", plugin.name).load
        parameters, values = inspect.signature(loader).parameters, {"targets": targets, "learned": learned}
        declared = {name: value for name, value in values.items() if name in parameters}
        read = functools.partial(loader, data_folder(data_dir), **plugin.options, **declared)
        dataset = read()
    except NotAvailable as error:
        if fallback is None:
            raise
        return _load_fallback(plugin, fallback, error)
    if not isinstance(dataset, Dataset):
        raise InputError(f"the loader {plugin.name} must return a Dataset. Received: {type(dataset).__name__}")
    if "validation" in parameters:
        return dataclasses.replace(dataset, refit=lambda ids: read(validation=ids))
    return dataset


def data_folder(data_dir: str | Path | None) -> Path | None:
    """Return the data folder: `data_dir`, else the folder in HETERO_TF_DATA, if set.

    Raises:
        InputError: The path exists but is not a folder.
    """
    data_dir = data_dir or os.environ.get("HETERO_TF_DATA")
    folder = Path(os.path.expanduser(data_dir)) if data_dir else None
    if folder is not None and os.path.exists(folder) and not folder.is_dir():
        raise InputError(f"--data_dir and HETERO_TF_DATA must name a folder. Received: {folder}")
    return folder


def _load_fallback(plugin, fallback, error):
    missing = plugin.options.get("dataset", plugin.name)
    options = dict(plugin.options)
    if missing.split("/")[0] in SHAPES:
        size, channels = SHAPES[missing.split("/")[0]]
        options = {"channels": channels, **options, "size": options.get("size") or size}
    known = {name: options[name] for name in FALLBACKS[fallback] if options.get(name) is not None}
    stand_in = registry.find("data", fallback).load(None, **known)
    # Drop the advice of the message: it suggests the fallback that is already in use.
    source = f"{stand_in.source}, standing in for {missing}: {str(error).split('; ')[0]}"
    return dataclasses.replace(stand_in, source=source, stand_in_for=missing)
