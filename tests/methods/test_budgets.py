"""Budgets: packing compared with published decompositions, and every error message."""

import pytest
from refusals import refusal

from hetero_tf.methods.stages import budgets
from hetero_tf.methods.stages.budgets import Packing

# PreResNet-20: MB of training memory of its nine blocks and of the full model. Source: FeDepth, Table 1.
BLOCKS = [20.02] * 3 + [14.05] + [10.07] * 2 + [7.21] + [5.28] * 2
WHOLE = 116.04
NAMES = [f"B{number}" for number in range(1, 10)]


def packed(share, tolerance=0.05):
    """Blocks of PreResNet-20 for a share of the full model, numbered from 1: skipped, stages."""
    packing = budgets.pack(BLOCKS, budgets.cap(share, WHOLE, tolerance), NAMES)
    return [index + 1 for index in packing.skipped], [[index + 1 for index in stage] for stage in packing.stages]


@pytest.mark.parametrize(
    ("share", "skipped", "stages"),
    [
        (1, [], [[1, 2, 3, 4, 5, 6, 7, 8, 9]]),
        (1 / 2, [], [[1, 2, 3], [4, 5, 6, 7, 8, 9]]),
        (1 / 3, [], [[1, 2], [3, 4], [5, 6, 7, 8, 9]]),
        (1 / 6, [], [[1], [2], [3], [4], [5, 6], [7, 8, 9]]),
        (1 / 8, [1, 2, 3], [[4], [5], [6], [7, 8], [9]]),
    ],
)
@pytest.mark.parametrize("tolerance", [0.042, 0.05, 0.14])
def test_published_stages_come_out(share, skipped, stages, tolerance):
    # Source: the stages in the authors' code.
    assert packed(share, tolerance) == (skipped, stages)


@pytest.mark.parametrize(("limit", "stages"), [(3, ((0,), (1, 2), (3, 4, 5))), (5, ((0, 1), (2, 3, 4, 5)))])
def test_the_toy_example_of_the_paper(limit, stages):
    assert budgets.pack([3, 2, 1, 0.5, 0.5, 0.5], limit, list("abcdef")) == Packing((), stages)


@pytest.mark.parametrize(
    ("costs", "limit", "text"),
    [
        (
            [5, 2, 4, 1],
            3,
            "unit c needs 4, but the limit is 3; only units before the first that fits, b, can be skipped. "
            "Raise the budget or the tolerance, or use smaller units",
        ),
        ([5, 4, 6, 8], 3, "no unit fits the budget: the smallest, b, needs 4, but the limit is 3. Raise the budget or use smaller units"),
    ],
)  # fmt: skip
def test_units_that_cannot_be_packed_are_refused(costs, limit, text):
    assert refusal(budgets.pack, costs, limit, list("abcd")) == text


def test_the_cap_is_the_share_and_the_tolerance_in_spite_of_rounding():
    assert budgets.cap(1 / 6, WHOLE, 0.05) == pytest.approx(20.307, abs=1e-12)
    assert 0.1 + 0.1 + 0.1 > 0.3
    assert budgets.pack([0.1, 0.1, 0.1], 0.3, list("abc")).stages == ((0, 1, 2),)
    assert packed(1 / 6, 0.0) == ([1, 2, 3], [[4], [5], [6, 7], [8, 9]])
    assert packed(1 / 3, 0.15)[1] != [[1, 2], [3, 4], [5, 6, 7, 8, 9]]
