"""What clients hold against their budgets, and levels that are made smaller until their budgets hold them."""

import functools

import methods
import pytest
import tiny
from refusals import refusal

from hetero_tf import recipe
from hetero_tf.models.build_model import build_model
from hetero_tf.models.costs import memory
from hetero_tf.models.costs.level_costs import Costs
from hetero_tf.models.costs.unit_costs import unit_costs, whole_model
from hetero_tf.models.family import build_family

SHAPE, CLASSES = (5, 5, 2), 9
LEVELS = "levels.mix=a-b-c"
# Units 0 to 4 without exits, wide enough to be cut.
PLAIN = methods.BARE.replace(methods.EXIT, "").replace("!w 4", "!w 16").replace("!w 6", "!w 24")
DEPTHS = (methods.EVEN, LEVELS, "levels.depths={a: 3, b: 3, c: 3}")
MEMBERS = ("levels.widths={a: 1/2, b: 1/2, c: 1/2}", LEVELS, "levels.members={a: 4, b: 4, c: 4}")


@functools.cache
def fitted(base, *overrides):
    """The recipe as its budgets make it."""
    return memory.fitted(recipe.loads(base, "tiny", overrides), SHAPE, SHAPE, CLASSES)


def costs(given):
    return Costs(build_family(given, SHAPE, SHAPE, CLASSES), SHAPE, CLASSES)


def taken(given, width):
    """Bytes of every unit of the trunk at a width."""
    model = build_model(given.model, SHAPE, width, classes=CLASSES)
    return {cost.unit: cost.memory(32) for cost in unit_costs(model, SHAPE, given.model.units)}


def test_budgets_are_shares_of_the_model_at_width_1_whatever_the_levels_have():
    narrow = recipe.loads(PLAIN, "tiny", ["levels.widths={a: 1/4, b: 1/4, c: 1/4}", "levels.budgets={a: 1/2}"])
    assert whole_model(narrow, SHAPE, SHAPE, CLASSES) == costs(narrow).whole == sum(taken(narrow, 1.0).values())
    assert memory.estimate(costs(narrow), "a") == pytest.approx(sum(taken(narrow, 0.25).values()))


def test_megabytes_become_shares():
    whole = sum(taken(recipe.loads(PLAIN), 1.0).values()) / 2**20
    given = fitted(PLAIN, LEVELS, f"levels.budgets={{a: {whole:.6f} MB, b: {whole / 4:.6f}MB, c: 1/6}}")
    assert given.levels.budgets == pytest.approx({"a": 1, "b": 0.25, "c": 1 / 6}, rel=1e-3)
    staged = fitted(PLAIN, methods.EVEN, LEVELS, f"levels.budgets={{c: {whole / 4:.6f} MB}}", "client.stages=blockwise")
    assert len(build_family(staged, SHAPE, SHAPE, CLASSES).stages["c"]) > 1


@pytest.mark.parametrize("rounding", ["up", "down"])
def test_levels_become_as_wide_as_their_budgets_hold(rounding):
    settings = (LEVELS, f"levels.rounding={rounding}", "levels.widths={a: 1, b: 1/2, c: 1/2}")
    given = fitted(PLAIN, *settings, "levels.budgets={a: 1, b: 2/3, c: 1/4}", "levels.fit=widths")
    widths, limit = given.levels.widths, 0.25 * 1.05 * sum(taken(given, 1.0).values())
    assert widths["a"] == 1 and widths["b"] == 0.5 and widths["c"] < 0.5
    # The finest size of the model is 24: one step wider would be too much.
    assert sum(taken(given, widths["c"]).values()) <= limit < sum(taken(given, widths["c"] + 1 / 24).values())
    assert memory.exceeded(costs(given)) == {}


def test_all_levels_become_as_wide_as_the_smallest_budget_holds():
    given = fitted(PLAIN, LEVELS, methods.EVEN, "levels.budgets={a: 1, b: 1/2, c: 1/4}", "levels.fit=common_width")
    alone = fitted(PLAIN, LEVELS, methods.EVEN, "levels.budgets={a: 1, b: 1/2, c: 1/4}", "levels.fit=widths")
    assert set(given.levels.widths.values()) == {alone.levels.widths["c"]}


