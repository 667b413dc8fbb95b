"""The pictures of README: what they show, and that a command writes them."""

import numpy as np
import programs
import pytest

from hetero_tf import recipe
from hetero_tf.store import metrics
from hetero_tf.store.run_folder import RunFolder

pictures = programs.script("benchmarks/pictures.py")


def run_folder(path, name, seed, accuracies):
    path.mkdir()
    run = RunFolder(path)
    run.recipe.write_text(recipe.load("tiny/digits", [f"name={name}", f"seed={seed}"]).source)
    for number, accuracy in enumerate(accuracies, 1):
        metrics.append(run.metrics, {"round": number, "global_accuracy": accuracy})
    return path


def test_levels_cover_what_their_submodels_keep():
    prefix = pictures.coverage("prefix")
    assert (prefix[:4, :8] == 10).all() and (prefix[7, 15], prefix[8, 0], prefix[15, 31]) == (5, 2, 2)
    rolled = pictures.coverage("rolling", round_number=3)
    np.testing.assert_array_equal(rolled, np.roll(prefix, (-3, -3), (0, 1)))
    # Every way trains as many entries; two clients have all of them.
    random = pictures.coverage("random")
    assert random.sum() == prefix.sum() and random.min() == 2


def test_a_curve_gathers_the_seeds_of_a_name(tmp_path):
    folders = [
        run_folder(tmp_path / "1", "one", 0, [10, None, 30]),
        run_folder(tmp_path / "2", "one", 1, [20, None, 50]),
        run_folder(tmp_path / "3", "two", 0, [5, 6, 7]),
    ]
    found = pictures.curves(folders, "global_accuracy")
    assert found == {"one": {1: [10, 20], 3: [30, 50]}, "two": {1: [5], 2: [6], 3: [7]}}
    with pytest.raises(SystemExit, match="none of the runs has measured local_loss"):
        pictures.curves(folders, "local_loss")
    pytest.importorskip("matplotlib")
    pictures.main(["curve", *map(str, folders), "--out", str(tmp_path / "curve.png")])
    assert (tmp_path / "curve.png").read_bytes().startswith(b"\x89PNG")
