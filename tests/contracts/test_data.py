"""Contract of every loader in the package; a new module is tested automatically."""

from pathlib import Path

import folders
import numpy as np
import pytest

from hetero_tf import data
from hetero_tf.base import registry
from hetero_tf.base.errors import InputError
from hetero_tf.recipe.schema import Plugin
from hetero_tf.testing import plugin_checks

# Options of loaders that need a file or name; `folder` below has the files.
OPTIONS = {
    "audio": {"path": "own_sounds", "rate": 8000, "seconds": 0.1},
    "labelled_text": {"path": "own_texts.csv"},
    "text": {"train": "own.txt", "rows": 3, "test_rows": 1},
    "npz": {"path": "own.npz"},
    "npy": {"path": "own_arrays"},
    "csv": {"path": "own.csv", "label": "kind"},
    "folder": {"path": "own_pictures", "size": 8},
    "masks": {"path": "own_masks", "size": 8},
    "parquet": {"path": "own.parquet", "label": "kind"},
    "wikitext2": {"rows": 3, "test_rows": 1, "verify": False, "download": False},
    "tfds": {"dataset": "mnist", "download": False},
    "series": {
        **{"path": "own_series.csv", "label": "climate", "time": "month", "series": "station"},
        **{"window": 3, "test_share": 0.5},
    },
    "femnist": {"path": "own_femnist"},
    "tiny_imagenet": {"path": "own_imagenet", "size": 8},
}
# Loaders whose data cannot be generated quickly: they are tested with their fallback.
STANDS_IN = {"tfds": "digits"}


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "wikitext-2").mkdir()
    for name in ("own.txt", "wikitext-2/train.txt", "wikitext-2/test.txt"):
        (tmp_path / name).write_text("some words of a small text\n" * 5)
    lines = "".join(f"{word} is {kind},{kind}\n" for kind in ("good", "bad") for word in ("this", "that", "all"))
    (tmp_path / "own_texts.csv").write_text(f"text,label\n{lines}")
    rows = "".join(f"{month},{station},{month * station},{station % 2}\n" for station in range(4) for month in range(9))
    (tmp_path / "own_series.csv").write_text(f"month,station,rain,climate\n{rows}")
    folders.write_femnist(tmp_path / "own_femnist")
    folders.write_tiny_imagenet(tmp_path / "own_imagenet")
    folders.write_pictures(tmp_path / "own_pictures")
    folders.write_masks(tmp_path / "own_masks")
    folders.write_sounds(tmp_path / "own_sounds")
    folders.write_tables(tmp_path)
    x, y = np.random.default_rng(0).integers(0, 256, (8, 6, 6), np.uint8), np.arange(8) % 4
    np.savez(tmp_path / "own.npz", x_train=x, y_train=y, x_test=x, y_test=y)
    folders.write_arrays(tmp_path / "own_arrays")
    return tmp_path


@pytest.fixture(params=registry.names("data"))
def name(request):
    return request.param


def test_a_plugin_keeps_the_contract(name, folder):
    checks = plugin_checks("data", name, OPTIONS.get(name, {}), data_dir=folder)
    for check in checks[:-1] if name in STANDS_IN else checks:
        check()


@pytest.mark.parametrize("name", STANDS_IN)
def test_missing_data_are_replaced_by_the_fallback(name, folder):
    dataset = data.load(Plugin(name, OPTIONS[name]), STANDS_IN[name], folder)
    assert dataset.stand_in_for is not None and dataset.classes > 1


def test_a_missing_folder_is_reported_unless_unused(name):
    plugin = Plugin(name, OPTIONS.get(name, {}))
    try:
        dataset = data.load(plugin, None, Path("/nowhere/at/all"))
    except InputError as error:
        assert "/nowhere/at/all" in str(error)
        assert "\n" not in str(error)
    else:
        assert dataset.stand_in_for is None
        assert name not in OPTIONS
