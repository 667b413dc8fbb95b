"""Contract of every division into stages in the package."""

import pytest

from hetero_tf.base import registry
from hetero_tf.methods.stages import LevelSpec, ModelOutline, full_route

# Options that are tested in addition to the defaults; a new module is tested with its defaults.
OPTIONS = {
    "blockwise": ({"exit": "branch"}, {"peers": True}, {"buffered": True}, {"stem": "every"}),
    "joint": ({"exits": "last"},),
    "nested": ({"distill": True},),
}
TRUNK = ("0", "1", "3", "5", "7")
# An exit after every unit of the body.
EXITS = {1: (2, "2"), 2: (3, "4"), 3: (4, "6")}
COSTS = {"0": 0.10, "1": 0.40, "3": 0.25, "5": 0.20, "7": 0.05}
BUDGETS = (None, 0.3, 0.45, 0.7, 1, 2)
CASES = [(name, options) for name in registry.names("stages") for options in ({}, *OPTIONS.get(name, ()))]


@pytest.fixture(params=CASES, ids=lambda case: "-".join([case[0], *map(str, case[1].values())]))
def case(request):
    return request.param


def outline(exits=EXITS):
    return ModelOutline(TRUNK, exits, (1.0, 0.5, 0.25))


def level(width, depth, budget=None):
    return LevelSpec("a", width, depth, budget, tolerance=0.0)


def levels(exits=EXITS):
    """Levels of every width, depth and budget; budgets only occur at full width and depth."""
    deepest = len(exits) + 1
    for width in (1.0, 0.5, 0.25):
        yield from (level(width, depth) for depth in range(1, deepest + 1))
        yield from (level(width, deepest, budget) for budget in BUDGETS[1:])


def divided(case):
    """Every level with its stages, if the division supports the level."""
    name, options = case
    module = registry.find("stages", name)
    for one in levels():
        if name == "blockwise" and one.depth != outline().last:
            continue  # refused by the recipe
        yield one, module.divide(outline(), one, shares=COSTS, **options)


def units_of(route):
    """The units that a route runs, its branches among them."""
    return {*route.units, *(EXITS[number][1] for number in route.exits if number in EXITS)}


def test_stages_cover_the_trunk_except_leading_units(case):
    for level, stages in divided(case):
        assert stages
        level_route, _ = full_route(outline(), level)
        trained = frozenset().union(*(stage.trained for stage in stages))
        body = [unit for unit in level_route.units[1:] if unit != TRUNK[-1]]
        missing = [unit for unit in body if unit not in trained]
        assert missing == body[: len(missing)] and len(missing) < max(len(body), 1)
        assert {level_route.units[0], level_route.units[-1]} <= trained | set(missing)


def test_routes_go_from_the_stem_in_order_to_an_exit_of_the_level(case):
    for level, stages in divided(case):
        level_route, _ = full_route(outline(), level)
        for route in (route for stage in stages for route in stage.routes):
            assert route.units[0] == TRUNK[0]
            assert list(route.units) == sorted(route.units, key=TRUNK.index) and set(route.units) <= set(
                level_route.units
            )
            assert (
                route.exits
                and list(route.exits) == sorted(set(route.exits))
                and set(route.exits) <= set(level_route.exits)
            )
            last = route.exits[-1]
            ends = TRUNK[EXITS[last][0] - 1] if last in EXITS else TRUNK[-1]
            assert route.units[-1] == ends
            assert 0 <= route.frozen < len(route.units) and route.network >= 0
            # Links exist only if the head would not fit otherwise.
            skipped = [unit for unit in TRUNK[1:] if unit not in route.units and unit > route.units[-2]]
            assert route.linked == (bool(skipped) and ends == TRUNK[-1])


def test_widths_are_at_most_that_of_the_level_and_of_the_mix(case):
    for level, stages in divided(case):
        for stage in stages:
            assert all(route.width <= level.width and route.width in outline().widths for route in stage.routes)
            assert stage.routes[-1].width == max(route.width for route in stage.routes)


def test_trained_units_are_on_the_routes_and_not_frozen(case):
    for _, stages in divided(case):
        for stage in stages:
            run = set().union(*(units_of(route) for route in stage.routes))
            assert stage.trained and stage.trained <= run
            for route in stage.routes:
                assert not stage.trained & set(route.units[: route.frozen])


