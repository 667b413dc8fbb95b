"""Values with one copy for each level, `round.by_level`."""

import numpy as np
import pytest
import tiny
from refusals import refusal

from hetero_tf.models.personal import level_path, shared_path

FIXED = "levels.assignment=fixed"


def numpy_weights(state):
    return {path: value.numpy() for path, value in state.weights.items()}


@pytest.mark.parametrize("names", ["norms", "norms, '0', 3_0_dense"])
def test_a_copy_is_the_mean_over_the_clients_of_its_level(names, eager):
    process = tiny.process(tiny.IMAGES, FIXED, f"round.by_level=[{names}]")
    plain = tiny.process(tiny.IMAGES, FIXED)
    start, first = process.initialize(), plain.initialize()
    copies = {path for path in start.weights if path != shared_path(path)}
    assert {shared_path(path) for path in copies} == {
        path for path in first.weights if "norm" in path or (len(names) > 5 and path[0] in "03")
    }
    after = numpy_weights(process.next(start, cohort=[0, 1, 2, 3])[0])
    merged = numpy_weights(plain.next(first, cohort=[0, 1, 2, 3])[0])
    levels, of_level = process.plan(0, cohort=[0, 1, 2, 3]).levels, {}
    for number, name in enumerate(process.recipe.levels.names):
        of_level[name] = numpy_weights(plain.next(first, cohort=np.flatnonzero(levels == number))[0])
    for path in first.weights:
        copy = level_path(path, "c")
        if copy not in copies:
            np.testing.assert_array_equal(after[path], merged[path], path)
            continue
        part = tuple(slice(size) for size in after[copy].shape)
        np.testing.assert_array_equal(start.weights[copy], first.weights[path].numpy()[part], path)
        np.testing.assert_allclose(after[copy], of_level["c"][path][part], 1e-6, 1e-7, path)
        np.testing.assert_allclose(after[path], of_level["a"][path], 1e-6, 1e-7, path)
        assert not np.array_equal(after[copy], after[path][part]), path


def test_refusals():
    message = refusal(tiny.process, tiny.IMAGES, "round.by_level=[norms]", "round.personal=[biases, norms]")
    assert "round.by_level: round.personal keeps 0_2_norm/sbn/gamma on the clients" in message
    assert "round.by_level[0]: must name values of the model" in refusal(
        tiny.process, tiny.IMAGES, "round.by_level=[embeddings]"
    )
