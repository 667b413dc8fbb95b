"""The compiled round against the plain loop of `oracle`, and what must hold of every round."""

import dataclasses
import functools

import numpy as np
import oracle
import pytest
import tensorflow as tf
import tiny

from hetero_tf import plans

BASES = {"images": tiny.IMAGES, "text": tiny.TEXT}
TOLERANCE = {"float64": 1e-10, "float32": 1e-5}


@functools.cache
def built(base, *overrides):
    return tiny.process(BASES[base], *overrides)


@functools.cache
def dense(*overrides, parallel=2):
    return tiny.process(tiny.DENSE, *overrides, parallel=parallel)


def run(process, planned):
    state, rows = process.run(process.initialize(), planned)
    return tiny.arrays(state), rows


def assigned(process, assignment, rounds):
    """Plans under another assignment; it is data of the round, so nothing is built again."""
    levels = dataclasses.replace(process.recipe.levels, assignment=assignment)
    other = dataclasses.replace(process, recipe=dataclasses.replace(process.recipe, levels=levels))
    return tiny.plans(other, rounds)


@pytest.mark.parametrize("precision", sorted(TOLERANCE))
@pytest.mark.parametrize("submodel", ["prefix", "rolling", "random"])
@pytest.mark.parametrize("base", BASES)
def test_compiled_rounds_equal_the_plain_loop(base, submodel, precision):
    process = built(base, f"round.submodel={submodel}", f"precision={precision}")
    assert process.parts.labels is not None  # the compiled round cuts labels, the plain loop never does
    old = tiny.arrays(process.initialize())
    for assignment, many in (("dynamic", 3), ("fix", 2)):
        planned = assigned(process, assignment, many)
        found, rows = run(process, planned)
        expected, metrics = oracle.play(process, old, planned)
        assert tiny.gap(found, expected) < TOLERANCE[precision]
        told = [(row["loss"], row["gradient_norm"]) for row in rows]
        np.testing.assert_allclose(told, metrics, rtol=TOLERANCE[precision] * 10)
        for path, value in expected.items():
            kept = value == old[path]
            assert found[path][kept].tobytes() == old[path][kept].tobytes()


def test_plans_of_the_comparison_have_short_batches_and_several_levels():
    for base in BASES:
        process = built(base, "round.submodel=prefix", "precision=float64")
        planned = assigned(process, "dynamic", 3)
        assert {level for plan in planned for level in plan.levels} == set(range(len(process.parts.models)))
        assert any(len(set(plan.steps)) > 1 for plan in planned)
        used = [row for plan in planned for slot, steps in enumerate(plan.steps) for row in plan.rows[slot, :steps]]
        assert {(row < 0).any() for row in used} == {True, False}


def test_plain_cross_entropy_equals_the_plain_loop():
    process = dense("client.loss=cross_entropy", "precision=float64", "optimizer.clip_norm=null",
                    "round.submodel=rolling")
    assert process.parts.labels is None
    planned = tiny.plans(process, 2)
    expected, _ = oracle.play(process, tiny.arrays(process.initialize()), planned)
    assert tiny.gap(run(process, planned)[0], expected) < 1e-10


@pytest.mark.parametrize("base", BASES)
def test_cutting_the_label_axis_changes_nothing(base):
    cut = built(base, "round.submodel=random", "precision=float64")
    whole = built(base, "round.submodel=random", "precision=float64", "client.label_cut=false")
    assert cut.parts.labels.shape[1] < whole.parts.present.shape[1] == cut.dataset.classes
    planned = tiny.plans(cut, 3)
    assert tiny.gap(run(cut, planned)[0], run(whole, planned)[0]) < 1e-10


def test_twenty_rounds_of_five_levels_are_one_trace():
    process = tiny.process(tiny.DENSE, "levels.mix=a-b-c-d-e", "round.clients=4")
    state, seen = process.initialize(), set()
    planned = tiny.plans(process, 17)
    state, rows = process.run(state, planned[:10])
    state, more = process.run(state, planned[10:])
    for cohort in ([2], [0, 1, 2, 3], [3, 1]):
        state, row = process.next(state, cohort)
        assert sum(row["levels"].values()) == len(cohort)
        more.append(row)
    for row in rows + more:
        seen |= {level for level, count in row["levels"].items() if count}
        assert 0 in row["levels"].values()  # four clients never fill five levels
        assert np.isfinite(row["loss"])
    assert seen == set("abcde")
    assert state.round == 20
    assert process._round.experimental_get_tracing_count() == 1


def test_rounds_one_by_one_or_in_one_call_and_clients_in_flight_change_no_bit():
    reference, rows = run(dense(parallel=1), tiny.plans(dense(parallel=1), 3))
    for parallel in (2, 3):
        assert tiny.same(run(dense(parallel=parallel), tiny.plans(dense(), 3))[0], reference)
    state, single = dense().initialize(), []
    for _ in range(3):
        state, row = dense().next(state)
        single.append(row)
    assert tiny.same(tiny.arrays(state), reference)
    assert single == rows
    assert not tiny.same(reference, tiny.arrays(dense().initialize()))


def test_the_order_of_clients_changes_rounding_only():
    process = dense("precision=float64")
    plan = process.plan(0, [0, 1, 2, 3])
    reference = run(process, [plan])[0]
    rng = np.random.default_rng(0)
    for _ in range(5):
        order = rng.permutation(4)
        found = run(process, [plans.Plan(*(array[order] for array in plan.arrays()))])[0]
        assert tiny.gap(found, reference) < 1e-14


