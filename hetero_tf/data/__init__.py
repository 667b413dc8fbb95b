"""Data loaders: each module with a `load` function is a loader, selected in a recipe by its module name.

Each loader has the signature `load(data_dir, *, options...) -> Dataset`. It searches relative paths in the folder
`data_dir`, unless None, and then in the working folder. It raises `NotAvailable` if the data are missing and cannot be
downloaded, `InputError` for damaged data or an invalid option, `MemoryProblem` for data that exceed the memory, and
`DiskProblem` if they cannot be read, or written to the cache. `load` in this module selects the loader and applies the
fallback. `from_arrays` and `from_tf_data` build a `Dataset` from data in memory or from a `DiskArray`.

Modules:

    arrow_files      Reads columns of untrusted Parquet and Arrow files with pyarrow
    arrow_messages   Reads the buffer sizes of an Arrow stream from its messages
    audio            Loads sound clips of the user from one folder of WAV files per class
    column_targets   Reads the targets and owners of the rows of a table
    column_types     Decides the types of a table's columns: from the options of a recipe, else from the values
    columns          Table columns and the encoding of their values as features
    csv              Loads a table of the user from a CSV file or a text file with another delimiter
    data_files       Locates data files and folders of the user
    data_lines       Lines that show how the data were understood
    dataset          `Dataset`, the result of every loader: a validated training and test split
    dates            Dates in tables: their notation, and the calendar features of a date
    decoded          Caches decoded arrays between runs
    described        Describe a data set without its examples, so that a trained model can be used without the data
    digits           1,797 real handwritten digits that ship with the package
    disk_array       Examples on disk: an array backed by a .npy file that reads only the requested rows
    femnist          FEMNIST: handwritten characters with their writers
    fetch            Downloads a published file of some megabytes and verifies its SHA-256
    folder           Loads pictures of the user from one folder per class; lists the files of such folders
    held_out         Makes a test split for data that have none
    in_memory        Builds a validated `Dataset` from arrays or `tf.data.Dataset`s in memory
    inspection       Inspects data as read
    label_arrays     Reads targets from arrays: class labels as whole numbers, texts or one-hot rows
    labelled_text    Loads labelled texts of the user
    masks            Loads pictures of the user with masks: PNG files whose pixel values are classes
    named_arrays     Examples that consist of several named arrays, such as a picture and a row of numbers
    npy              Loads images of the user from a folder of NumPy .npy files, which may exceed memory
    npz              Loads images, a table, series or several arrays of the user from a NumPy .npz file
    parquet          Loads a table or pictures of the user from Parquet or Arrow files
    parquet_pages    Reads the page sizes of a Parquet file from the page headers
    picture_arrays   Decodes picture files of mixed sizes into arrays of one size, with the preprocessing of exports
    pydoc            Real English prose that ships with the package, for a quick start and as a fallback for text sets
    raw_table        Tables as read from files: columns of numbers or texts, before their types are decided
    sentences        Encodes sentences as padded rows of word ids: lower-case words and their vocabulary
    series           Loads windows of time series from a text file with a row for each time
    shapes           Generated pictures of discs, squares and triangles, with the class of each pixel
    subwords         Subwords: pieces of words from byte-pair encoding (Sennrich et al
    synthetic        Small generated data sets with learnable structure, for tests and first experiments
    table_dataset    Builds a `Dataset` from columns of numbers or texts
    targets          Forms of the targets of examples, and their classes for partitions and test splits
    text             Loads running text of the user from text
    text_folders     Reads folders of text files, one folder for each class, as tables of texts and labels
    text_lines       Lines of a UTF-8 text file, read one at a time; an invalid line does not hide those after it
    tfds             Loads image classification sets of TensorFlow Datasets: mnist, cifar10, emnist/balanced
    tiny_imagenet    Tiny ImageNet: 200 classes of JPEG images, read from the unpacked archive
    tokenizer_json   Reads the tokens of a `tokenizer.json`
    tokenizers       Tokenizers: split the words of a text into tokens
    unpacked         Limits the unpacked size of data files, estimated before memory is allocated
    vocabulary_file  Reads a vocabulary file
    wikitext2        WikiText-2, the word-level corpus of Wikipedia articles (Merity et al. 2016, CC BY-SA 3.0)
    words            Encodes running text as rows of word ids: text files, vocabulary, and rows of equal length
"""

import dataclasses
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
SHAPES = {
    "mnist": (28, 1),
    "fashion_mnist": (28, 1),
    "kmnist": (28, 1),
    "emnist": (28, 1),
    "femnist": (28, 1),
    "cifar10": (32, 3),
    "cifar100": (32, 3),
    "svhn_cropped": (32, 3),
    "tiny_imagenet": (64, 3),
}


def load(
    plugin: Any,
    fallback: str | None = None,
    data_dir: str | Path | None = None,
    targets: str = LABEL,
    learned: tuple[str, ...] | None = None,
) -> Dataset:
    """Loads the data of a recipe.

    Args:
        plugin: `recipe.schema.Plugin`: name and options of the loader.
        fallback: Embedded data set to use if the real one is not available: "digits", "pydoc" or None.
        data_dir: The data folder; None: the folder in HETERO_TF_DATA, if set.
        targets: Form of the targets, see `targets`; a loader that supports several declares the parameter `targets`.
        learned: Vocabulary that a run learned at its start, so that it is not learned again; for loaders that declare
            the parameter `learned`.

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
        dataset = loader(data_folder(data_dir), **plugin.options, **declared)
    except NotAvailable as error:
        if fallback is None:
            raise
        return _load_fallback(plugin, fallback, error)
    if not isinstance(dataset, Dataset):
        raise InputError(f"the loader {plugin.name} must return a Dataset. Received: {type(dataset).__name__}")
    return dataset


def data_folder(data_dir: str | Path | None) -> Path | None:
    """Returns the data folder: `data_dir`, else the folder in HETERO_TF_DATA, if set.

    Raises:
        InputError: The path exists but is not a folder.
    """
    data_dir = data_dir or os.environ.get("HETERO_TF_DATA")
    folder = Path(os.path.expanduser(data_dir)) if data_dir else None
    if folder is not None and os.path.exists(folder) and not folder.is_dir():
        raise InputError(f"--data_dir and HETERO_TF_DATA must name a folder. Received: {folder}")
    return folder


def _load_fallback(plugin, fallback, error):
    """Loads the fallback in the shape of the missing data set."""
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
