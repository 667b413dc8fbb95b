"""Budgets: packing against published decompositions, capabilities by hand, and every refusal."""

import math
from fractions import Fraction

import pytest

from hetero_tf import budgets
from hetero_tf.budgets import Need, Packing, Stage
from hetero_tf.errors import BadInput

# PreResNet-20: MB of training memory of its nine blocks and of the whole. Source: FeDepth, Table 1.
BLOCKS = [20.02] * 3 + [14.05] + [10.07] * 2 + [7.21] + [5.28] * 2
WHOLE = 116.04
NAMES = [f"B{number}" for number in range(1, 10)]
# Multiply-adds of an image of 32 x 32: stem, the nine blocks, head.
STEM = 32 * 32 * 27 * 16
SAME = 2 * 9 * 16 * 16 * 32 * 32
DOWN = 16 * 16 * 32 * (9 * 16 + 9 * 32 + 16)
FLOPS = [STEM, SAME, SAME, SAME, DOWN, SAME, SAME, DOWN, SAME, SAME, 640]


def packed(share, tolerance=0.05):
    """Blocks of PreResNet-20 under a share of the whole, numbered from 1: skipped, stages."""
    found = budgets.pack(BLOCKS, budgets.cap(share, WHOLE, tolerance), NAMES)
    return [place + 1 for place in found.skipped], [[place + 1 for place in stage] for stage in found.stages]


@pytest.mark.parametrize(("share", "skipped", "stages"), [
    (Fraction(1), [], [[1, 2, 3, 4, 5, 6, 7, 8, 9]]),
    (Fraction(1, 2), [], [[1, 2, 3], [4, 5, 6, 7, 8, 9]]),
    (Fraction(1, 3), [], [[1, 2], [3, 4], [5, 6, 7, 8, 9]]),
    (Fraction(1, 6), [], [[1], [2], [3], [4], [5, 6], [7, 8, 9]]),
    (Fraction(1, 8), [1, 2, 3], [[4], [5], [6], [7, 8], [9]]),
])
@pytest.mark.parametrize("tolerance", [0.042, 0.05, 0.14])
def test_published_stages_come_out(share, skipped, stages, tolerance):
    # Source: the stages that stand in the authors' code.
    assert packed(share, tolerance) == (skipped, stages)


def test_other_tolerances_do_not_give_the_published_stages():
    assert packed(Fraction(1, 6), 0.0) == ([1, 2, 3], [[4], [5], [6, 7], [8, 9]])
    assert packed(Fraction(1, 3), 0.15)[1] != [[1, 2], [3, 4], [5, 6, 7, 8, 9]]


@pytest.mark.parametrize(("limit", "stages"), [(3, ((0,), (1, 2), (3, 4, 5))), (5, ((0, 1), (2, 3, 4, 5)))])
def test_the_toy_of_the_paper(limit, stages):
    assert budgets.pack([3, 2, 1, 0.5, 0.5, 0.5], limit, list("abcdef")) == Packing((), stages)


def test_a_sum_that_reaches_the_limit_fits_in_spite_of_rounding():
    assert 0.1 + 0.1 + 0.1 > 0.3
    assert budgets.pack([0.1, 0.1, 0.1], 0.3, list("abc")).stages == ((0, 1, 2),)


@pytest.mark.parametrize(("costs", "limit", "text"), [
    ([5, 2, 4, 1], 3, "unit c takes 4 and the client can hold 3; only units before the first that fits, b, can be left "
                      "out. Raise the budget or the tolerance, or use smaller units"),
    ([5, 4, 6, 8], 3, "no unit is left to train: the smallest, b, takes 4 and the client can hold 3. Raise the budget "
                      "or use smaller units"),
    ([1, math.inf, 1, 1], 3, "`costs` must hold at least one number, each from 0. Received: costs=[1, inf, 1, 1]"),
    ([1, -1, 1, 1], 3, "`costs` must hold at least one number, each from 0. Received: costs=[1, -1, 1, 1]"),
    ([], 3, "`costs` must hold at least one number, each from 0. Received: costs=[]"),
    ([1, 1, 1], 3, "`names` must name each of 3 units. Received: names=['a', 'b', 'c', 'd']"),
    ([1, 1, 1, 1], 0, "`limit` must be positive and finite. Received: limit=0"),
])
def test_what_cannot_be_packed_is_refused(costs, limit, text):
    with pytest.raises(BadInput) as refusal:
        budgets.pack(costs, limit, list("abcd"))
    assert str(refusal.value) == text


