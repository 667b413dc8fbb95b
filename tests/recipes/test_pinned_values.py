"""Initial values of every shipped recipe match the recorded ones, so runs are reproducible."""

import numpy as np
import pinned
import pytest

from hetero_tf.recipe.recipe_files import shipped

RECORDED = pinned.recorded()


# Large models take most of the time; most have a tiny recipe with the same layers.
LARGE = ["methods/splitmix", "methods/fjord", "methods/slimmable", "methods/depthfl"]
LARGE += [name for name in shipped() if f"tiny/{name}" in shipped()]


@pytest.mark.parametrize("seed", [pinned.SEEDS[0], pytest.param(pinned.SEEDS[1], marks=pytest.mark.long)])
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.long] if name in LARGE else []) for name in sorted(shipped())]
)
def test_initial_values_match_the_recorded_ones(name, seed):
    assert name in RECORDED, "a new recipe is recorded by `python tests/support/pinned.py`"
    entry = RECORDED[name]
    values = pinned.initial_values(name, seed, entry["shape"], entry["classes"])
    assert values.keys() == entry[seed].keys()
    for path, expected in entry[seed].items():
        # Orthogonal values come from a float32 factorisation, whose rounding differs between processors: 4e-6 in the
        # sum of an LSTM's 262,144 entries was seen. Another draw moves a sum by about the norm of the array.
        np.testing.assert_allclose(values[path], expected, rtol=1e-6, atol=2e-5, err_msg=path)
