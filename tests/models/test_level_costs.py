"""Costs of levels with exits, members, stages and units, and of rounds, by hand and compared with training."""

import dataclasses
import functools
import json
import math

import numpy as np
import pytest
import tiny
from descriptions import describe_recipe
from refusals import refusal

from hetero_tf import recipe
from hetero_tf.base.errors import InputError
from hetero_tf.methods.stages import Route, Stage
from hetero_tf.models.costs import level_costs
from hetero_tf.models.costs.counting import ForwardCost, forward, total
from hetero_tf.models.family import build_family
from hetero_tf.reports import describe as accounting
from hetero_tf.reports.describe.loads import level_loads

IMAGES = tiny.IMAGES.replace("mix: a-c", "mix: a-b-c")
DEEP = IMAGES.replace(
    """    - PreActivationBlock: {filters: !w 12, stride: 2}
    - GlobalAveragePooling2D
    - Dense: {units: !classes, kernel_initializer: fan_in_uniform}
""",
    """    - PreActivationBlock: {filters: !w 12, stride: 2}
    - Exit: [GlobalAveragePooling2D, Dense: {units: !classes}]
    - PreActivationBlock: {filters: !w 12}
    - PreActivationBlock: {filters: !w 12}
    - [GlobalAveragePooling2D, Dense: {units: !classes}]
""",
)
# Values: stem 9*2*8 + 8 and norm 16; a branch and the head 12*9 + 9 each.
STEM, HEAD = 168, 117
FIRST = 16 + 24 + 9 * 8 * 12 + 9 * 12 * 12 + 8 * 12
NEXT = 48 + 2 * 9 * 12 * 12
EQUAL = "levels.widths={a: 1, b: 1, c: 1}"
BUDGETS = (EQUAL, "levels.budgets={a: 1, b: 1/2, c: 0.55}", "client.stages=blockwise", "levels.mix=a-b-c")


@functools.cache
def costs(*overrides, base=DEEP):
    return level_costs.LevelCosts(family_of(recipe.loads(base, "tiny", overrides), (5, 5, 2), 9), 9)


def family_of(tested_recipe, shape, classes):
    return build_family(tested_recipe, shape, shape, classes)


@functools.cache
def describe_levels(*overrides, base=DEEP, **about):
    return describe_recipe(recipe.loads(base, "tiny", overrides), (5, 5, 2), 9, **about)


def test_values_of_a_depth_end_at_its_exit():
    levels = describe_levels(EQUAL, "levels.depths={a: 2, b: 1, c: 1}").levels
    assert levels["a"].parameters == STEM + FIRST + 2 * NEXT + 2 * HEAD
    assert levels["b"].parameters == STEM + FIRST + HEAD
    assert levels["b"].bytes_down == levels["b"].bytes_up == 4 * levels["b"].parameters
    assert levels["b"].multiply_adds < levels["a"].multiply_adds and levels["b"].paper_flops < levels["a"].paper_flops
    text = accounting.to_text(describe_levels(EQUAL, "levels.depths={a: 2, b: 1, c: 1}"), complete=True)
    row = next(line.split() for line in text.splitlines() if line.startswith("3_0_pre_activation_block/conv1/kernel"))
    assert row[1:] == ["3x3x12x12", "-", "-"]


def test_ensemble_cost_is_proportional_to_its_networks():
    equal = "levels.widths={a: 0.25, b: 0.25, c: 0.25}"
    one = describe_levels(equal, base=IMAGES).levels["a"]
    levels = describe_levels(equal, "levels.members={a: 4, b: 2, c: 1}", base=IMAGES).levels
    for name, many in (("a", 4), ("b", 2), ("c", 1)):
        for key in ("parameters", "paper_flops", "multiply_adds", "bytes_down", "bytes_up", "mebibytes"):
            assert getattr(levels[name], key) == many * getattr(one, key)
        # The networks are trained one after the other.
        assert levels[name].memory.total == one.memory.total


def test_personal_values_are_not_transferred_and_running_statistics_are():
    level = describe_levels(EQUAL, "round.personal=['0', '5']").levels["a"]
    assert level.bytes_down == level.bytes_up == 4 * (level.parameters - STEM - HEAD)
    nothing = describe_levels("round.personal=[all]").levels["a"]
    assert nothing.bytes_down == nothing.bytes_up == 0
    tracked = describe_levels(base=IMAGES.replace("sbn", "bn")).levels["a"]
    fixed = describe_levels(base=IMAGES).levels["a"]
    assert tracked.parameters == fixed.parameters
    assert tracked.bytes_up == fixed.bytes_up + 4 * 2 * 8
    assert sum(math.prod(shape) for shape in tracked.shapes.values()) == tracked.parameters + 16


