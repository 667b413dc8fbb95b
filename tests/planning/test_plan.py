"""Plans of rounds: every batch of every client, as a pure function of seed, round and client."""

import dataclasses

import numpy as np
import pytest
import tiny

from hetero_tf import recipe
from hetero_tf.base import seeds
from hetero_tf.planning.plan import CHUNK, Batching, Division, assign_members, local_batches, plan_devices, plan_round
from hetero_tf.planning.timing import RoundClock

DATASET, PARTITION = tiny.images((7, 5, 9, 4))
RECIPE = recipe.loads(tiny.IMAGES)
JOINT = Division((1,) * len(RECIPE.levels.names), drawn=False)


def plan(round=0, shuffle=True, starts=(0,), config=RECIPE, cohort=None, clock=None):
    cohort = tiny.cohort(config, len(PARTITION.train), round) if cohort is None else cohort
    return plan_round(Batching(config, starts, shuffle, JOINT), PARTITION, round, cohort, clock)


def test_every_epoch_holds_every_example_once_and_the_last_batch_is_short():
    rng = np.random.default_rng(0)
    for count in range(11):
        examples = np.arange(100, 100 + count, dtype=np.int32)
        rows, starts = local_batches(examples, (0,), epochs=3, batch_size=4, rng=rng)
        each = -(-count // 4)
        assert rows.shape == (3 * each, 4)
        assert starts.tolist() == [0] * 3 * each
        for epoch in np.split(rows, 3):
            assert sorted(epoch[epoch >= 0]) == examples.tolist()
            # Only the end of the last batch is padding.
            assert (epoch.reshape(-1)[:count] >= 0).all()


def test_epochs_are_shuffled_apart_and_without_generator_not_at_all():
    examples = np.arange(30, dtype=np.int32)
    first, second = np.split(local_batches(examples, (0,), 2, 10, np.random.default_rng(0))[0], 2)
    assert first.tolist() != second.tolist()
    assert first.reshape(-1).tolist() != examples.tolist()
    rows, _ = local_batches(examples, (0,), 2, 10)
    assert rows.reshape(2, 30).tolist() == [examples.tolist()] * 2


@pytest.mark.parametrize("counts", [[7, 1, 2], [5], [1, 1, 30, 4]])
def test_balanced_epochs_have_each_class_and_each_of_its_examples_equally_often(counts):
    classes = np.repeat(np.arange(len(counts)), counts)
    examples, rng = 100 + np.arange(len(classes), dtype=np.int32), np.random.default_rng(0)
    epochs = np.split(local_batches(examples, (0,), 6, 4, rng, classes)[0], 6)
    assert len({epoch.tobytes() for epoch in epochs}) == 6
    for epoch in epochs:
        drawn = epoch[epoch >= 0] - 100
        assert len(drawn) == len(examples)
        of_classes = np.bincount(classes[drawn], minlength=len(counts))
        assert np.ptp(of_classes) <= 1
        for each in range(len(counts)):
            assert np.ptp(np.bincount(drawn, minlength=len(examples))[classes == each]) <= 1
    assert local_batches(examples[:0], (0,), 1, 4, rng, classes[:0])[0].size == 0


def test_text_reads_every_segment_of_a_batch_before_the_next():
    rows, starts = local_batches(np.asarray([3, 5, 8], np.int32), (0, 64, 128), epochs=1, batch_size=2)
    assert rows.tolist() == [[3, 5]] * 3 + [[8, -1]] * 3
    assert starts.tolist() == [0, 64, 128, 0, 64, 128]


def test_a_plan_is_a_pure_function_of_seed_round_and_client():
    assert all((one == other).all() for one, other in zip(plan(4).arrays().values(), plan(4).arrays().values()))
    other_seed = dataclasses.replace(RECIPE, seed=1)
    assert plan(4, config=other_seed).rows.tolist() != plan(4).rows.tolist()
    all_clients, single = plan(2, cohort=[0, 1, 2, 3]), plan(2, cohort=[1])
    slot = all_clients.clients.tolist().index(1)
    assert all_clients.rows[slot, : all_clients.steps[slot]].tolist() == single.rows[0].tolist()
    assert all_clients.levels[slot] == single.levels[0]
    assert plan(3, cohort=[1]).rows.tolist() != single.rows.tolist()


def test_clients_with_the_most_work_come_first():
    widths = list(RECIPE.levels.widths.values())
    for round in range(20):
        round_plan = plan(round, cohort=[3, 2, 1, 0])
        cost = [
            (-widths[level], -steps, client)
            for level, steps, client in zip(round_plan.levels, round_plan.steps, round_plan.clients)
        ]
        assert cost == sorted(cost)


def test_rows_hold_the_examples_of_each_client_and_then_padding():
    round_plan = plan(cohort=[0, 1, 2, 3])
    assert {array.dtype for array in round_plan.arrays().values()} == {np.dtype(np.int32)}
    for client, steps, rows in zip(round_plan.clients, round_plan.steps, round_plan.rows):
        examples = PARTITION.train[client]
        assert steps == 2 * -(-len(examples) // 3)
        assert (np.bincount(rows[rows >= 0], minlength=25)[examples] == 2).all()
        assert (rows >= 0).sum() == 2 * len(examples)
        assert (rows[steps:] == -1).all()


def test_each_stage_runs_all_epochs_in_sequence():
    both = Division((3,) * len(RECIPE.levels.names), drawn=False)
    round_plan = plan_round(Batching(RECIPE, (0,), True, both), PARTITION, 0, [1, 2])
    for client, steps, rows, stages in zip(round_plan.clients, round_plan.steps, round_plan.rows, round_plan.stages):
        examples = PARTITION.train[client]
        each = 2 * -(-len(examples) // 3)
        assert steps == 3 * each
        assert stages[:steps].tolist() == [0] * each + [1] * each + [2] * each
        for stage in range(3):
            seen = rows[:steps][stages[:steps] == stage]
            assert (np.bincount(seen[seen >= 0], minlength=25)[examples] == 2).all()


def test_epochs_may_be_one_number_or_a_mapping_by_level():
    levels, number = RECIPE.levels.names, plan(3, cohort=[0, 1, 2, 3])
    by_level = recipe.loads(tiny.IMAGES, overrides=["client.epochs={a: 5, b: 4, c: 1}"])
    round_plan = plan(3, cohort=[0, 1, 2, 3], config=by_level)
    assert {levels[level] for level in round_plan.levels} == {"a", "c"}
    for client, level, steps, rows in zip(round_plan.clients, round_plan.levels, round_plan.steps, round_plan.rows):
        examples, epochs = PARTITION.train[client], {"a": 5, "c": 1}[levels[level]]
        assert steps == epochs * -(-len(examples) // 3)
        assert (np.bincount(rows[rows >= 0], minlength=25)[examples] == epochs).all()
    alike = recipe.loads(tiny.IMAGES, overrides=["client.epochs={a: 2, c: 2}"])
    same = zip(plan(3, cohort=[0, 1, 2, 3], config=alike).arrays().values(), number.arrays().values())
    assert all(one.tobytes() == other.tobytes() for one, other in same)


def test_drawn_stages_need_no_extra_steps_and_all_occur():
    drawn = Division((3,) * len(RECIPE.levels.names), drawn=True)
    joint, seen = plan(cohort=[0, 1, 2, 3]), set()
    for round in range(20):
        round_plan = plan_round(Batching(RECIPE, (0,), True, drawn), PARTITION, round, [0, 1, 2, 3])
        assert sorted(round_plan.steps) == sorted(joint.steps)
        again = plan_round(Batching(RECIPE, (0,), True, drawn), PARTITION, round, [0, 1, 2, 3])
        assert round_plan.stages.tolist() == again.stages.tolist()
        seen |= set(round_plan.stages.reshape(-1).tolist())
    assert seen == {0, 1, 2}


def test_ensemble_members_are_assigned_equally_often_and_never_twice_to_a_client():
    levels = recipe.loads(
        tiny.IMAGES, overrides=["levels.mix=a-b", "levels.widths={a: 0.5, b: 0.5}", "levels.members={a: 4, b: 2}"]
    ).levels
    firsts = np.zeros(4, int)
    for round in range(8):
        members = assign_members(levels, [0, 1, 1], [5, 6, 7], seed=0, round=round, first_card=3 * round)
        assert [len(set(client_members)) for client_members in members] == [4, 2, 2]
        assert all(0 <= member < 4 for client_members in members for member in client_members)
        for client_members in members:
            firsts[client_members[0]] += 1
    assert firsts.tolist() == [6, 6, 6, 6]
    assert assign_members(RECIPE.levels, [0, 0], [5, 6], 0, 0, 0) == [[0], [0]]


SLOW = (
    "fleet={assign: levels, jitter: 0.4, devices: {a: {seconds_per_step: 0.3}, b: {seconds_per_step: 0.2}, "
    "c: {seconds_per_step: 0.1}}}"
)


def clock_of(*overrides):
    costs = np.ones(2, int)
    return RoundClock(recipe.loads(tiny.IMAGES, overrides=overrides), 20, costs, costs, np.ones((2, 3)))


def deadline(late):
    return f"round.policy={{name: deadline, seconds: 1, late: {late}}}"


def test_times_need_no_batches():
    clock = clock_of("fleet={devices: {phone: {seconds_per_step: 1, gflops: 1.0e-9, up_mbit: 1}}}")
    for division in (JOINT, Division((3, 2), False), Division((3, 2), True)):
        timing = plan_round(
            Batching(RECIPE, (0,), True, division), PARTITION, 5, tiny.cohort(RECIPE, 4, 5), clock=clock
        ).timing
        sizes, levels = PARTITION.train.sizes[timing.clients], timing.levels.tolist()
        devices = plan_devices(RECIPE, sizes, (0,), division, 5, timing.clients.tolist(), levels)
        examples = np.pad(devices.stage_examples, [[0, 0], [0, 3 - devices.stage_examples.shape[1]]])
        times = clock.times(5, devices.clients, devices.levels, devices.steps, examples)
        by_client = dict(zip(devices.clients.tolist(), times.total.tolist()))
        assert by_client == dict(zip(timing.clients.tolist(), timing.times.total.tolist()))


def test_late_clients_return_their_first_steps_or_nothing():
    seen = set()
    for round in range(20):
        whole = plan(round, cohort=[0, 1, 2, 3])
        rows = dict(zip(whole.clients.tolist(), whole.rows))
        partial = plan(round, clock=clock_of(SLOW, deadline("partial")), cohort=[0, 1, 2, 3])
        dropped = plan(round, clock=clock_of(SLOW, deadline("drop")), cohort=[0, 1, 2, 3])
        cut = dict(zip(dropped.clients.tolist(), dropped.steps.tolist()))
        for client, steps, client_rows in zip(partial.clients.tolist(), partial.steps, partial.rows):
            assert client_rows[:steps].tolist() == rows[client][:steps].tolist()
            done = steps == np.sum((rows[client] >= 0).any(axis=1))
            assert cut[client] == (steps if done else 0)
            seen.add(bool(done))
        counts, counts_dropped = partial.timing.metrics(), dropped.timing.metrics()
        assert counts["late"] == counts_dropped["late"] >= counts["partial"]
        assert counts_dropped["partial"] == 0
    assert seen == {True, False}


def test_late_clients_return_whole_stages_only():
    clock, counts = clock_of(SLOW, deadline("partial")), set()
    for drawn in (False, True):
        division = Division((3,) * len(RECIPE.levels.names), drawn)
        for round in range(20):
            whole = plan_round(Batching(RECIPE, (0,), True, division), PARTITION, round, [0, 1, 2, 3])
            each = dict(zip(whole.clients.tolist(), whole.steps // (1 if drawn else 3)))
            round_plan = plan_round(Batching(RECIPE, (0,), True, division), PARTITION, round, [0, 1, 2, 3], clock=clock)
            for client, steps in zip(round_plan.clients.tolist(), round_plan.steps):
                assert drawn or steps % each[client] == 0
                counts.add((drawn, steps / each[client]))
    assert {(False, 0.0), (False, 1.0), (False, 3.0)} <= counts
    assert any(drawn and 0 < share < 1 for drawn, share in counts)


@pytest.mark.parametrize("starts", [(0,), (0, 4, 8)])
@pytest.mark.parametrize("division", [JOINT, Division((2, 3), drawn=False), Division((2, 3), drawn=True)])
def test_device_plan_matches_the_simulated_plan(division, starts):
    planned = plan_round(Batching(RECIPE, starts, True, division), PARTITION, 1, tiny.cohort(RECIPE, 4, 1))
    clients, levels = planned.clients.tolist(), planned.levels.tolist()
    sizes = [len(PARTITION.train[client]) for client in clients]
    device_plan = plan_devices(RECIPE, sizes[::-1], starts, division, 1, clients[::-1], levels[::-1])
    for name in ("clients", "levels", "steps"):
        np.testing.assert_array_equal(getattr(device_plan, name), getattr(planned, name))
    counts = (planned.rows >= 0).sum(axis=-1)
    for stage in range(max(division.stages)):
        of_stage = np.where(planned.stages == stage, counts, 0).sum(axis=1)
        np.testing.assert_array_equal(device_plan.stage_examples[:, stage], of_stage)


def test_chunked_stage_draws_equal_one_draw():
    size = 3 * (CHUNK // 2 + 2)
    device_plan = plan_devices(RECIPE, [size], (0,), Division((2, 3), drawn=True), 0, [0], [1])
    drawn = seeds.rng(RECIPE.seed, "stages", 0, 0).integers(3, size=CHUNK + 4)
    assert device_plan.steps.tolist() == [len(drawn)]
    assert device_plan.stage_examples.tolist() == [(3 * np.bincount(drawn)).tolist()]
