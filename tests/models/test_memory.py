"""Memory of clients compared with their budgets, and levels that are reduced to fit their budgets."""

import functools

import methods
import pytest
import tiny
from refusals import refusal

from hetero_tf import recipe
from hetero_tf.models.build_model import build_model
from hetero_tf.models.costs import memory
from hetero_tf.models.costs.counting import forward, unit_amounts, unit_costs
from hetero_tf.models.costs.level_costs import LevelCosts
from hetero_tf.models.family import build_family

SHAPE, CLASSES = (5, 5, 2), 9
LEVELS = "levels.mix=a-b-c"
# Units 0 to 4 without exits, wide enough to be cut.
PLAIN = methods.BARE.replace(methods.EXIT, "").replace("!w 4", "!w 16").replace("!w 6", "!w 24")
DEPTHS = (methods.EVEN, LEVELS, "levels.depths={a: 3, b: 3, c: 3}")
MEMBERS = ("levels.widths={a: 1/2, b: 1/2, c: 1/2}", LEVELS, "levels.members={a: 4, b: 4, c: 4}")


@functools.cache
def load_fitted(base, *overrides):
    return memory.fit_levels(recipe.loads(base, "tiny", overrides), SHAPE, SHAPE, CLASSES)


def costs(fit_recipe):
    return LevelCosts(build_family(fit_recipe, SHAPE, SHAPE, CLASSES), CLASSES)


def unit_memory(fit_recipe, width):
    model = build_model(fit_recipe.model, SHAPE, width, classes=CLASSES)
    return {cost.name: cost.memory(32) for cost in unit_costs(forward(model, SHAPE), fit_recipe.model.units)}


def test_budgets_are_shares_of_the_model_at_width_1_for_all_levels():
    narrow = recipe.loads(PLAIN, "tiny", ["levels.widths={a: 1/4, b: 1/4, c: 1/4}", "levels.budgets={a: 1/2}"])
    full = sum(unit_amounts(narrow, SHAPE, SHAPE, CLASSES).values())
    assert full == costs(narrow).full_cost == sum(unit_memory(narrow, 1.0).values())
    assert memory.estimate(costs(narrow), "a") == pytest.approx(sum(unit_memory(narrow, 0.25).values()))


def test_mebibytes_become_shares():
    whole = sum(unit_memory(recipe.loads(PLAIN), 1.0).values()) / 2**20
    fit_recipe = load_fitted(PLAIN, LEVELS, f"levels.budgets={{a: {whole:.6f} MiB, b: {whole / 4:.6f}MiB, c: 1/6}}")
    assert fit_recipe.levels.budgets == pytest.approx({"a": 1, "b": 0.25, "c": 1 / 6}, rel=1e-3)
    staged = load_fitted(
        PLAIN, methods.EVEN, LEVELS, f"levels.budgets={{c: {whole / 4:.6f} MiB}}", "client.stages=blockwise"
    )
    assert len(build_family(staged, SHAPE, SHAPE, CLASSES).stages["c"]) > 1


@pytest.mark.parametrize("rounding", ["up", "down"])
def test_levels_are_reduced_to_the_width_of_their_budgets(rounding):
    settings = (LEVELS, f"levels.rounding={rounding}", "levels.widths={a: 1, b: 1/2, c: 1/2}")
    fit_recipe = load_fitted(PLAIN, *settings, "levels.budgets={a: 1, b: 2/3, c: 1/4}", "levels.fit=widths")
    widths, limit = fit_recipe.levels.widths, 0.25 * 1.05 * sum(unit_memory(fit_recipe, 1.0).values())
    assert widths["a"] == 1 and widths["b"] == 0.5 and widths["c"] < 0.5
    # The finest size of the model is 24: one step wider would be too much.
    fitted, wider = (sum(unit_memory(fit_recipe, widths["c"] + more).values()) for more in (0, 1 / 24))
    assert fitted <= limit < wider
    assert memory.over_budget(costs(fit_recipe)) == {}


def test_all_levels_are_reduced_to_the_width_of_the_smallest_budget():
    settings = (PLAIN, LEVELS, methods.EVEN, "levels.budgets={a: 1, b: 1/2, c: 1/4}")
    fit_recipe, alone = (load_fitted(*settings, f"levels.fit={fit}") for fit in ("common_width", "widths"))
    assert set(fit_recipe.levels.widths.values()) == {alone.levels.widths["c"]}


def test_depth_levels_count_the_units_between_the_ends_and_become_shallower():
    fit_recipe = load_fitted(methods.DEEP, *DEPTHS, "levels.budgets={a: 1, b: 0.55, c: 0.3}", "levels.fit=depths")
    units, whole = unit_memory(fit_recipe, 1.0), costs(fit_recipe).full_cost
    assert memory.estimate(costs(fit_recipe), "a") == pytest.approx(
        sum(units[unit] for unit in "135") + sum(costs(fit_recipe).units("a", 1.0)[unit].memory(32) for unit in "24")
    )
    depths = fit_recipe.levels.depths
    assert depths == {"a": 3, "b": 2, "c": 1}
    for name, depth in depths.items():
        deeper = load_fitted(methods.DEEP, *DEPTHS, f"levels.depths.{name}={min(depth + 1, 3)}")
        limit = 1.05 * fit_recipe.levels.budgets[name] * whole
        assert depth == 1 or memory.estimate(costs(fit_recipe), name) <= limit
        assert depth == 3 or memory.estimate(costs(deeper), name) > limit