def test_levels_of_a_scenario():
    shares = dict(zip("dcba", budgets.LACK.shares))
    found = budgets.pack_levels(BLOCKS, NAMES, WHOLE, shares, 0.05)
    assert [len(packing.stages) for packing in found.values()] == [5, 6, 2, 1]
    assert found["d"].skipped == (0, 1, 2) and not any(found[level].skipped for level in "abc")


def test_a_unit_that_no_client_can_hold_is_refused():
    with pytest.raises(BadInput) as refusal:
        budgets.pack_levels([8, 5, 1, 1], list("abcd"), 15, {"x": Fraction(1, 15), "y": Fraction(1, 3)}, 0.0)
    assert str(refusal.value) == (
        "unit a takes 8, and no client can hold it: the largest budget is 1/3 of 15. Nobody would train it; raise a "
        "budget or the tolerance, or use smaller units")


def test_a_level_that_has_no_unit_left_is_named():
    with pytest.raises(BadInput, match=r"^level e, budget 1/100: no unit is left to train: the smallest, B8, takes "
                                       r"5.28 and the client can hold 1.1604. "):
        budgets.pack_levels(BLOCKS, NAMES, WHOLE, {"a": Fraction(1), "e": Fraction(1, 100)}, 0.0)


def test_without_levels_nothing_is_packed():
    assert budgets.pack_levels(BLOCKS, NAMES, WHOLE, {}, 0.05) == {}


def test_the_stem_trains_first_and_the_head_always():
    found = budgets.with_ends(Packing((0,), ((1,), (2, 3))), before=2, after=1)
    assert found == (Stage((), (0, 1, 3, 6)), Stage((0, 1, 3), (4, 5, 6)))
    assert budgets.with_ends(Packing((), ((0, 1),)), 0, 0) == (Stage((), (0, 1)),)


@pytest.mark.parametrize(("share", "each_step", "buffered"), [
    (Fraction(1, 6), 1.62, 1.23), (Fraction(1, 3), 1.23, 1.15), (Fraction(1, 2), 1.12, 1.12), (Fraction(1), 1.0, 1.0)])
def test_what_training_in_stages_costs_beside_joint_training(share, each_step, buffered):
    # Source: counted by hand from the layers, 40.8 million multiply-adds forward.
    assert round(sum(FLOPS) / 1e6, 1) == 40.8
    packing = budgets.pack(BLOCKS, budgets.cap(share, WHOLE, 0.05), NAMES)
    stages = budgets.with_ends(packing, 1, 1)
    for kept, expected in ((False, each_step), (True, buffered)):
        work = budgets.stage_work(FLOPS, stages, 1, kept)
        assert len(work) == len(stages)
        spent = sum(3 * trained + frozen for ways in work for trained, frozen in ways)
        assert round(spent / (3 * sum(FLOPS)), 2) == expected


def test_a_buffer_is_filled_once_for_all_epochs():
    stages = (Stage((), (0, 3)), Stage((0,), (1, 3)), Stage((0, 1), (2, 3)))
    flops = [10, 20, 30, 1]
    assert budgets.stage_work(flops, stages, 5, False) == [[(11, 0)], [(21, 10)], [(31, 30)]]
    assert budgets.stage_work(flops, stages, 5, True) == [[(11, 0)], [(21, 10 / 5)], [(31, 20 / 5)]]


def test_scenarios_are_exact():
    assert {name: list(map(str, scenario.shares)) for name, scenario in budgets.SCENARIOS.items()} == {
        "fair": ["1/6", "1/3", "1/2", "1"], "lack": ["1/8", "1/6", "1/2", "1"], "surplus": ["1/6", "1/3", "1/2", "2"]}
    assert budgets.scenario("lack") is budgets.LACK and budgets.LACK.name == "lack"
    with pytest.raises(BadInput, match=r"^unknown scenario of budgets: 'lak'; did you mean 'lack'\?$"):
        budgets.scenario("lak")


