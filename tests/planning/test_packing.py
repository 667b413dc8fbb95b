"""Rounds packed into blocks: clients keep their order, and all active clients of a tick have equal batches."""

import dataclasses

import numpy as np

from hetero_tf.planning.packing import align, pack_rounds
from hetero_tf.planning.plan import Plan

BATCH = 4


def drawn(rng, most=7, kinds=3):
    """Work of up to five clients with unique examples and random starts and batch sizes."""
    steps = rng.integers(0, most, rng.integers(1, 6)).astype(np.int32)
    counts = rng.integers(1, min(kinds, BATCH) + 1, (len(steps), most))
    rows = np.arange(len(steps) * most * BATCH, dtype=np.int32).reshape(len(steps), most, BATCH)
    rows[np.arange(BATCH) >= counts[..., None]] = -1
    rows[np.arange(most) >= steps[:, None]] = -1
    starts = np.where(np.arange(most) < steps[:, None], 64 * rng.integers(0, kinds, counts.shape), 0).astype(np.int32)
    stages = np.where(np.arange(most) < steps[:, None], rng.integers(0, kinds, counts.shape), 0).astype(np.int32)
    return steps, rows, starts, stages


def even(clients, steps=1, starts=0, stages=0):
    """Work of clients with full batches of the same example."""
    shape = clients, steps
    first, second = (np.broadcast_to(values, shape).astype(np.int32) for values in (starts, stages))
    return np.full(clients, steps, np.int32), np.zeros((*shape, BATCH), np.int32), first, second


def plan(levels, work, clients=None):
    clients = np.arange(10, 10 + len(levels)) if clients is None else clients
    members = np.arange(len(levels), dtype=np.int32) % 3
    return Plan(np.asarray(clients, np.int32), np.asarray(levels, np.int32), *work, members)


def test_clients_keep_their_step_order_and_a_tick_has_one_batch_size():
    rng, waited = np.random.default_rng(0), 0
    for _ in range(300):
        steps, rows, starts, stages = drawn(rng, kinds=int(rng.integers(1, 4)))
        aligned, firsts, trained = align(steps, rows, starts, stages)
        active = (aligned >= 0).any(-1)
        assert max(steps) <= len(firsts) == aligned.shape[1] <= sum(steps)
        for client, count in enumerate(steps):
            # Neither a step twice, nor one left out, nor two in another order.
            assert aligned[client][active[client]].tolist() == rows[client, :count].tolist()
            assert firsts[active[client]].tolist() == starts[client, :count].tolist()
            assert trained[active[client]].tolist() == stages[client, :count].tolist()
        for tick in range(len(firsts)):
            assert len(set((aligned[active[:, tick], tick] >= 0).sum(-1))) == 1
        waited += not active.all()
    assert 100 < waited < 300


def test_equal_clients_need_no_extra_ticks():
    steps, rows, starts = np.full(3, 5, np.int32), np.zeros((3, 6, BATCH), np.int32), np.zeros((3, 6), np.int32)
    rows[:, 4:, 2:], rows[:, 5:] = -1, -1
    stages = np.tile(np.asarray([0, 0, 1, 1, 1, 0], np.int32), (3, 1))
    aligned, firsts, trained = align(steps, rows, starts, stages)
    assert trained.tolist() == [0, 0, 1, 1, 1]
    assert aligned.shape == (3, 5, BATCH) and np.shares_memory(aligned, rows)
    assert firsts.tolist() == [0] * 5
    # One example less in one client's last batch is one tick more, not a padded batch.
    rows[1, 4, 1:] = -1
    aligned, _, _ = align(steps, rows, starts, stages)
    assert (aligned >= 0).sum(-1).tolist() == [[4] * 4 + [2, 0], [4] * 4 + [0, 1], [4] * 4 + [2, 0]]


def test_client_that_is_furthest_behind_goes_first():
    steps = np.asarray([4, 2], np.int32)
    rows = np.arange(2 * 4 * BATCH, dtype=np.int32).reshape(2, 4, BATCH)
    rows[1, 2:], rows[1, :2, 1:] = -1, -1
    aligned, _, _ = align(steps, rows, *np.zeros((2, 2, 4), np.int32))
    assert (aligned >= 0).any(-1).astype(int).tolist() == [[1, 0, 1, 1, 0, 1], [0, 1, 0, 0, 1, 0]]


def test_clients_without_work_give_stacks_without_ticks():
    nothing = (np.zeros(2, np.int32), np.full((2, 1, BATCH), -1, np.int32), *np.zeros((2, 2, 1), np.int32))
    rows, starts, _ = align(*nothing)
    assert rows.shape == (2, 0, BATCH) and starts.shape == (0,)
    packed, slots = pack_rounds([plan([0, 0], nothing)], [2], range(1))
    assert packed.ticks.tolist() == [[0]]
    assert packed.rows.shape == (1, 1, 2, 1, BATCH) and (packed.rows == -1).all()