def test_depth_levels_become_narrower_if_the_first_exit_exceeds_their_budget():
    fit_recipe = load_fitted(methods.DEEP, *DEPTHS, "levels.budgets={a: 1, b: 0.55, c: 0.1}", "levels.fit=depths")
    assert fit_recipe.levels.depths == {"a": 3, "b": 2, "c": 1} and memory.over_budget(costs(fit_recipe)) == {}
    assert 1 < max(memory.budget_shares(costs(fit_recipe)).values()) < 1.05
    assert fit_recipe.levels.widths["a"] == fit_recipe.levels.widths["b"] == 1 > fit_recipe.levels.widths["c"]


def test_ensemble_clients_train_the_networks_that_fit_their_budgets_and_the_fit_is_described():
    fit_recipe = load_fitted(PLAIN, *MEMBERS, "levels.budgets={a: 1, b: 0.6, c: 0.3}", "levels.fit=members")
    level_costs, levels = costs(fit_recipe), fit_recipe.levels
    one = sum(unit_memory(fit_recipe, levels.widths["c"]).values())
    assert set(levels.widths.values()) == {levels.widths["c"]} and levels.members["c"] == 1
    for name, count in levels.members.items():
        limit = 1.05 * levels.budgets[name] * level_costs.full_cost
        assert memory.estimate(level_costs, name) == pytest.approx(count * one) and count * one <= limit
        assert count == 4 or (count + 1) * one > limit
    width = memory.as_fraction(fit_recipe.levels.widths["a"])
    members = f"a {levels.members['a']}, b {levels.members['b']}, c 1"
    assert memory.describe_fit(levels) == f"widths a {width}, b {width}, c {width}; members {members}"
    levels = recipe.loads(PLAIN, "tiny", ["levels.mix=a-b", "levels.widths={a: 1, b: 1/3}"]).levels
    assert memory.describe_fit(levels) == "widths a 1, b 1/3"


def test_levels_without_a_budget_and_with_budgets_of_idle_levels_alone_are_unchanged():
    fit_recipe = load_fitted(PLAIN, *MEMBERS, "levels.budgets={a: 0.6, c: 0.3}", "levels.fit=members")
    assert fit_recipe.levels.members["b"] == 4 > fit_recipe.levels.members["a"] >= fit_recipe.levels.members["c"] == 1
    settings = ("levels.assignment=fixed", "levels.idle=[c]", "round.clients=2", "levels.budgets={c: 0.3}")
    fit_recipe = load_fitted(PLAIN, *MEMBERS, *settings, "levels.fit=members")
    assert set(fit_recipe.levels.members.values()) == {4} and set(fit_recipe.levels.widths.values()) == {0.5}


def test_budget_below_every_width_is_refused_except_for_idle_levels():
    settings = (LEVELS, "levels.assignment=fixed", "levels.fit=widths")
    assert refusal(load_fitted, PLAIN, *settings, "levels.budgets={a: 1, c: 0.01}") == (
        "levels.fit: even the narrowest model exceeds the budget of level c; raise its budget, or exclude its clients by "
        "levels.idle. Received: levels.budgets.c=0.01"
    )
    idle = load_fitted(PLAIN, *settings, "levels.budgets={a: 1, c: 0.01}", "levels.idle=[c]", "round.clients=2")
    assert idle.levels.widths == recipe.loads(PLAIN).levels.widths and memory.over_budget(costs(idle)) == {}


def test_levels_over_their_budgets_are_named_with_their_memory():
    fit_recipe = load_fitted(PLAIN, LEVELS, methods.EVEN, "levels.budgets={a: 1, b: 0.99, c: 1/2}")
    assert memory.over_budget(costs(fit_recipe)) == {"c": pytest.approx(2.0)}
    distilled = ("client.stages={name: nested, distill: true}", "client.coupling=self_distillation")
    taught = load_fitted(PLAIN, LEVELS, "levels.budgets={a: 1}", *distilled)
    assert memory.over_budget(costs(taught)) == {"a": pytest.approx(2.0)}


def test_process_is_built_at_the_fitted_widths(eager):
    settings = (LEVELS, "levels.budgets={a: 1, b: 1, c: 1/4}", "levels.fit=widths")
    process = tiny.process(PLAIN, *settings)
    assert process.recipe.levels.widths == load_fitted(PLAIN, *settings).levels.widths
    state, _ = process.next(process.initialize())
    assert state.round == 1
