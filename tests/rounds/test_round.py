"""Properties of every compiled round; `test_engine` compares rounds with the plain loop."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf
import tiny

from hetero_tf.base.replicas import Replicas
from hetero_tf.models.state import flatten_state
from hetero_tf.planning.plan import Plan
from hetero_tf.run.federation import OVERFLOW

both_engines = pytest.mark.parametrize("engine", [pytest.param("sequential", marks=pytest.mark.long), "stacked"])


def dense(*overrides):
    return tiny.shared(tiny.DENSE, *overrides)


def run(process, planned):
    state, rows = process.run(process.initialize(), planned)
    return tiny.arrays(state), rows


@both_engines
def test_twenty_rounds_of_two_levels_are_one_trace(engine):
    process, seen = dense(f"engine={engine}", "levels.mix=a-c"), set()
    state = process.initialize()
    planned = tiny.plans(process, 17)
    state, rows = process.run(state, planned[:10])
    state, more = process.run(state, planned[10:])
    for cohort in ([2], [0, 1, 2, 3], [3, 1]):
        state, row = process.next(state, cohort)
        assert sum(row["levels"].values()) == len(cohort)
        more.append(row)
    for row in rows + more:
        seen.add(tuple(level for level, count in row["levels"].items() if count))
        assert np.isfinite(row["loss"])
    assert seen == {("a",), ("c",), ("a", "c")}
    assert state.round == 20
    assert process.runner.compiled_round.experimental_get_tracing_count() == 1


@both_engines
def test_rounds_per_call_and_blocks_in_flight_change_no_bit(engine):
    process = dense(f"engine={engine}", "levels.mix=a-c")
    reference, rows = run(process, tiny.plans(process, 3))
    other = tiny.with_setup(process, engine={"replicas": Replicas(3)})
    assert tiny.same(run(other, tiny.plans(process, 3))[0], reference)
    state, single = process.initialize(), []
    for _ in range(3):
        state, row = process.next(state)
        single.append(row)
    assert tiny.same(tiny.arrays(state), reference)
    assert single == rows
    assert not tiny.same(reference, tiny.arrays(process.initialize()))


@both_engines
def test_metrics_do_not_depend_on_a_longer_round_in_the_same_call(engine):
    # The sum of many losses may round differently when zeros follow, but not here.
    settings = (f"engine={engine}", "client.epochs=40", "levels.mix=c")
    process = tiny.process(tiny.DENSE, *settings, data=tiny.images((7, 5, 29, 4)))
    short, long = process.plan(0, [0, 1, 3]), process.plan(1, [0, 1, 2])
    assert max(short.steps) < max(long.steps) / 3
    assert run(process, [short, long])[1][0] == run(process, [short])[1][0]


@both_engines
def test_the_order_of_clients_changes_rounding_only(engine, eager):
    process = dense("precision=float64", f"engine={engine}")
    plan = process.plan(0, [0, 1, 2, 3])
    reference = run(process, [plan])[0]
    rng = np.random.default_rng(0)
    for _ in range(5):
        order = rng.permutation(4)
        actual = run(process, [Plan(*(array[order] for array in plan.arrays().values()))])[0]
        assert tiny.gap(actual, reference) < 1e-14


def test_server_step_receives_the_coverage(eager):
    process = tiny.process(tiny.DENSE, "levels.mix=a-c", "levels.assignment=fixed")

    def server_step(old, mean, coverage, slots):
        return tf.broadcast_to(coverage, tf.shape(old)), slots

    process = tiny.with_setup(process, algorithm={"server": server_step})
    weights = run(process, [process.plan(0, [3])])[0]  # level c keeps 2 of 8, the client has label 4 of 9
    wide, head = (np.arange(8) < 2), np.arange(tiny.CLASSES) == 4
    expected = [np.tile(wide, (2, 1)), wide, np.outer(wide, head), head]
    for value, covered in zip(weights.values(), expected, strict=True):
        assert value.tolist() == covered.tolist()


@pytest.mark.parametrize(
    "overrides",
    [
        ("round.server=replace",),
        ("round.server=adam",),
        ("round.server=adagrad", "round.weighting=samples"),
        ("round.server=dynamic", "client.correction=dynamic"),
        ("round.server=scaffold", "client.correction=scaffold", "optimizer.momentum=0"),
        ("round.personal=['0']",),
    ],
)
def test_overflowing_merge_leaves_the_state_unchanged(eager, overrides):
    """All clients return a bias of 3e38: it keeps the order of the logits, and the sum of two overflows."""
    shared = ("round.label_rows=all", "client.label_cut=false", "optimizer.weight_decay=0")
    process = tiny.process(tiny.DENSE, *shared, *overrides)
    state = process.initialize()
    path = next(path for path in state.weights if path.startswith("1_0") and path.endswith("bias"))
    state = dataclasses.replace(state, weights={**state.weights, path: tf.fill(state.weights[path].shape, 3e38)})
    after, row = process.next(state)
    assert after.round == 1 and row["failure"] == OVERFLOW and row["non_finite"] == 0
    for new, old in zip(tf.nest.flatten([flatten_state(after)]), tf.nest.flatten([flatten_state(state)]), strict=True):
        np.testing.assert_array_equal(new, old)
