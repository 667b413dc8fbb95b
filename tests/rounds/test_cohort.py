"""Sums over a cohort: those of two halves equal that of the whole, and lost clients add nothing."""

import dataclasses

import methods
import numpy as np
import pytest
import tensorflow as tf
import tiny

from hetero_tf.methods.losses import cross_entropy
from hetero_tf.models.state import flatten_state
from hetero_tf.planning.packing import pack_rounds
from hetero_tf.planning.plan import Plan
from hetero_tf.rounds.arrivals import StaleMerge
from hetero_tf.rounds.block_training import RoundScalars
from hetero_tf.rounds.cohort import train_cohort
from hetero_tf.rounds.merge import merge_updates
from hetero_tf.rounds.round_setup import Update

both_engines = pytest.mark.parametrize("engine", ["sequential", "stacked"])


def arrays(process, plan):
    """One planned round in the form of the compiled round."""
    packed, _ = pack_rounds([plan], process.setup.block_sizes, process.family.submodel_of)
    return tf.nest.map_structure(lambda array: tf.constant(array[0]), packed)


@pytest.mark.parametrize(("name", "weighting"), [("sequential", "samples"), ("stacked", "uniform")])
def test_two_halves_of_a_cohort_sum_to_the_round(name, weighting, eager):
    overrides = ("precision=float64", "round.submodel=random", f"engine={name}", f"round.weighting={weighting}")
    process = tiny.shared(tiny.DENSE, *overrides, "levels.assignment=fixed", "levels.mix=a-b")
    state, setup, layout = process.initialize(), process.setup, process.state_layout
    before, seed = layout.pack(layout.values_of(state)), process.seed

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


def run(process, planned):
    state, rows = process.run(process.initialize(), planned)
    return tiny.arrays(state), rows


def mean_change(memory, weights, start, slots, steps, rate):
    """The memory of a correction that is NaN without a step."""
    return (weights - start) / tf.cast(steps[:, None], start.dtype)


def with_nan(process, client):
    """The process with NaN pixels in one of the client's images."""
    x = process.dataset.train.x.copy()
    x[process.partition.train[client][0]] = np.nan
    return tiny.with_setup(process, examples={"x": tf.constant(x)})


# Peers need three units.
BASE = tiny.DENSE.replace("    - Dense", "    - [Dense: {units: !w 6}, ReLU]\n    - Dense")
PERSONAL = 'round.personal=["0"]'
MEMORY = ("client.correction={name: dynamic, alpha: 0.3}", methods.server("dynamic", alpha=0.3))
PEERS = ("levels.mix=a", "levels.budgets={a: 2}", "client.stages={name: blockwise, peers: true}")


def without_nan(weights, start, steps, key, entries):
    """An update that hides NaN from the merge, but not from the client's personal values."""
    return tf.where(tf.math.is_nan(weights), start, weights)


def overflowing(memory, weights, start, slots, steps, rate):
    """A memory that overflows for client 3, the only one with a single step."""
    return tf.where(steps[:, None] == 1, np.float32(np.inf), memory + weights - start)


def infinite_loss(logits, targets, present, outside):
    """A loss that is infinite for client 3, the only one with a single label, and does not change its weights."""
    is_single = tf.equal(tf.math.count_nonzero(present, axis=-1), 1)
    return tf.where(is_single, np.float32(np.inf), cross_entropy.loss(logits, targets, present, outside))


def steep_loss(logits, targets, present, outside):
    """A loss of client 3 that is finite and has a gradient whose norm overflows, so clipping makes its steps zero."""
    is_single = tf.equal(tf.math.count_nonzero(present, axis=-1), 1)
    losses = cross_entropy.loss(logits, targets, present, outside)
    return tf.where(is_single, np.float32(1e30) * losses, losses)


