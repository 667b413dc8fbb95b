"""Early stopping of a run, from its recipe and its rows."""

import dataclasses
import math

import pytest

from hetero_tf import recipe
from hetero_tf.runs.early_stopping import Patience, is_stopped_early


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
    counts, patience = [], Patience(metric, None, min_delta)
    for value in values:
        patience = patience.after(value)
        counts.append(patience.waited)
    assert counts == waited


def rows(values, name="global_loss", **more):
    return [{"round": number, name: value, **more} for number, value in enumerate(values, 1)]


def test_only_regular_evaluations_count_and_the_count_has_the_best_value():
    start = Patience("global_loss", 2, 0.0, 2)
    evaluated = [{"round": 1, "loss": 9.0}, {"round": 2, "global_loss": 1.0}, {"round": 3, "global_loss": 2.0}]
    counted = start.count(evaluated)
    assert (counted.best, counted.waited) == (1.0, 0) and not counted.is_over
    counted = counted.count([{"round": 4, "global_loss": 1.5}, {"round": 6, "global_loss": None}])
    assert (counted.best, counted.waited) == (1.0, 2) and counted.is_over
    assert not dataclasses.replace(counted, limit=None).is_over
    for best, value, expected in ((None, math.nan, (None, 0)), (0.5, 0.4, (0.4, 0)), (0.5, 0.6, (0.5, 4))):
        after = Patience("global_loss", None, best=best, waited=-1 if best is None else 3).after(value)
        assert (after.best, after.waited) == expected


@pytest.mark.parametrize(
    ("overrides", "rows", "stopped"),
    [
        (["early_stopping.patience=2"], rows([50.0, 40.0, 30.0], "global_accuracy"), True),
        (["early_stopping.patience=3"], rows([50.0, 40.0, 30.0], "global_accuracy"), False),
        (["early_stopping.patience=2", "evaluate.best=global_loss"], rows([3.0, 2.0, 1.0]), False),
        (["early_stopping={patience: 2, metric: global_loss}"], rows([3.0, 4.0, 5.0], global_accuracy=1), True),
        (["early_stopping={patience: 2, min_delta: 5}"], rows([1.0, 2.0, 3.0], "global_accuracy"), True),
        (["early_stopping.patience=2"], rows([9.0, 8.0, 7.0], "validation_accuracy", global_accuracy=1), True),
        (["early_stopping.patience=2"], [], False),
        ([], rows([3.0, 4.0, 5.0]), False),
    ],
)
def test_a_run_is_stopped_by_its_recipe_and_its_rows(overrides, rows, stopped):
    assert is_stopped_early(recipe.keys_of(recipe.load("tiny/digits", overrides)), rows) == stopped


def test_the_default_metric_is_the_first_of_the_task():
    for name, metric in (("wikitext2", "global_perplexity"), ("table_regression", "global_rmse")):
        keys = recipe.keys_of(recipe.load(f"tiny/{name}", ["early_stopping.patience=2"]))
        assert is_stopped_early(keys, rows([7.0, 8.0, 9.0], metric, global_accuracy=1))
    assert not is_stopped_early({**keys, "task.name": "unregistered"}, rows([7.0, 8.0, 9.0], metric))


KEYS = {
    "early_stopping.patience": 2,
    "early_stopping.metric": "global_loss",
    "early_stopping.min_delta": 0,
    "evaluate.every": 1,
}


def test_recipes_of_earlier_versions_and_invalid_ones_do_not_stop():
    worse = rows([3.0, 4.0, 5.0])
    assert is_stopped_early(KEYS, worse) and not is_stopped_early({"rounds": 3}, worse)
    for name in KEYS:
        assert not is_stopped_early({**KEYS, name: ["x"]}, worse)
    assert not is_stopped_early({**KEYS, "evaluate.every": 0}, worse)
    assert is_stopped_early(KEYS, rows([3.0, "x", 10**400]))
