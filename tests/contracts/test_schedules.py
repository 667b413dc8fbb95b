"""Schedules: values at single rounds."""

import math

import pytest

from hetero_tf.base import registry


def test_steps_fall_after_the_listed_rounds():
    # MNIST of HeteroFL: rounds 1 to 100 at the full rate, the 101st at a tenth (round 100 when counted from 0).
    steps = registry.find("schedules", "steps").multiplier
    assert [steps(round, at=(100,)) for round in (0, 99, 100, 101)] == [1, 1, 0.1, 0.1]
    assert [steps(round, at=(150, 250), factor=0.5) for round in (149, 150, 249, 250)] == [1, 0.5, 0.5, 0.25]
    assert steps(5, at=()) == 1


def test_cosine_is_half_way_in_the_middle_and_zero_at_the_end():
    cosine = registry.find("schedules", "cosine").multiplier
    assert cosine(10, rounds=20) == pytest.approx(0.5)
    assert cosine(5, rounds=20) == pytest.approx((1 + math.sqrt(0.5)) / 2)
    assert cosine(20, rounds=20) == cosine(25, rounds=20) == 0
