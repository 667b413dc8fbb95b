"""Levels of the clients: fixed in the order of the mix, or drawn anew."""

import numpy as np
import pytest

from hetero_tf import levels
from hetero_tf.recipe.schema import Levels, Width

WIDTHS = {"a": 1.0, "b": 0.5, "c": 0.25, "d": 0.125, "e": 0.0625}


def mixed(assignment="fix", **shares):
    return Levels(widths=WIDTHS, mix=tuple(shares.items()), assignment=assignment)


@pytest.mark.parametrize(("shares", "clients", "counts"), [
    # The authors' rule: quotient times share for each level, those left over get the last one.
    ({"a": 1, "b": 1, "c": 1}, 100, (33, 33, 34)),
    ({"a": 1, "e": 9}, 100, (10, 90)),
    ({"a": 2, "b": 8}, 25, (4, 21)),
    ({"a": 2, "b": 1, "c": 1}, 7, (2, 1, 4)),
    ({"e": 1}, 3, (3,)),
    ({"a": 0.5, "b": 0.5}, 5, (2, 3)),
])
def test_fixed_levels_follow_the_order_of_the_mix(shares, clients, counts):
    found = levels.assign(mixed(**shares), clients, seed=0, round=0)
    assert found.dtype == np.int32
    assert found.tolist() == np.repeat(np.arange(len(counts)), counts).tolist()
    assert (levels.assign(mixed(**shares), clients, seed=5, round=9) == found).all()


def test_dynamic_levels_are_drawn_with_the_shares_as_chances():
    found = levels.assign(mixed("dynamic", a=1, b=2, e=1), 4000, seed=0, round=0)
    np.testing.assert_allclose(np.bincount(found) / 4000, [0.25, 0.5, 0.25], atol=0.03)
    assert found.dtype == np.int32


def test_dynamic_levels_depend_on_seed_and_round_only():
    def draw(seed, round):
        return levels.assign(mixed("dynamic", a=1, e=1), 60, seed, round).tolist()

    assert draw(0, 3) == draw(0, 3)
    assert len({tuple(draw(seed, round)) for seed in range(3) for round in range(3)}) == 9


def test_widths_are_rounded_up_but_not_by_rounding_noise():
    assert [Width(512).at(width) for width in WIDTHS.values()] == [512, 256, 128, 64, 32]
    assert [Width(20).at(width) for width in WIDTHS.values()] == [20, 10, 5, 3, 2]
    assert Width(100).at(0.07) == 7  # 100 * 0.07 is a little above 7
    assert Width(4).at(0.0625) == 1