def test_scaffold_receives_the_control_and_sends_its_change():
    plain = describe_levels(EQUAL).levels["a"]
    sgd = "optimizer={name: sgd, momentum: 0, learning_rate: 0.1}"
    scaffold = describe_levels(EQUAL, "client.correction=scaffold", "round.server=scaffold", sgd).levels["a"]
    assert scaffold.bytes_down == scaffold.bytes_up == 2 * plain.bytes_up
    dynamic = describe_levels(EQUAL, "client.correction=dynamic", "round.server=dynamic", sgd).levels["a"]
    assert dynamic.bytes_down == dynamic.bytes_up == plain.bytes_up


def test_client_receives_run_units_and_sends_trained_ones():
    # No stage reads the exit; the first block is skipped if it does not fit by itself.
    level = describe_levels(*BUDGETS).levels["b"]
    assert level.bytes_down == level.bytes_up == 4 * (level.parameters - HEAD)
    last = describe_levels("client.stages={name: joint, exits: last}", EQUAL).levels["a"]
    assert last.bytes_down == 4 * last.parameters and last.bytes_up == 4 * (last.parameters - HEAD)
    counted = describe_levels("client.stages={name: joint, exits: last}", "round.untrained=counted").levels["a"]
    assert counted.bytes_up == counted.bytes_down


@pytest.mark.parametrize("more", ["round.label_rows=all", "client.label_cut=false", "client.loss=cross_entropy"])
def test_all_label_rows_are_sent_down_without_a_label_cut(more):
    cut, whole = (describe_levels(*extra, labels=(2, 4), base=IMAGES).levels["a"] for extra in ((), (more,)))
    # The head: 12 values and a bias for each label.
    assert whole.bytes_down - cut.bytes_down == 4 * 13 * (9 - 3)
    assert whole.bytes_up - cut.bytes_up == (4 * 13 * (9 - 3) if "all" in more else 0)


def test_operations_of_a_stage_depend_on_run_and_trained_units():
    joint, staged = costs(EQUAL), costs(*BUDGETS)
    units = {unit: cost.multiply_adds for unit, cost in joint.units("a", 1.0).items()}
    assert joint.train_flops("a") == (6 * sum(units.values()),)
    assert staged.train_flops("a") == (6 * (sum(units.values()) - units["2"]),)
    stages = staged.family.stages["b"]
    assert len(staged.train_flops("b")) == len(stages) > 1
    assert staged.train_flops("b")[0] == 6 * sum(units[unit] for unit in set(stages[0].routes[0].units))
    assert staged.train_flops("b")[-1] == (
        6 * sum(units[unit] for unit in stages[-1].trained)
        + 2 * sum(units[unit] for unit in stages[-1].routes[0].units if unit not in stages[-1].trained)
    )


def test_cost_of_a_level_is_proportional_to_its_epochs():
    each = "client.epochs={a: 3, b: 5, c: 1}"
    one_epoch, more_epochs = (
        level_loads(costs(EQUAL, more), describe_levels(EQUAL, more).levels, 10.0)["levels"].values()
        for more in ("client.epochs=1", each)
    )
    assert [more["train_flops"] / one["train_flops"] for one, more in zip(one_epoch, more_epochs)] == pytest.approx(
        [3, 5, 1]
    )
    assert [more["bytes_up"] for more in more_epochs] == [one["bytes_up"] for one in one_epoch]


def test_nested_widths_cost_the_sum_of_the_widths():
    level_costs_of_recipe = costs("client.stages=nested", base=IMAGES)
    each = {
        width: 6 * sum(cost.multiply_adds for cost in level_costs_of_recipe.units("a", width).values())
        for width in (1, 0.5, 0.25)
    }
    assert level_costs_of_recipe.train_flops("a") == (each[0.25], each[0.5], each[1])
    assert level_costs_of_recipe.train_flops("c") == (each[0.25],)
    assert each[0.25] < each[0.5] < each[1]


