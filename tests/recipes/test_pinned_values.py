"""Initial values of every shipped recipe match the recorded ones, so runs are reproducible."""

import numpy as np
import pinned
import pytest
from each import for_each

from hetero_tf.recipe.recipe_files import shipped

RECORDED = pinned.recorded()
# Large models take most of the time; most have a tiny recipe with the same layers.
LARGE = [f"methods/{name}" for name in ("depthfl", "fedepth_branches", "fjord", "scalefl", "slimmable", "splitmix")]
LARGE += [name for name in shipped() if f"tiny/{name}" in shipped()]
QUICK = [(name, pinned.SEEDS[0]) for name in sorted(shipped()) if name not in LARGE]


def check_initial_values(case):
    name, seed = case
    assert name in RECORDED, "a new recipe is recorded by `python tests/support/pinned.py`"
    entry = RECORDED[name]
    values = pinned.initial_values(name, seed, entry["shape"], entry["classes"])
    assert values.keys() == entry[seed].keys()
    for path, expected in entry[seed].items():
        # Orthogonal values come from a float32 factorisation, whose rounding differs between processors: 4e-6 in the
        # sum of an LSTM's 262,144 entries was seen. Another draw moves a sum by about the norm of the array.
        np.testing.assert_allclose(values[path], expected, rtol=1e-6, atol=2e-5, err_msg=path)


@pytest.mark.long
@for_each(QUICK)
def test_initial_values_match_the_recorded_ones(case):
    check_initial_values(case)


@pytest.mark.long
@for_each(sorted({(name, seed) for name in shipped() for seed in pinned.SEEDS} - set(QUICK)))
def test_initial_values_of_other_seeds_and_large_models_match_the_recorded_ones(case):
    check_initial_values(case)