@pytest.mark.parametrize(
    ("settings", "functions"),
    [
        ((PERSONAL, "round.weighting=samples", "round.selection=oort"), {}),
        ((methods.PLAIN_SGD, *methods.SCAFFOLD), {}),
        ((methods.EVEN, "round.mask=fiarse", "levels.entries={b: 1/2, c: 1/8}"), {}),
        ((*PEERS, "client.coupling={name: mutual, ramp: null}"), {}),
        ((PERSONAL,), {"update": Update(without_nan, is_compression=False, has_errors=False)}),
        (("client.update={name: top_k, share: 0.5}",), {}),
        (MEMORY, {"remember": overflowing}),
        ((), {"stale_merge": StaleMerge((1.0, 0.5, 0.25), "changes", "clients")}),
        ((PERSONAL, "round.selection=oort"), {"loss": infinite_loss}),
        ((), {"loss": steep_loss}),
        (("round.merge=qfedavg",), {"loss": infinite_loss}),
        (("round.merge=geometric_median", "round.weighting=samples"), {}),
        (("engine=stacked", "levels.mix=a"), {"loss": infinite_loss}),
        ((), {"loss": infinite_loss, "stale_merge": StaleMerge((1.0, 0.5, 0.25), "changes", "clients")}),
    ],
    ids=[
        *(
            "weights and history",
            "memory changes",
            "entries",
            "peers",
            "personal values",
            "errors",
            "memory",
            "pending sums",
        ),
        *(
            "infinite loss",
            "infinite gradient norm",
            "loss in a merge",
            "rows",
            "infinite loss in a block",
            "infinite loss in pending sums",
        ),
    ],
)
def test_lost_client_changes_no_sum(settings, functions, eager):
    process = tiny.process(BASE, "engine=sequential", *settings, data=tiny.images(kind=np.float32))
    process = tiny.with_setup(process, algorithm=functions)
    process = process if {"remember", "loss"} & functions.keys() else with_nan(process, client=3)

    def run(cohort):
        plan = process.plan(0, cohort)
        if "stale_merge" in functions:
            plan = dataclasses.replace(plan, delays=np.where(plan.clients == 0, 0, 2).astype(np.int32))
        state, (row,) = process.run(process.initialize(), [plan])
        return flatten_state(state), [row[name] for name in ("non_finite", "loss", "gradient_norm")]

    (state, row), (expected, others), (unchanged, empty) = run([0, 3, 2]), run([0, 2]), run([3])
    assert tiny.same(state, expected) and row == [1, *others[1:]] and others[0] == 0
    assert tiny.same(unchanged, flatten_state(process.initialize())) and empty == [1, None, None]


@pytest.mark.parametrize("base", ["IMAGES", "DENSE"])
def test_non_finite_client_of_a_block_does_not_change_the_others(base):
    """Bit-equal to the round with an empty slot for the client and the others in their slots."""
    # Client 1 is never the only active one in a tick, so no batch is empty without it.
    data = tiny.images((7, 3, 7, 4), kind=np.float32)
    process = with_nan(tiny.process(getattr(tiny, base), "engine=stacked", "levels.mix=c", data=data), client=1)
    old, plan = tiny.arrays(process.initialize()), process.plan(0, [0, 1, 2])
    for cohort in ([1, 0, 2], [0, 1, 2], [0, 2, 1]):  # first and second of a block of two, single in the next one
        order = [plan.clients.tolist().index(client) for client in cohort]
        packed, _ = pack_rounds([Plan(*(array[order] for array in plan.arrays().values()))], [2], range(1))
        lost = packed.clients == 1
        emptied = packed._replace(
            clients=np.where(lost, -1, packed.clients),
            rows=np.where(lost[..., None, None], -1, packed.rows),
            ticks=np.where((lost | (packed.clients < 0)).all(-1), 0, packed.ticks),
        )
        (actual, metrics), (expected, others) = run_packed(process, packed), run_packed(process, emptied)
        assert tiny.same(actual, expected) and not tiny.same(actual, old)
        assert metrics["finite"].ravel().tolist() == (~lost).ravel().tolist()
        assert others["finite"].all()
        for name in ("loss", "gradient_norm"):
            assert metrics[name][~lost.reshape(1, -1)].tobytes() == others[name][~lost.reshape(1, -1)].tobytes()


def test_idle_clients_ignore_the_example_that_they_read():
    """An idle client reads example 0, which belongs to client 0 and is NaN."""
    data = tiny.images((7, 3, 7, 4), kind=np.float32)
    process = tiny.process(tiny.DENSE, "engine=stacked", "levels.mix=c", data=data)
    planned = process.plan(0, [1, 2])
    assert sorted(planned.steps) == [1, 2]
    (actual, rows), (expected, others) = (run(each, [planned]) for each in (with_nan(process, client=0), process))
    assert tiny.same(actual, expected) and rows == others and rows[0]["non_finite"] == 0


def run_packed(process, packed):
    """One call with the given packing."""
    after, metrics = process.runner.compiled_round(
        process.state_layout.values_of(process.initialize()),
        tf.nest.map_structure(tf.constant, packed),
        tf.constant([0.1], process.recipe.precision),
        0,
        process.seed,
    )
    return (
        {path: value.numpy() for path, value in after["weights"].items()},
        {name: value.numpy() for name, value in metrics.items()},
    )


@both_engines
def test_client_without_examples_has_no_weight_and_is_not_lost(engine, eager):
    process = tiny.process(tiny.DENSE, f"engine={engine}", *MEMORY, data=tiny.images((7, 0, 5, 4)))
    process = tiny.with_setup(process, algorithm={"remember": mean_change})
    planned = process.plan(0, [0, 1, 2])
    assert sorted(planned.steps) == [0, 2, 2]
    actual, rows = run(process, [planned])
    without, others = run(process, [process.plan(0, [0, 2])])
    assert tiny.same(actual, without)
    assert rows[0]["non_finite"] == 0
    assert rows[0]["loss"] == others[0]["loss"]
    single, rows = run(process, [process.plan(0, [1])])
    assert tiny.same(single, tiny.arrays(process.initialize()))
    assert (rows[0]["loss"], rows[0]["non_finite"]) == (None, 0)