def test_slimmable_training_costs_the_sum_of_its_widths():
    process = tiny.process(IMAGES, "client.stages=slimmable")
    levels, loads = accounting.describe(process).levels, accounting.describe(process).about["loads"]
    count = level_costs.LevelCosts(process.family, 9)
    each = {width: count.units("a", width) for width in (1, 0.5, 0.25)}
    flops = {width: 6 * sum(cost.multiply_adds for cost in units.values()) for width, units in each.items()}
    assert count.train_flops("a") == (sum(flops.values()),) and count.train_flops("c") == (flops[0.25],)
    assert [load["trains"] for load in loads["levels"].values()] == ["3 widths", "2 widths", "width 1/4"]
    memory_by_width = {width: sum(cost.memory(32) for cost in units.values()) for width, units in each.items()}
    assert [load["estimate"] for load in loads["levels"].values()] == [
        memory_by_width[1],
        memory_by_width[0.5],
        memory_by_width[0.25],
    ]
    joint = accounting.describe(tiny.process(IMAGES)).levels
    extra = {name: levels[name].memory.total - joint[name].memory.total for name in "abc"}
    activations = {
        name: total(forward(process.family.new_training_model(name, 9), (5, 5, 2))).activations for name in "bc"
    }
    assert extra == {"a": 3 * 4 * sum(activations.values()), "b": 3 * 4 * activations["c"], "c": 0}


def test_client_cost_of_an_ensemble_is_that_of_one_network(eager):
    process = tiny.process(IMAGES, "levels.widths={a: 0.5, b: 0.5, c: 0.5}", "levels.members={a: 4, b: 2, c: 1}")
    description, costs_of_levels = accounting.describe(process), process.client_costs
    # Means over clients are rounded to whole bytes.
    assert [4 * costs_of_levels[0].bytes_down, 2 * costs_of_levels[1].bytes_up] == pytest.approx(
        [description.levels["a"].bytes_down, description.levels["b"].bytes_up], abs=2
    )
    assert costs_of_levels[0] == costs_of_levels[1] == costs_of_levels[2]
    plan = process.plan(0)
    _, row = process.run(process.initialize(), [plan])
    assert sum(row[0]["levels"].values()) == 3 < len(plan.clients)
    assert row[0]["bytes_down"] == len(plan.clients) * costs_of_levels[0].bytes_down


def test_staged_training_costs_equal_hand_counts():
    """PreResNet-20 compared with joint training; a step is three times its forward products, a frozen unit only one."""
    fedepth_costs = level_costs.LevelCosts(family_of(recipe.load("methods/fedepth"), (32, 32, 3), 10), 10)
    (joint,) = fedepth_costs.train_flops("a")
    assert joint / 6 == pytest.approx(40.8e6, rel=1e-3)
    assert [round(sum(fedepth_costs.train_flops(level)) / joint, 2) for level in "bcd"] == [1.12, 1.23, 1.62]


def test_budgets_of_products_divide_by_products():
    staged = costs(*BUDGETS, "levels.measure=multiply_adds")
    units = {unit: cost.multiply_adds for unit, cost in staged.units("a", 1.0).items()}
    for level, share in (("b", 1 / 2), ("c", 0.55)):
        for stage in staged.family.stages[level]:
            assert sum(units[unit] for unit in stage.trained - {"0", "5"}) <= 1.05 * share * sum(units.values())
    assert staged.family.stages != costs(*BUDGETS).family.stages
    loads = accounting.describe(tiny.process(DEEP, *BUDGETS, "levels.measure=multiply_adds")).about["loads"]
    assert loads["measure"] == "multiply_adds" and loads["whole"] == sum(units[unit] for unit in units if unit != "2")


def test_units_that_exceed_every_budget_are_refused():
    idle = ("levels.budgets={b: 0.3, c: 0.3}", "levels.idle=[a]", "levels.assignment=fixed")
    assert refusal(costs, *BUDGETS, *idle) == (
        "levels.budgets: no client trains unit 1: it exceeds every budget; raise a budget or the tolerance, or "
        "use smaller units. Received: budgets={'b': 0.3, 'c': 0.3}"
    )
    with pytest.raises(InputError, match=r"^levels\.budgets\.c, in shares of the full model: no unit fits the bud"):
        costs(*BUDGETS, "levels.budgets={c: 0.01}")


