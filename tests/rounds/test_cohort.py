"""Training without the merge: results of several devices may be added before they are merged."""

import numpy as np
import pytest
import tensorflow as tf
import tiny

from hetero_tf.models.state import in_order
from hetero_tf.planning.packing import pack_rounds
from hetero_tf.rounds.cohort import train_cohort
from hetero_tf.rounds.global_row import pack_state, split_values
from hetero_tf.rounds.merge import merge_updates


def arrays(process, plan):
    """One planned round in the form of the compiled round."""
    packed = pack_rounds([plan], [block.clients for block in process.setup.engine.blocks], process.family.submodel_of)
    return [tf.constant(array[0]) for array in packed.arrays()]


@pytest.mark.parametrize(
    ("name", "weighting"), [("sequential", "samples"), pytest.param("stacked", "uniform", marks=pytest.mark.long)]
)
def test_two_halves_of_a_cohort_sum_to_the_round(name, weighting):
    overrides = ("precision=float64", "round.submodel=random", f"engine={name}", f"round.weighting={weighting}")
    process = tiny.shared(tiny.DENSE, *overrides, "levels.assignment=fixed", "levels.mix=a-b")
    state, setup = process.initialize(), process.setup
    before, seed = pack_state(in_order(state)), process._seed

    @tf.function(autograph=False)
    def trained(packed):
        rate = tf.constant(process.learning_rate(0), tf.float64)
        return train_cohort(setup, before, packed, rate, tf.constant(0), seed)

    halves = [trained(arrays(process, process.plan(0, cohort))) for cohort in ([0, 3], [1, 2])]
    (total, covered, _, records), (more, also, _, _) = halves
    row, _ = merge_updates(setup, before, total + more, covered + also)
    full_state, rows = process.run(state, [process.plan(0, [0, 1, 2, 3])])
    for actual, path in zip(split_values(row, setup.layout.cut.shapes), full_state.weights, strict=True):
        np.testing.assert_allclose(actual, full_state.weights[path], rtol=1e-12, atol=1e-14)
        assert np.abs(actual - state.weights[path]).max() > 1e-4
    # One half of the cohort makes another round, and covers less.
    half_row, _ = merge_updates(setup, before, total, covered)
    assert np.abs(half_row - row).max() > 1e-4
    losses = [records["loss"], halves[1][3]["loss"]]
    assert rows[0]["loss"] == pytest.approx(np.concatenate(losses)[np.concatenate(losses) > 0].mean())
