"""Plans of rounds: every batch of every client, as a pure function of seed, round and client."""

import dataclasses

import numpy as np
import pytest
import tiny

from hetero_tf import recipe
from hetero_tf.base import seeds
from hetero_tf.planning.plan import CHUNK, Division, deal_members, draw_cohort, local_batches, plan_devices, plan_round

DATASET, PARTITION = tiny.images((7, 5, 9, 4))
RECIPE = recipe.loads(tiny.IMAGES)
JOINT = Division((1,) * len(RECIPE.levels.names), drawn=False)


def plan(round=0, shuffle=True, starts=(0,), given=RECIPE, **options):
    return plan_round(given, PARTITION, starts, shuffle, JOINT, round, **options)


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


def test_text_reads_every_segment_of_a_batch_before_the_next():
    rows, starts = local_batches(np.asarray([3, 5, 8], np.int32), (0, 64, 128), epochs=1, batch_size=2)
    assert rows.tolist() == [[3, 5]] * 3 + [[8, -1]] * 3
    assert starts.tolist() == [0, 64, 128, 0, 64, 128]


def test_a_plan_is_a_pure_function_of_seed_round_and_client():
    assert all((one == other).all() for one, other in zip(plan(4).arrays(), plan(4).arrays()))
    other_seed = dataclasses.replace(RECIPE, seed=1)
    assert plan(4, given=other_seed).rows.tolist() != plan(4).rows.tolist()
    everyone, alone = plan(2, cohort=[0, 1, 2, 3]), plan(2, cohort=[1])
    slot = everyone.clients.tolist().index(1)
    assert everyone.rows[slot, : everyone.steps[slot]].tolist() == alone.rows[0].tolist()
    assert everyone.levels[slot] == alone.levels[0]
    assert plan(3, cohort=[1]).rows.tolist() != alone.rows.tolist()


def test_cohorts_have_no_client_twice_and_another_attempt_draws_another():
    seen = set()
    for round in range(40):
        cohort = draw_cohort(20, 5, seed=0, round=round)
        assert cohort.dtype == np.int32
        assert len(set(cohort.tolist())) == 5
        seen |= set(cohort.tolist())
        assert cohort.tolist() != draw_cohort(20, 5, seed=0, round=round, attempt=1).tolist()
    assert seen == set(range(20))
    assert sorted(draw_cohort(4, 4, 0, 0)) == [0, 1, 2, 3]


def test_the_most_work_stands_first():
    widths = list(RECIPE.levels.widths.values())
    for round in range(20):
        found = plan(round, cohort=[3, 2, 1, 0])
        cost = [
            (-widths[level], -steps, client) for level, steps, client in zip(found.levels, found.steps, found.clients)
        ]
        assert cost == sorted(cost)