def test_budgets_are_described_with_stages_and_skipped_units():
    process = tiny.process(DEEP, *BUDGETS)
    description = accounting.describe(process)
    loads = description.about["loads"]
    assert [(level, load["budget"], load["trains"]) for level, load in loads["levels"].items()] == [
        ("a", "1", "all"),
        ("b", "1/2", "3 stages"),
        ("c", "11/20", "2 stages"),
    ]
    assert loads["levels"]["a"]["of_budget"] == pytest.approx(1)
    assert not any(load["over"] for load in loads["levels"].values()) and loads["tolerance"] == 0.05
    level_load = loads["levels"]["b"]
    assert [unit for part in level_load["parts"] for unit in part["units"]] == ["1", "3", "4"] and level_load[
        "skipped"
    ] == ()
    steps = process.partition.train.sizes.mean() * 2
    flops = level_costs.LevelCosts(process.family, 9).train_flops("b")
    assert level_load["train_flops"] == pytest.approx(steps * sum(flops)) and level_load["clients"] == 1
    plain = accounting.to_json(description)
    assert json.loads(json.dumps(plain)) == plain and plain["loads"]["levels"]["b"]["budget"] == "1/2"
    assert "level  budget  budget MiB" in accounting.to_text(description)


DEPTHS = (EQUAL, "levels.depths={a: 2, b: 1, c: 1}")
MEMBERS = ("levels.widths={a: 0.5, b: 0.5, c: 0.5}", "levels.members={a: 4, b: 2, c: 1}")
PEERS = (EQUAL, "levels.budgets={a: 2}", "client.stages={name: blockwise, peers: true}")


@pytest.mark.parametrize(
    ("overrides", "trains", "skipped"),
    [
        (DEPTHS, ["2 of 2 exits", "1 of 2 exits", "1 of 2 exits"], ("3", "4", "5")),
        (MEMBERS, ["4 members", "2 members", "1 member"], ()),
        ((*PEERS, "client.coupling={name: mutual, ramp: null}"), ["2 models", "all", "all"], ()),
    ],
)
def test_description_reports_the_training_of_levels(overrides, trains, skipped):
    loads = accounting.describe(tiny.process(DEEP, *overrides)).about["loads"]
    assert [load["trains"] for load in loads["levels"].values()] == trains
    assert loads["levels"]["b"]["skipped"] == skipped


def test_levels_that_differ_in_width_alone_have_no_such_table():
    assert accounting.describe(tiny.process(IMAGES)).about["loads"] is None
    nested = accounting.describe(tiny.process(IMAGES, "client.stages=nested"))
    assert nested.about["loads"] is None and accounting.to_json(nested)["loads"] is None


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


def route(units=UNITS, exits=(2,), width=1.0, frozen=0):
    return Route(units, exits, width, frozen=frozen)


def flops(trained, *routes, constant=()):
    units = functools.partial(of_units, constant=constant)
    return level_costs.stage_flops(Stage(routes, frozenset(trained)), units, EXITS)


def test_training_is_counted_by_the_passes_of_each_unit():
    assert flops(UNITS, route()) == 6 * 1280
    assert flops(UNITS, route(width=0.5)) == 6 * 320
    # Constants cost no gradient, and one pass before trained units.
    assert flops(UNITS, route(), constant=("stem", "one")) == 2 * (40 + 400) + 6 * 840
    assert flops(UNITS, route(), constant=("three",)) == 6 * 880 + 4 * 400
    assert flops(UNITS, route(), constant=("stem", "one", "two")) == 2 * 440 + (4 * 300 + 6 * 100) + 6 * 440
    # Frozen units after trained ones pass the gradient.
    assert flops(("three", "head"), route(frozen=3)) == 6 * 440 + 2 * 840
    assert flops(("stem", "one"), route()) == 6 * 440 + 4 * 840
    peer = dataclasses.replace(route(("stem", "one", "two", "head"), frozen=2), network=1)
    stage = Stage((route(), peer), frozenset(UNITS), (frozenset(("two", "head")),))
    assert level_costs.stage_flops(stage, of_units, EXITS) == 6 * 1280 + 2 * (40 + 400) + 6 * (400 + 40)
    assert flops((*UNITS, "early"), route(exits=(1, 2))) == 6 * 1300
    # A client of a shallow level has the branch without the trunk's end.
    assert flops(("stem", "one", "early"), route(("stem", "one"), exits=(1,))) == 6 * 460
    assert flops(UNITS, route(width=0.5), route()) == 6 * (320 + 1280)


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