def test_equal_clients_give_the_client():
    process = dense()
    for level in range(3):
        one = dataclasses.replace(process.plan(0, [2]), levels=np.asarray([level], np.int32))
        four = plans.Plan(*(np.repeat(array, 4, axis=0) for array in one.arrays()))
        assert tiny.same(run(process, [four])[0], run(process, [one])[0])


def test_server_sgd_with_rate_0_keeps_every_bit_and_with_1_replaces():
    still = dense("round.server={name: sgd, learning_rate: 0.0}")
    planned = tiny.plans(still, 2)
    assert tiny.same(run(still, planned)[0], tiny.arrays(still.initialize()))
    whole = dense("round.server={name: sgd, learning_rate: 1.0}")
    assert tiny.gap(run(whole, planned)[0], run(dense(), planned)[0]) < 1e-6


def test_the_server_step_is_told_what_is_covered():
    process = tiny.process(tiny.DENSE, "levels.mix=a-c", "levels.assignment=fix")

    def told(old, mean, covered):
        return tf.cast(tf.broadcast_to(covered, tf.shape(old)), old.dtype)

    process = dataclasses.replace(process, parts=dataclasses.replace(process.parts, server=told))
    found = run(process, [process.plan(0, [3])])[0]  # level c keeps 2 of 8, the client has label 4 of 9
    wide, head = (np.arange(8) < 2), np.arange(tiny.CLASSES) == 4
    expected = [np.tile(wide, (2, 1)), wide, np.outer(wide, head), head]
    for value, covered in zip(found.values(), expected, strict=True):
        assert value.tolist() == covered.tolist()


@pytest.mark.parametrize("base", BASES)
def test_what_no_client_covers_keeps_every_bit_and_the_rest_moves(base):
    process = built(base, "round.submodel=random", "precision=float64")
    client, old = 2, tiny.arrays(process.initialize())
    plan = dataclasses.replace(process.plan(0, [client]), levels=np.asarray([1], np.int32))
    new = run(process, [plan])[0]
    level = process.build(process.recipe.levels.names[1])
    for variable in level.trainable_variables:
        before, after = old[variable.path], new[variable.path]
        index = [oracle.coordinates(process, size, kept, 0, client)
                 for size, kept in zip(before.shape, variable.shape)]
        covered = np.zeros(before.shape, bool)
        covered[np.ix_(*[oracle.merged(process, own, client) for own in index])] = True
        assert before[~covered].tobytes() == after[~covered].tobytes()
        assert (after[covered] != before[covered]).any()


def test_the_row_of_the_mask_token_is_trained_but_never_merged():
    process = built("text", "round.submodel=prefix", "precision=float64")
    old = tiny.arrays(process.initialize())
    new = run(process, tiny.plans(process, 3, cohort=[0, 1, 2, 3]))[0]
    path = next(path for path in old if path.endswith("tokens"))
    known = process.partition.label_mask.any(0)
    assert old[path].shape[0] == tiny.WORDS + 1
    assert new[path][-1].tobytes() == old[path][-1].tobytes()
    assert (new[path][:-1][known] != old[path][:-1][known]).any(axis=1).all()
    assert new[path][:-1][~known].tobytes() == old[path][:-1][~known].tobytes()


def with_nan(process, client):
    """The process with pixels that are not numbers in one of the client's images."""
    x = process.dataset.train.x.copy()
    x[process.partition.train[client][0]] = np.nan
    return dataclasses.replace(process, parts=dataclasses.replace(process.parts, x=tf.constant(x)))


def test_a_client_that_is_not_finite_is_left_out_and_counted():
    process = with_nan(tiny.process(tiny.IMAGES, data=tiny.images(kind=np.float32)), client=1)
    found, rows = run(process, [process.plan(0, [0, 1, 2])])
    without, others = run(process, [process.plan(0, [0, 2])])
    assert tiny.same(found, without)
    assert (rows[0]["lost"], others[0]["lost"]) == (1, 0)
    assert (rows[0]["loss"], rows[0]["gradient_norm"]) == (others[0]["loss"], others[0]["gradient_norm"])
    assert all(np.isfinite(value).all() for value in found.values())
    alone, rows = run(process, [process.plan(0, [1])])
    assert tiny.same(alone, tiny.arrays(process.initialize()))
    assert rows[0] | {"levels": 0} == {
        "loss": None, "gradient_norm": None, "lost": 1, "levels": 0, "learning_rate": 0.1}


def test_a_client_without_examples_counts_nothing_and_is_not_lost():
    process = tiny.process(tiny.DENSE, data=tiny.images((7, 0, 5, 4)))
    planned = process.plan(0, [0, 1, 2])
    assert sorted(planned.steps) == [0, 2, 2]
    found, rows = run(process, [planned])
    without, others = run(process, [process.plan(0, [0, 2])])
    assert tiny.same(found, without)
    assert rows[0]["lost"] == 0
    assert rows[0]["loss"] == others[0]["loss"]
    alone, rows = run(process, [process.plan(0, [1])])
    assert tiny.same(alone, tiny.arrays(process.initialize()))
    assert (rows[0]["loss"], rows[0]["lost"]) == (None, 0)