@pytest.mark.parametrize(("value", "share"), [
    ("1/6", Fraction(1, 6)), (0.165, Fraction(33, 200)), (2, Fraction(2)), ("0.5", Fraction(1, 2)),
    (1e-3, Fraction(1, 1000)), (Fraction(1, 3), Fraction(1, 3))])
def test_a_budget_is_what_is_written(value, share):
    assert budgets.exact_share(value) == share


@pytest.mark.parametrize("value", [0, -1, "1/0", "a", "", None, True, math.nan, math.inf, [1]])
def test_other_budgets_are_refused(value):
    with pytest.raises(BadInput) as refusal:
        budgets.exact_share(value)
    assert str(refusal.value) == f"a budget must be a positive number or a fraction such as 1/6. Received: {value!r}"


def test_the_cap_is_the_share_and_the_tolerance():
    assert budgets.cap(Fraction(1, 6), WHOLE, 0.05) == pytest.approx(20.307, abs=1e-12)
    for tolerance in (-0.01, 1.0):
        with pytest.raises(BadInput, match=rf"^`tolerance` must be at least 0 and below 1. Received: .*={tolerance}$"):
            budgets.cap(Fraction(1), WHOLE, tolerance)


# Memory is not proportional to the width, and multiply-adds fall with its square.
WIDTHS = {1.0: Need(100, 64, 1.0), 0.5: Need(52, 16, 0.5), 0.25: Need(27, 4, 0.25)}


@pytest.mark.parametrize(("share", "measure", "tolerance", "width"), [
    ("1/2", "share", 0.0, 0.5), ("1/2", "memory", 0.0, 0.25), ("1/2", "memory", 0.05, 0.5), ("1/2", "flops", 0.0, 0.5),
    ("1/4", "flops", 0.0, 0.5), ("1/5", "flops", 0.0, 0.25), ("2", "memory", 0.0, 1.0)])
def test_the_widest_width_depends_on_the_measure(share, measure, tolerance, width):
    assert budgets.greatest(WIDTHS, WIDTHS[1.0], Fraction(share), measure, tolerance, "width") == width


def test_the_greatest_depth_is_a_number_of_exits():
    exits = {1: Need(50, 10, 0.25), 2: Need(80, 20, 0.5), 3: Need(95, 30, 0.75), 4: Need(100, 40, 1.0)}
    found = [budgets.greatest(exits, exits[4], share, measure, 0.0, "depth")
             for measure in budgets.MEASURES for share in (Fraction(1, 2), Fraction(1))]
    assert found == [1, 4, 2, 4, 2, 4]


def test_a_budget_below_the_smallest_sub_model_is_refused():
    with pytest.raises(BadInput) as refusal:
        budgets.greatest(WIDTHS, WIDTHS[1.0], Fraction(1, 6), "memory", 0.05, "width")
    assert str(refusal.value) == ("no width fits the budget 1/6: the smallest, 0.25, takes 27 (memory) and the client "
                                  "can hold 17.5")


def test_an_unknown_measure_is_refused():
    with pytest.raises(BadInput, match=r"^unknown measure of a budget: 'ram'; known: flops, memory, share$"):
        WIDTHS[1.0].by("ram")


@pytest.mark.parametrize(("share", "atom", "count"), [
    ("1/2", "1/6", 3), ("1", "1/6", 6), ("1/3", "1/6", 2), (Fraction(0.33), Fraction(0.165), 2), (1 / 3, 1 / 9, 3),
    ("1/21", "1/64", 3), ("2", "1", 2), ("1", "1", 1), (0.3, 0.1, 3)])
def test_members_are_counted_down(share, atom, count):
    assert budgets.members(Fraction(share), Fraction(atom)) == count


def test_a_budget_below_one_member_is_refused():
    with pytest.raises(BadInput, match=r"^the budget 1/8 holds no member: one takes 1/6$"):
        budgets.members(Fraction(1, 8), Fraction(1, 6))