def test_slots_point_to_the_work_of_each_client():
    rng = np.random.default_rng(1)
    for _ in range(50):
        sizes = rng.integers(1, 4, 3).tolist()
        rounds = []
        for _ in range(3):
            work = [np.resize(array, (5, *array.shape[1:])) for array in drawn(rng)]
            rounds.append(plan(rng.integers(0, 3, 5), work, rng.permutation(20)[:5]))
        packed, slots = pack_rounds(rounds, sizes, range(3))
        assert {array.dtype for array in (*packed, *slots)} == {np.dtype(np.int32)}
        for number, planned in enumerate(rounds):
            assert len(set(slots[number])) == 5
            assert np.count_nonzero(packed.clients[number] >= 0) == 5
            for slot, index in enumerate(slots[number]):
                stack, slot_in_stack = divmod(int(index), max(sizes))
                client_rows = packed.rows[number, stack, slot_in_stack]
                assert packed.clients[number, stack, slot_in_stack] == planned.clients[slot]
                assert packed.members[number, stack, slot_in_stack] == planned.members[slot]
                assert packed.submodels[number, stack] == planned.levels[slot]
                assert slot_in_stack < sizes[planned.levels[slot]]
                assert (
                    client_rows[(client_rows >= 0).any(-1)].tolist()
                    == planned.rows[slot, : planned.steps[slot]].tolist()
                )
                assert (client_rows[packed.ticks[number, stack] :] == -1).all()


def test_rounds_with_fewer_stacks_are_padded_with_the_cheapest_sub_model():
    packed, slots = pack_rounds([plan([0, 1, 2, 2], even(4)), plan([1, 1, 1, 1], even(4))], [1, 4, 2], range(3))
    assert packed.clients.shape == (2, 3, 4)
    assert packed.clients[0].tolist() == [[10, -1, -1, -1], [11, -1, -1, -1], [12, 13, -1, -1]]
    assert packed.clients[1].tolist() == [[10, 11, 12, 13], [-1] * 4, [-1] * 4]
    assert packed.submodels.tolist() == [[0, 1, 2], [1, 1, 1]]
    assert packed.ticks.tolist() == [[1, 1, 1], [1, 0, 0]]
    assert [of_round.tolist() for of_round in slots] == [[0, 4, 8, 9], [0, 1, 2, 3]]


def test_levels_with_the_same_sub_model_share_their_stacks():
    packed, slots = pack_rounds([plan([0, 1, 2, 2], even(4))], [2, 3], (1, 0, 1))
    assert packed.submodels.tolist() == [[1, 0]]
    assert packed.clients.tolist() == [[[10, 12, 13], [11, -1, -1]]]


def test_clients_with_different_delays_share_a_block():
    planned = dataclasses.replace(plan([0, 1, 1, 1, 1], even(5)), delays=np.asarray([1, 0, 2, 0, 3], np.int32))
    packed, _ = pack_rounds([planned, plan([0], even(1))], [1, 3], range(2))
    assert packed.clients.tolist() == [[[10, -1, -1], [11, 12, 13], [14, -1, -1]], [[10, -1, -1], *[[-1] * 3] * 2]]
    # Empty slots have no other delay than the clients of their block.
    assert packed.delays.tolist() == [[[1, 1, 1], [0, 2, 0], [3, 3, 3]], np.zeros((3, 3)).tolist()]


def test_a_round_with_short_work_is_padded_to_the_longest_round():
    long = even(1, 3, starts=[[0, 64, 128]], stages=[[0, 1, 1]])
    packed, slots = pack_rounds([plan([0], even(1)), plan([0], long)], [2], range(1))
    assert packed.ticks.tolist() == [[1], [3]]
    assert packed.rows.shape == (2, 1, 2, 3, BATCH) and (packed.rows[0, :, :, 1:] == -1).all()
    assert packed.starts.tolist() == [[[0, 0, 0]], [[0, 64, 128]]]
    assert packed.stages.tolist() == [[[0, 0, 0]], [[0, 1, 1]]]


def test_rounds_of_one_call_may_have_different_cohort_sizes():
    packed, slots = pack_rounds([plan([0, 0, 0], even(3)), plan([0], even(1))], [2], range(1))
    assert packed.clients.tolist() == [[[10, 11], [12, -1]], [[10, -1], [-1, -1]]]
    assert [of_round.tolist() for of_round in slots] == [[0, 1, 2], [0]]
