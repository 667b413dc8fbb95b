"""The merge of stale results, compared with a loop that keeps the values of every client."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf
import tiny
from oracle import StaleRounds

from hetero_tf.models.state import StateRows
from hetero_tf.rounds.arrivals import StaleMerge, merge_arrivals

FACTORS = (1.0, 0.7, 0.5)
RULES = {
    "fedbuff": StaleMerge(FACTORS, "changes", 3.0),
    "masked mean": StaleMerge(FACTORS, "changes", "clients"),
    "mean of factors": StaleMerge(FACTORS, "changes", "factors"),
    "fedasync": StaleMerge(FACTORS, "values", 1.0),
}


MEANS = ("masked mean", "mean of factors")


def asynchronous(rule, *overrides):
    """A process of two levels in float64 with a rule for stale results."""
    process = tiny.process(tiny.DENSE, "precision=float64", *overrides)
    algorithm = dataclasses.replace(process.setup.algorithm, stale_merge=rule)
    return dataclasses.replace(process, setup=dataclasses.replace(process.setup, algorithm=algorithm))


def plans(process, delays):
    """One plan for each list of delays, of that many clients."""
    planned = [process.plan(number, range(len(each))) for number, each in enumerate(delays)]
    return [dataclasses.replace(plan, delays=np.asarray(each, np.int32)) for plan, each in zip(planned, delays)]


@pytest.mark.parametrize(
    "name", ["fedbuff", *(pytest.param(name, marks=pytest.mark.long) for name in ("fedasync", *MEANS))]
)
def test_rounds_equal_a_loop_that_keeps_every_result(name, request):
    if name != "fedbuff":
        request.getfixturevalue("eager")
    process = asynchronous(RULES[name], "levels.mix=a-c", *(["engine=stacked"] if name == "fedbuff" else []))
    planned = plans(process, [[2, 0, 1], [1, 1], [0, 2], [0]])
    state = process.initialize()
    expected = StaleRounds(process).play(
        {path: value.numpy() for path, value in state.weights.items()}, planned, RULES[name]
    )
    after, _ = process.run(state, planned)
    step_by_step = state
    for plan in planned:
        step_by_step, _ = process.run(step_by_step, [plan])
    for path, value in after.weights.items():
        np.testing.assert_allclose(value, expected[path], rtol=1e-11, atol=1e-13)
        assert np.abs(value - state.weights[path]).max() > 1e-4
        np.testing.assert_array_equal(value, step_by_step.weights[path])
    # Results of round 3 arrive in later rounds than the last one.
    assert any(np.any(value) for value in after.pending["total"].values())


# With the size of the buffer as divisor, every client covers every entry.
@pytest.mark.parametrize(("words", "divisor"), [(["levels.mix=a-c"], "clients"), (["round.label_rows=all"], 4.0)])
def test_without_delay_a_round_is_bit_equal_to_a_synchronous_one(words, divisor, eager):
    words = ("levels.mix=a", *words, "precision=float32")
    process, other = tiny.process(tiny.DENSE, *words), asynchronous(StaleMerge(FACTORS, "changes", divisor), *words)
    expected, _ = process.run(process.initialize(), [process.plan(number, range(4)) for number in range(2)])
    actual, _ = other.run(other.initialize(), plans(other, [[0] * 4] * 2))
    for path, value in expected.weights.items():
        np.testing.assert_array_equal(actual.weights[path], value)


def test_a_round_without_clients_merges_results_of_earlier_ones(eager):
    process = asynchronous(RULES["masked mean"], "levels.mix=a-c")
    first, empty = plans(process, [[1, 1], []])
    state, _ = process.run(process.initialize(), [first])
    after, rows = process.run(state, [empty])
    assert rows[0]["levels"] == {"a": 0, "c": 0} and rows[0]["loss"] is None
    assert any(np.any(after.weights[path] != state.weights[path]) for path in state.weights)
    assert not any(np.any(value) for value in after.pending["total"].values())


def test_running_statistics_are_means_of_values():
    """A sum of two changes from 10 to 2 would be a variance of -6."""
    old = tf.constant([1.0, 10.0])
    state = StateRows(old, (), {}, {"total": [tf.constant([[0.0, 2.0]])], "coverage": [tf.constant([[0.0, 1.0]])]})
    values = tf.constant([[3.0, 2.0]])
    rule = StaleMerge((1.0, 0.5), "changes", "clients")
    total, coverage, _ = merge_arrivals(rule, state, tf.constant([0]), values, tf.constant([[1.0, 1.0]]), learned=1)
    np.testing.assert_allclose(total / coverage, [3.0, 2.0])