def test_steps_run_all_units_of_a_route_or_all_after_the_buffer(case):
    for _, stages in divided(case):
        for route in (route for stage in stages for route in stage.routes):
            assert route.buffered == (case[1].get("buffered", False) and route.frozen > 0)
            assert (*(route.before.units if route.buffered else ()), *route.stepped) == route.units
            assert len(route.before.units) == route.frozen and route.before.exits == ()


def test_peers_have_the_route_of_the_returned_network(case):
    for _, stages in divided(case):
        for stage in stages:
            returned_routes = [route for route in stage.routes if route.network == 0]
            assert returned_routes
            assert all(
                (route.units, route.exits) == (returned_routes[-1].units, returned_routes[-1].exits)
                for route in stage.routes
            )


def test_a_level_without_exits_or_budget_has_a_stage_with_all_units(case):
    module = registry.find("stages", case[0])
    for width in (1.0, 0.25):
        stages = module.divide(outline({}), level(width, 1), shares=COSTS, **case[1])
        assert all(stage.trained == frozenset(TRUNK) for stage in stages)
        assert stages[-1].routes[-1].units == TRUNK and stages[-1].routes[-1].width == width


def test_a_level_without_a_budget_needs_no_shares(case):
    """Shares are computed only if a level has a budget."""
    one = level(1.0, 4)
    divide = registry.find("stages", case[0]).divide
    assert divide(outline(), one, shares={}, **case[1]) == divide(outline(), one, shares=COSTS, **case[1])


def test_stages_of_drawn_widths_count_from_the_narrowest():
    for distill, routes in ((False, 1), (True, 2)):
        stages = registry.find("stages", "nested").divide(outline(), level(0.5, 4), shares=COSTS, distill=distill)
        assert [stage.routes[0].width for stage in stages] == [0.25, 0.5]
        assert all(
            len(stage.routes) == routes and stage.routes[-1].width == (0.5 if distill else stage.routes[0].width)
            for stage in stages
        )


@pytest.mark.parametrize(
    ("budget", "expected"),
    [
        (0.25, [("3",), ("5",)]),
        (0.4, [("1",), ("3",), ("5",)]),
        (0.45, [("1",), ("3", "5")]),
        (0.65, [("1", "3"), ("5",)]),
        (0.85, [("1", "3", "5")]),
    ],
)
def test_blocks_are_packed_under_the_budget(budget, expected):
    divide = registry.find("stages", "blockwise").divide
    for exit in ("link", "branch"):
        stages = divide(outline(), level(1.0, 4, budget), shares=COSTS, exit=exit)
        assert [tuple(unit for unit in "135" if unit in stage.trained) for stage in stages] == expected
        assert ["0" in stage.trained for stage in stages] == [True] + [False] * (len(stages) - 1)
        assert [stage.routes[0].frozen for stage in stages] == [0] + [
            1 + sum(map(len, expected[:index])) for index in range(1, len(expected))
        ]
        heads = [stage.trained - set("0135") for stage in stages]
        behind = [EXITS[TRUNK.index(units[-1])][1] if exit == "branch" else "7" for units in expected[:-1]]
        assert heads == [frozenset(unit) for unit in [*behind, "7"]]


def test_stem_every_trains_the_stem_in_all_stages_and_freezes_no_unit():
    divide = registry.find("stages", "blockwise").divide
    for exit in ("link", "branch"):
        first, every = (
            divide(outline(), level(1.0, 4, 0.4), shares=COSTS, exit=exit, stem=stem) for stem in ("first", "every")
        )
        assert len(every) == len(first) == 3 and every[0] == first[0]
        assert [stage.trained for stage in every] == [stage.trained | {"0"} for stage in first]
        assert [stage.routes[0].frozen for stage in every] == [0, 0, 0]
        assert [stage.routes[0].units for stage in every] == [stage.routes[0].units for stage in first]


def test_number_of_peers_follows_the_budget():
    divide = registry.find("stages", "blockwise").divide
    for budget, networks, expected in ((None, 1, 1), (1, 1, 1), (1.3, 1, 1), (1.4, 2, 3), (2, 2, 1), (3, 3, 1)):
        stages = divide(outline(), level(1.0, 4, budget), shares=COSTS, peers=True)
        assert len(stages) == expected
        for stage in stages:
            assert [route.network for route in stage.routes] == list(range(networks))
            assert stage.trained == set(TRUNK)
    last = divide(outline(), level(1.0, 4, 1.4), shares=COSTS, peers=True)[-1]
    assert last.trained_of_peers == ({"5", "7"},) and [route.frozen for route in last.routes] == [0, 3]
