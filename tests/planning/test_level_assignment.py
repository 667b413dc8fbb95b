"""Levels of the clients: fixed in the order of the mix, or drawn in every round."""

import numpy as np
import pytest

from hetero_tf.planning import plan
from hetero_tf.recipe.schema import Levels

WIDTHS = {"a": 1.0, "b": 0.5, "c": 0.25, "d": 0.125, "e": 0.0625}


def mixed(assignment="fixed", **shares):
    return Levels(widths=WIDTHS, mix=shares, assignment=assignment)


@pytest.mark.parametrize(
    ("shares", "clients", "counts"),
    [
        # The authors' rule: quotient times share for each level, those left over get the last one.
        ({"a": 1, "b": 1, "c": 1}, 100, (33, 33, 34)),
        ({"a": 1, "e": 9}, 100, (10, 90)),
        ({"a": 2, "b": 8}, 25, (4, 21)),
        ({"a": 2, "b": 1, "c": 1}, 7, (2, 1, 4)),
        ({"e": 1}, 3, (3,)),
        ({"a": 0.5, "b": 0.5}, 5, (2, 3)),
    ],
)
def test_fixed_levels_follow_the_order_of_the_mix(shares, clients, counts):
    everyone = np.arange(clients)
    assigned = plan.assign_levels(mixed(**shares), clients, 0, 0, everyone)
    assert assigned.dtype == np.int32
    assert assigned.tolist() == np.repeat(np.arange(len(counts)), counts).tolist()
    assert (plan.assign_levels(mixed(**shares), clients, 5, 9, everyone) == assigned).all()


def test_dynamic_levels_are_drawn_with_the_shares_as_chances():
    assigned = plan.assign_levels(mixed("dynamic", a=1, b=2, e=1), 4000, 0, 0, np.arange(4000))
    np.testing.assert_allclose(np.bincount(assigned) / 4000, [0.25, 0.5, 0.25], atol=0.03)
    assert assigned.dtype == np.int32


def test_dynamic_levels_depend_on_seed_and_round_only():
    def draw(seed, round):
        return plan.assign_levels(mixed("dynamic", a=1, e=1), 60, seed, round, np.arange(60)).tolist()

    assert draw(0, 3) == draw(0, 3)
    assert len({tuple(draw(seed, round)) for seed in range(3) for round in range(3)}) == 9


@pytest.mark.parametrize("assignment", ["fixed", "dynamic"])
def test_level_of_a_client_does_not_depend_on_the_other_ids(assignment):
    levels = mixed(assignment, a=1, b=2, e=1)
    everyone = plan.assign_levels(levels, 50, 3, 7, np.arange(50))
    ids = np.array([49, 0, 12, 13, 12], np.int32)
    assert plan.assign_levels(levels, 50, 3, 7, ids).tolist() == everyone[ids].tolist()
    assert plan.assign_levels(levels, 50, 3, 7, [26]).tolist() == [everyone[26]]
    assert plan.assign_levels(levels, 50, 3, 7, ids[:0]).shape == (0,)


@pytest.mark.parametrize("assignment", ["fixed", "dynamic"])
def test_assignment_costs_nothing_for_a_billion_clients(assignment):
    # An array of them would be gigabytes; the positions are read off the shares: a quarter, half, the rest.
    ids = np.array([0, 249_999_999, 250_000_000, 749_999_999, 750_000_000, 999_999_999])
    assigned = plan.assign_levels(mixed(assignment, a=1, b=2, e=1), 10**9, 0, 0, ids)
    assert assigned.shape == (6,)
    assert assignment == "dynamic" or assigned.tolist() == [0, 0, 1, 1, 2, 2]


def test_idle_levels_get_no_share_of_active_clients():
    levels = Levels(widths=WIDTHS, mix={"a": 1, "c": 3, "e": 1}, idle=("c",))
    assert levels.divided(10) == {"a": 2, "c": 6, "e": 2} and levels.active(10) == {"a": 5, "c": 0, "e": 5}
