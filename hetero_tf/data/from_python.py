"""The data set was passed from Python, so it must be passed again."""

from pathlib import Path

from hetero_tf.base.errors import InputError
from hetero_tf.data.dataset import Dataset


def load(data_dir: Path | None) -> Dataset:
    """Refuse to load the data.

    Raises:
        InputError: Always.
    """
    raise InputError(
        "the data of this run were passed from Python: pass them again, as hetero_tf.load_run(FOLDER, dataset=...) or "
        "hetero_tf.train(..., dataset=..., run_dir=FOLDER)"
    )