def test_clients_of_depths_hold_what_lies_between_the_ends_and_become_shallower():
    given = fitted(methods.DEEP, *DEPTHS, "levels.budgets={a: 1, b: 0.55, c: 0.3}", "levels.fit=depths")
    units, whole = taken(given, 1.0), costs(given).whole
    assert memory.estimate(costs(given), "a") == pytest.approx(
        sum(units[unit] for unit in "135") + sum(costs(given).units("a", 1.0)[unit].memory(32) for unit in "24")
    )
    depths = given.levels.depths
    assert depths == {"a": 3, "b": 2, "c": 1}
    for name, depth in depths.items():
        deeper = fitted(methods.DEEP, *DEPTHS, f"levels.depths.{name}={min(depth + 1, 3)}")
        limit = 1.05 * given.levels.budgets[name] * whole
        assert depth == 1 or memory.estimate(costs(given), name) <= limit
        assert depth == 3 or memory.estimate(costs(deeper), name) > limit


def test_clients_of_an_ensemble_train_as_many_networks_as_their_budgets_hold():
    given = fitted(PLAIN, *MEMBERS, "levels.budgets={a: 1, b: 0.6, c: 0.3}", "levels.fit=members")
    found, levels = costs(given), given.levels
    one = sum(taken(given, levels.widths["c"]).values())
    assert set(levels.widths.values()) == {levels.widths["c"]} and levels.members["c"] == 1
    for name, count in levels.members.items():
        limit = 1.05 * levels.budgets[name] * found.whole
        assert memory.estimate(found, name) == pytest.approx(count * one) and count * one <= limit
        assert count == 4 or (count + 1) * one > limit


def test_networks_of_a_level_without_a_budget_are_as_many_as_the_recipe_says():
    given = fitted(PLAIN, *MEMBERS, "levels.budgets={a: 0.6, c: 0.3}", "levels.fit=members")
    assert given.levels.members["b"] == 4 > given.levels.members["a"] >= given.levels.members["c"] == 1


def test_nothing_is_fitted_where_only_idle_levels_have_budgets():
    settings = ("levels.assignment=fixed", "levels.idle=[c]", "round.clients=2", "levels.budgets={c: 0.3}")
    given = fitted(PLAIN, *MEMBERS, *settings, "levels.fit=members")
    assert set(given.levels.members.values()) == {4} and set(given.levels.widths.values()) == {0.5}


def test_what_no_width_fits_is_refused_and_what_is_idle_is_not_looked_at():
    settings = (LEVELS, "levels.assignment=fixed", "levels.fit=widths")
    told = refusal(fitted, PLAIN, *settings, "levels.budgets={a: 1, c: 0.01}")
    assert told == (
        "levels.fit: even the narrowest model exceeds the budget of level c; raise its budget, or leave its clients out "
        "by levels.idle. Received: levels.budgets.c=0.01"
    )
    idle = fitted(PLAIN, *settings, "levels.budgets={a: 1, c: 0.01}", "levels.idle=[c]", "round.clients=2")
    assert idle.levels.widths == recipe.loads(PLAIN).levels.widths and memory.exceeded(costs(idle)) == {}


def test_levels_over_their_budgets_are_named_with_what_they_hold():
    given = fitted(PLAIN, LEVELS, methods.EVEN, "levels.budgets={a: 1, b: 0.99, c: 1/2}")
    assert memory.exceeded(costs(given)) == {"c": pytest.approx(2.0)}
    taught = fitted(
        PLAIN,
        LEVELS,
        "levels.budgets={a: 1}",
        "client.stages={name: nested, distill: true}",
        "client.coupling=self_distillation",
    )
    assert memory.exceeded(costs(taught)) == {"a": pytest.approx(2.0)}


def test_a_process_is_built_at_the_widths_that_were_found():
    process = tiny.process(PLAIN, LEVELS, "levels.budgets={a: 1, b: 1, c: 1/4}", "levels.fit=widths")
    assert (
        process.recipe.levels.widths["c"]
        == fitted(PLAIN, LEVELS, "levels.budgets={a: 1, b: 1, c: 1/4}", "levels.fit=widths").levels.widths["c"]
    )
    state, _ = process.next(process.initialize())
    assert state.round == 1


def test_what_was_found_is_told():
    given = fitted(PLAIN, *MEMBERS, "levels.budgets={a: 1, b: 0.6, c: 0.3}", "levels.fit=members")
    width = memory.as_fraction(given.levels.widths["a"])
    assert memory.told(given.levels) == (
        f"widths a {width}, b {width}, c {width}; members a {given.levels.members['a']}, "
        f"b {given.levels.members['b']}, c 1"
    )
    assert memory.told(recipe.loads(PLAIN, "tiny", ["levels.mix=a-b", "levels.widths={a: 1, b: 1/3}"]).levels) == (
        "widths a 1, b 1/3"
    )
