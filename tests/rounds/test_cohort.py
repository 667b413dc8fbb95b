"""Training without the merge: results of several devices may be added before they are merged."""

import numpy as np
import pytest
import tensorflow as tf
import tiny

from hetero_tf.planning.packing import pack_rounds
from hetero_tf.rounds.block_training import RoundScalars
from hetero_tf.rounds.cohort import train_cohort
from hetero_tf.rounds.merge import merge_updates


def arrays(process, plan):
    """One planned round in the form of the compiled round."""
    packed, _ = pack_rounds([plan], process.setup.block_sizes, process.family.submodel_of)
    return tf.nest.map_structure(lambda array: tf.constant(array[0]), packed)


@pytest.mark.parametrize(
    ("name", "weighting"), [("sequential", "samples"), pytest.param("stacked", "uniform", marks=pytest.mark.long)]
)
def test_two_halves_of_a_cohort_sum_to_the_round(name, weighting):
    overrides = ("precision=float64", "round.submodel=random", f"engine={name}", f"round.weighting={weighting}")
    process = tiny.shared(tiny.DENSE, *overrides, "levels.assignment=fixed", "levels.mix=a-b")
    state, setup, layout = process.initialize(), process.setup, process.state_layout
    before, seed = layout.pack(layout.values_of(state)), process.seed

    @tf.function(autograph=False)
    def trained(packed):
        rate = tf.constant(process.learning_rate(0), tf.float64)
        return train_cohort(setup, before, packed, RoundScalars(tf.constant(0), seed, rate))

    one, other = (trained(arrays(process, process.plan(0, cohort))) for cohort in ([0, 3], [1, 2]))
    merged = merge_updates(setup, before, one.total + other.total, one.coverage + other.coverage)
    full_state, rows = process.run(state, [process.plan(0, [0, 1, 2, 3])])
    for path, actual in layout.unpack(merged)["weights"].items():
        np.testing.assert_allclose(actual, full_state.weights[path], rtol=1e-12, atol=1e-14)
        assert np.abs(actual - state.weights[path]).max() > 1e-4
    # One half of the cohort makes another round, and covers less.
    half = merge_updates(setup, before, one.total, one.coverage)
    assert np.abs(half.weights - merged.weights).max() > 1e-4
    losses = np.concatenate([one.records["loss"], other.records["loss"]])
    assert rows[0]["loss"] == pytest.approx(losses[losses > 0].mean())
