"""Patience: evaluations since the last improvement of a metric."""

import math

import pytest

from hetero_tf.runs.early_stopping import Patience


@pytest.mark.parametrize(
    ("metric", "min_delta", "values", "waited"),
    [
        ("global_accuracy", 0, [10, 20, 20, 19], [0, 0, 1, 2]),
        ("global_accuracy", 0, [10, 9, 11, 10, 10.5], [0, 1, 0, 1, 2]),
        ("global_accuracy", 5, [10, 14, 15, 15.5, 20], [0, 1, 2, 0, 1]),
        ("global_loss", 0, [2, 1, 1.5, 0.5, 0.6], [0, 0, 1, 0, 1]),
        ("global_loss", 0.5, [2, 1.5, 1.4], [0, 1, 0]),
        ("global_loss", 0, [math.nan, 3, None, 2], [0, 0, 1, 0]),
        ("global_loss", 0, [math.nan, None, math.inf], [0, 1, 2]),
        ("global_loss", 0, [-math.inf, 3, math.nan, 4], [0, 0, 1, 2]),
        ("global_accuracy", 0, [math.inf, 10, 20], [0, 0, 0]),
    ],
)
def test_evaluations_without_an_improvement_are_counted(metric, min_delta, values, waited):
    counts, patience = [], Patience()
    for value in values:
        patience = patience.after(metric, value, min_delta)
        counts.append(patience.waited)
    assert counts == waited


def test_the_count_has_the_best_value():
    assert Patience().after("global_loss", math.nan, 0) == Patience(None, 0)
    assert Patience(0.5, 3).after("global_loss", 0.4, 0) == Patience(0.4, 0)
    assert Patience(0.5, 3).after("global_loss", 0.6, 0) == Patience(0.5, 4)