def test_clients_have_their_own_examples_and_padding_behind_their_steps():
    found = plan(cohort=[0, 1, 2, 3])
    assert {array.dtype for array in found.arrays()} == {np.dtype(np.int32)}
    for client, steps, rows in zip(found.clients, found.steps, found.rows):
        own = PARTITION.train[client]
        assert steps == 2 * -(-len(own) // 3)
        assert (np.bincount(rows[rows >= 0], minlength=25)[own] == 2).all()
        assert (rows >= 0).sum() == 2 * len(own)
        assert (rows[steps:] == -1).all()


def test_stages_follow_one_another_each_with_all_epochs():
    both = Division((3,) * len(RECIPE.levels.names), drawn=False)
    found = plan_round(RECIPE, PARTITION, (0,), True, both, 0, [1, 2])
    for client, steps, rows, stages in zip(found.clients, found.steps, found.rows, found.stages):
        own = PARTITION.train[client]
        each = 2 * -(-len(own) // 3)
        assert steps == 3 * each
        assert stages[:steps].tolist() == [0] * each + [1] * each + [2] * each
        for stage in range(3):
            seen = rows[:steps][stages[:steps] == stage]
            assert (np.bincount(seen[seen >= 0], minlength=25)[own] == 2).all()


def test_every_level_goes_through_its_own_epochs_and_a_number_is_for_all_of_them():
    levels, number = RECIPE.levels.names, plan(3, cohort=[0, 1, 2, 3])
    by_level = recipe.loads(tiny.IMAGES, overrides=["client.epochs={a: 5, b: 4, c: 1}"])
    found = plan(3, cohort=[0, 1, 2, 3], given=by_level)
    assert {levels[level] for level in found.levels} == {"a", "c"}
    for client, level, steps, rows in zip(found.clients, found.levels, found.steps, found.rows):
        own, epochs = PARTITION.train[client], {"a": 5, "c": 1}[levels[level]]
        assert steps == epochs * -(-len(own) // 3)
        assert (np.bincount(rows[rows >= 0], minlength=25)[own] == epochs).all()
    alike = recipe.loads(tiny.IMAGES, overrides=["client.epochs={a: 2, c: 2}"])
    same = zip(plan(3, cohort=[0, 1, 2, 3], given=alike).arrays(), number.arrays())
    assert all(one.tobytes() == other.tobytes() for one, other in same)


def test_drawn_stages_cost_no_further_steps_and_are_all_drawn():
    drawn = Division((3,) * len(RECIPE.levels.names), drawn=True)
    joint, seen = plan(cohort=[0, 1, 2, 3]), set()
    for round in range(20):
        found = plan_round(RECIPE, PARTITION, (0,), True, drawn, round, [0, 1, 2, 3])
        assert sorted(found.steps) == sorted(joint.steps)
        again = plan_round(RECIPE, PARTITION, (0,), True, drawn, round, [0, 1, 2, 3])
        assert found.stages.tolist() == again.stages.tolist()
        seen |= set(found.stages.reshape(-1).tolist())
    assert seen == {0, 1, 2}


def test_an_ensembles_networks_are_dealt_equally_often_and_no_client_gets_one_twice():
    levels = recipe.loads(
        tiny.IMAGES, overrides=["levels.mix=a-b", "levels.widths={a: 0.5, b: 0.5}", "levels.members={a: 4, b: 2}"]
    ).levels
    firsts = np.zeros(4, int)
    for round in range(8):
        dealt = deal_members(levels, [0, 1, 1], [5, 6, 7], seed=0, round=round)
        assert [len(set(own)) for own in dealt] == [4, 2, 2]
        assert all(0 <= member < 4 for own in dealt for member in own)
        for own in dealt:
            firsts[own[0]] += 1
    assert firsts.tolist() == [6, 6, 6, 6]
    assert deal_members(RECIPE.levels, [0, 0], [5, 6], 0, 0) == [[0], [0]]


WAITING = {"deadline": "1.0", "seconds_per_step": "{a: 0.3, b: 0.2, c: 0.1}", "spread": "0.4"}


def limited(**settings):
    return recipe.loads(tiny.IMAGES, overrides=[f"availability.{name}={value}" for name, value in settings.items()])


def test_without_limits_a_plan_says_nothing_of_availability():
    assert plan().outcome == {}
    assert len(plan().arrays()) == 7


def test_clients_that_drop_out_have_no_steps_and_the_others_all_of_them():
    given, gone = limited(dropout=0.5), 0
    for round in range(20):
        found, whole = plan(round, given=given, cohort=[0, 1, 2, 3]), plan(round, cohort=[0, 1, 2, 3])
        steps = dict(zip(whole.clients.tolist(), whole.steps.tolist()))
        for client, own, rows in zip(found.clients.tolist(), found.steps, found.rows):
            assert own in (0, steps[client])
            assert (rows[own:] == -1).all()
        assert found.outcome["dropped"] == np.sum(found.steps == 0)
        gone += found.outcome["dropped"]
    assert 20 < gone < 60


def test_late_clients_return_their_first_steps_or_nothing():
    seen = set()
    for round in range(20):
        whole = plan(round, cohort=[0, 1, 2, 3])
        rows = dict(zip(whole.clients.tolist(), whole.rows))
        partial = plan(round, given=limited(**WAITING, late="partial"), cohort=[0, 1, 2, 3])
        dropped = plan(round, given=limited(**WAITING), cohort=[0, 1, 2, 3])
        cut = dict(zip(dropped.clients.tolist(), dropped.steps.tolist()))
        for client, steps, own in zip(partial.clients.tolist(), partial.steps, partial.rows):
            assert own[:steps].tolist() == rows[client][:steps].tolist()
            done = steps == np.sum((rows[client] >= 0).any(axis=1))
            assert cut[client] == (steps if done else 0)
            seen.add(bool(done))
        assert partial.outcome["late"] == dropped.outcome["late"] >= partial.outcome["partial"]
        assert dropped.outcome["partial"] == 0
    assert seen == {True, False}


def test_of_stages_in_sequence_only_whole_ones_return():
    given, counts = limited(**WAITING, late="partial"), set()
    for drawn in (False, True):
        division = Division((3,) * len(RECIPE.levels.names), drawn)
        for round in range(20):
            whole = plan_round(RECIPE, PARTITION, (0,), True, division, round, [0, 1, 2, 3])
            each = dict(zip(whole.clients.tolist(), whole.steps // (1 if drawn else 3)))
            found = plan_round(given, PARTITION, (0,), True, division, round, [0, 1, 2, 3])
            for client, steps in zip(found.clients.tolist(), found.steps):
                assert drawn or steps % each[client] == 0
                counts.add((drawn, steps / each[client]))
    assert {(False, 0.0), (False, 1.0), (False, 3.0)} <= counts
    assert any(drawn and 0 < share < 1 for drawn, share in counts)


@pytest.mark.parametrize("starts", [(0,), (0, 4, 8)])
@pytest.mark.parametrize("division", [JOINT, Division((2, 3), drawn=False), Division((2, 3), drawn=True)])
def test_a_plan_of_devices_has_the_order_the_steps_and_the_examples_of_the_simulators(division, starts):
    planned = plan_round(RECIPE, PARTITION, starts, True, division, 1)
    clients, levels = planned.clients.tolist(), planned.levels.tolist()
    sizes = [len(PARTITION.train[client]) for client in clients]
    found = plan_devices(RECIPE, sizes[::-1], starts, division, 1, clients[::-1], levels[::-1])
    for name in ("clients", "levels", "steps"):
        np.testing.assert_array_equal(getattr(found, name), getattr(planned, name))
    counts = (planned.rows >= 0).sum(axis=-1)
    for stage in range(max(division.stages)):
        of_stage = np.where(planned.stages == stage, counts, 0).sum(axis=1)
        np.testing.assert_array_equal(found.stage_examples[:, stage], of_stage)


def test_stages_are_drawn_in_chunks_as_they_are_at_once():
    size = 3 * (CHUNK // 2 + 2)
    found = plan_devices(RECIPE, [size], (0,), Division((2, 3), drawn=True), 0, [0], [1])
    drawn = seeds.rng(RECIPE.seed, "stages", 0, 0).integers(3, size=CHUNK + 4)
    assert found.steps.tolist() == [len(drawn)]
    assert found.stage_examples.tolist() == [(3 * np.bincount(drawn)).tolist()]
