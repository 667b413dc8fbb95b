"""Exports of every task have the score of `evaluate` in a process that cannot import this package."""

import subprocess
import sys

import numpy as np
import pytest
import tiny

import hetero_tf
from hetero_tf import export

# Runs in an isolated process (-I): the raw test inputs through the default signature of each export, or that of encoded rows.
SCRIPT = """
import sys
sys.modules["hetero_tf"] = None
import numpy as np, tensorflow as tf
for folder in sys.argv[1:]:
    signatures = tf.saved_model.load(folder).signatures
    # The stored rows of a table are encoded.
    signature = signatures["serve_numbers" if "serve_numbers" in signatures else "serving_default"]
    (name,) = signature.structured_input_signature[1]
    outputs = signature(**{name: tf.constant(np.load(folder + ".inputs.npy"))})
    np.savez(folder + ".outputs.npz", **{key: value.numpy() for key, value in outputs.items()})
"""


def accuracy(outputs, y):
    return 100 * np.mean(outputs["class"] == y)


def rmse(outputs, y):
    return np.sqrt(np.mean((outputs["values"] - y) ** 2))


def micro_f1(outputs, y):
    present = outputs["labels"] == 1
    return 100 * 2 * (present & y).sum() / (present.sum() + y.sum())


def mean_iou(outputs, y):
    shares = [
        ((outputs["class"] == label) & (y == label)).sum() / ((outputs["class"] == label) | (y == label)).sum()
        for label in np.unique(y)
    ]
    return 100 * np.mean(shares)


SCORES = {
    "audio_tones": accuracy,
    "digits": accuracy,
    "text_topics": accuracy,
    "table_regression": rmse,
    "series_forecast": rmse,
    "table_binary": accuracy,
    "table_ordinal": accuracy,
    "table_multi_label": micro_f1,
    "shapes_unet": mean_iou,
}


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """The row of `evaluate`, the outputs of the export, and the targets of each recipe with other weights."""
    folder, rows = tmp_path_factory.mktemp("exports"), {}
    for name in SCORES:
        process = hetero_tf.learning_process(hetero_tf.load_recipe(f"tiny/{name}", ["levels.mix=a"]))
        state = tiny.perturbed(process.initialize())
        row, _ = process.evaluate(state)
        path, *_ = export.export(process, state, process.statistics(state), folder / name, {"last": row})
        test = process.dataset.test
        full_scale = {np.uint8: 255, np.int16: 2**15}.get(test.x.dtype.type)
        x = test.x.astype(np.float32) / full_scale if full_scale else test.x
        np.save(f"{path}.inputs.npy", x)
        rows[name] = row, str(path), test.y
    command = [sys.executable, "-I", "-c", SCRIPT, *(path for _, path, _ in rows.values())]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return {name: (row, dict(np.load(f"{path}.outputs.npz")), y) for name, (row, path, y) in rows.items()}


@pytest.mark.long
@pytest.mark.parametrize("name", SCORES)
def test_the_score_in_a_fresh_process_is_that_of_evaluate(measured, name):
    row, outputs, y = measured[name]
    score = SCORES[name]
    np.testing.assert_allclose(score(outputs, y), row[f"global_{score.__name__}"], rtol=1e-5)
