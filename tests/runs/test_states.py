"""Global weights of a run folder."""

import numpy as np

from hetero_tf.runs import checkpoints
from hetero_tf.runs.facts import global_weights
from hetero_tf.runs.run_folder import RunFolder


def test_global_weights_are_those_of_the_best_state_and_means_of_personal_units(tmp_path):
    run = RunFolder(tmp_path)
    run.recipe.write_text("name: x")
    arrays = {
        "weights/a": np.float32([1, 2]),
        "clients/personal/b": np.float32([[1, 5], [2, 9]]),
        "server/a": np.ones(2),
    }
    for folder, number in ((run.checkpoints, 3), (run.best, 2)):
        checkpoints.save(folder, number, {"weights/a": np.zeros(2)} if number == 3 else arrays, {}, keep=1)
    weights, source = global_weights(run)
    assert {path: value.tolist() for path, value in weights.items()} == {"a": [1, 2], "b": [1.5, 7]}
    assert source == f"{run.best}, round 2" and weights["b"].dtype == np.float32
