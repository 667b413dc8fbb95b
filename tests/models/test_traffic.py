"""Bytes and operations of rounds, by hand."""

import dataclasses
import functools

import numpy as np

from hetero_tf.methods.stages import Route, Stage
from hetero_tf.models.costs import level_costs
from hetero_tf.models.costs.counting import ForwardCost

COSTS = (level_costs.ClientCost(400, 360, (6000,)), level_costs.ClientCost(40, 36, (600, 100)))
UNITS = ("stem", "one", "two", "three", "head")
EXITS = {1: (2, "early")}


def of_units(width, constant=()):
    """Costs of the units, by a square law; some have only constant kernels, and "two" adds adapters of 100 to one."""
    costs = {"stem": 40, "one": 400, "two": 400, "three": 400, "head": 40, "early": 20}
    return {
        unit: ForwardCost(
            unit,
            elements=1,
            parameters=0 if unit in constant and unit != "two" else 9,
            multiply_adds=round(width**2 * cost),
            by_constants=(300 if unit == "two" else cost) if unit in constant else 0,
        )
        for unit, cost in costs.items()
    }


def route(units=UNITS, exits=(2,), width=1.0, frozen=0, buffered=False):
    return Route(units, exits, width, frozen=frozen, buffered=buffered)


def flops(trained, *routes, constant=()):
    units = functools.partial(of_units, constant=constant)
    return level_costs.stage_flops(Stage(routes, frozenset(trained)), units, EXITS, epochs=4)


def test_training_is_counted_by_the_passes_of_each_unit():
    assert flops(UNITS, route()) == 6 * 1280
    assert flops(UNITS, route(width=0.5)) == 6 * 320
    # Constants cost no gradient, and one pass before trained units.
    assert flops(UNITS, route(), constant=("stem", "one")) == 2 * (40 + 400) + 6 * 840
    assert flops(UNITS, route(), constant=("three",)) == 6 * 880 + 4 * 400
    assert flops(UNITS, route(), constant=("stem", "one", "two")) == 2 * 440 + (4 * 300 + 6 * 100) + 6 * 440
    # A buffered part runs in one of four epochs; frozen units after trained ones pass the gradient.
    assert flops(("three", "head"), route(frozen=3, buffered=True)) == 6 * 440 + 2 * 840 / 4
    assert flops(UNITS, route(buffered=True)) == flops(UNITS, route())
    assert flops(("stem", "one"), route()) == 6 * 440 + 4 * 840
    peer = dataclasses.replace(route(("stem", "one", "two", "head"), frozen=2), network=1)
    stage = Stage((route(), peer), frozenset(UNITS), (frozenset(("two", "head")),))
    assert level_costs.stage_flops(stage, of_units, EXITS, epochs=4) == 6 * 1280 + 2 * (40 + 400) + 6 * (400 + 40)
    assert flops((*UNITS, "early"), route(exits=(1, 2))) == 6 * 1300
    # A client of a shallow level has the branch without the trunk's end.
    assert flops(("stem", "one", "early"), route(("stem", "one"), exits=(1,))) == 6 * 460
    assert flops(UNITS, route(width=0.5), route()) == 6 * (320 + 1280)


def test_frozen_part_is_only_run_forward():
    # Three stages of one block each; earlier blocks are frozen, later ones are skipped.
    stages = [
        flops(("stem", "one", "head"), route(("stem", "one", "head"))),
        flops(("two", "head"), route(("stem", "one", "two", "head"), frozen=2)),
        flops(("three", "head"), route(UNITS, frozen=3)),
    ]
    assert stages == [6 * 480, 6 * 440 + 2 * 440, 6 * 440 + 2 * 840]


def test_round_cost_counts_traffic_and_operations_of_each_client():
    cost = level_costs.round_cost(
        COSTS,
        levels=[0, 1, 1, 0],
        steps=[1, 3, 2, 0],
        # Steps after those of a client do not reach the server.
        examples=[[5, 9, 9], [4, 4, 2], [4, 1, 9], [9, 9, 9]],
        stages=[[0, 1, 1], [0, 1, 1], [0, 0, 1], [0, 1, 1]],
    )
    assert cost.bytes_down.tolist() == [400, 40, 40, 400]
    # The last client returns nothing, but it received the model before it failed.
    assert cost.bytes_up.tolist() == [360, 36, 36, 0]
    assert cost.train_flops.tolist() == [30_000, 4 * 600 + 6 * 100, 3_000, 0]
    assert cost.metrics() == {"bytes_down": 880, "bytes_up": 432, "train_flops": 36_000}
    assert {type(value) for value in cost.metrics().values()} == {int}


def test_sums_do_not_overflow():
    cost = level_costs.round_cost(
        [level_costs.ClientCost(2**31, 2**31, (10**12,))],
        np.zeros(100, np.int32),
        np.full(100, 10, np.int32),
        np.full((100, 10), 500, np.int32),
        np.zeros((100, 10), np.int32),
    )
    assert cost.metrics() == {"bytes_down": 100 * 2**31, "bytes_up": 100 * 2**31, "train_flops": 5 * 10**17}


def test_run_cost_is_the_sum_of_its_rounds_after_any_resume():
    rows = [
        {"round": number + 1, "bytes_down": 10 * number, "bytes_up": number, "train_flops": 100} for number in range(5)
    ]
    whole = level_costs.accumulate_totals(rows, {})
    assert [row["bytes"] for row in whole] == [0, 11, 33, 66, 110]
    assert [*whole[:2], *level_costs.accumulate_totals(rows[2:], {"bytes": whole[1]["bytes"]})] == whole
    assert "bytes" not in rows[0] and "energy" not in whole[0]
    timed = level_costs.accumulate_totals(
        [{**row, "round_seconds": 0.5, "round_energy": 2} for row in rows], {"energy": 1.0}
    )
    assert [(row["bytes"], row["device_seconds"], row["energy"]) for row in timed[1:3]] == [
        (11, 1.0, 5.0),
        (33, 1.5, 7.0),
    ]
