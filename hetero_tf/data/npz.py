"""A person's own images or table in a NumPy .npz file."""

from pathlib import Path

from hetero_tf.base.constraints import Count
from hetero_tf.base.errors import InputError
from hetero_tf.base.files import opened
from hetero_tf.base.npz_reader import array_bytes, array_names, read_arrays
from hetero_tf.data.data_files import READS, find_file
from hetero_tf.data.dataset import Dataset
from hetero_tf.data.in_memory import from_arrays
from hetero_tf.data.unpacked import check_unpacked

NAMES = ("x_train", "y_train", "x_test", "y_test")
OWNERS = ("train_owners", "test_owners")
TEXTS = ("class_names", "feature_names")


def load(data_dir: Path | None, *, path: str, classes: Count | None = None) -> Dataset:
    """Loads examples and labels from the arrays x_train, y_train, x_test and y_test.

    Images are uint8 `[n, height, width]` or `[n, height, width, channels]`. Floats are taken only if all of
    them are in [0, 1], and become round(255 * x). Rows of a table are numbers `[n, features]`. Labels are integers
    `[n]`. Where examples come from natural clients, such as writers, the arrays train_owners and test_owners, integers
    `[n]` from 0, say from which. The texts class_names `[classes]` and feature_names `[features]` name labels and the
    columns of a table. Each of these may be left out.

    Args:
        data_dir: Folder in which a relative path is looked for first, then the working folder; None: only the latter.
        path: the .npz file
        classes: number of labels; null: as many as class_names has, else the highest training label plus one, and each
            must occur

    Raises:
        NotAvailable: The file is missing.
        InputError: The file or an array is damaged or has a wrong dtype, shape or value.
        MemoryProblem: The arrays do not fit into memory.
    """
    file = find_file(data_dir, path, "path")
    with opened(file) as content:
        if content.read(2) != b"PK":
            raise InputError(f"{file}: cannot be read as an .npz file, it is damaged or something else; {READS}")
    names = [*NAMES, *({*OWNERS, *TEXTS} & set(array_names(file)))]
    check_unpacked(file, array_bytes(file, names), file.stat().st_size)
    data = read_arrays(file, names)
    for name in TEXTS:
        if name in data and (data[name].dtype.kind != "U" or data[name].ndim != 1):
            raise InputError(
                f"{file}: {name} must be texts of shape [n]. Received: {data[name].dtype} {data[name].shape}"
            )
    what = "table" if data["x_train"].ndim == 2 else "images"
    arrays = [data[name] for name in NAMES]
    named: dict = {name: data.get(name) for name in (*OWNERS, *TEXTS)}
    return from_arrays(*arrays, **named, classes=classes, source=f"{what} ({file})")
