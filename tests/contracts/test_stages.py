"""Divisions into stages."""

import pytest

from hetero_tf.base import registry
from hetero_tf.methods.stages import LevelSpec
from hetero_tf.testing.cut_checks import COSTS, EXITS, OUTLINE, TRUNK


def level(width, depth, budget=None):
    return LevelSpec("a", width, depth, budget, tolerance=0.0)


def test_stages_of_drawn_widths_count_from_the_narrowest():
    for distill, routes in ((False, 1), (True, 2)):
        stages = registry.find("stages", "nested").divide(OUTLINE, level(0.5, 4), shares=COSTS, distill=distill)
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
        stages = divide(OUTLINE, level(1.0, 4, budget), shares=COSTS, exit=exit)
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
            divide(OUTLINE, level(1.0, 4, 0.4), shares=COSTS, exit=exit, stem=stem) for stem in ("first", "every")
        )
        assert len(every) == len(first) == 3 and every[0] == first[0]
        assert [stage.trained for stage in every] == [stage.trained | {"0"} for stage in first]
        assert [stage.routes[0].frozen for stage in every] == [0, 0, 0]
        assert [stage.routes[0].units for stage in every] == [stage.routes[0].units for stage in first]


def test_number_of_peers_follows_the_budget():
    divide = registry.find("stages", "blockwise").divide
    for budget, networks, expected in ((None, 1, 1), (1, 1, 1), (1.3, 1, 1), (1.4, 2, 3), (2, 2, 1), (3, 3, 1)):
        stages = divide(OUTLINE, level(1.0, 4, budget), shares=COSTS, peers=True)
        assert len(stages) == expected
        for stage in stages:
            assert [route.network for route in stage.routes] == list(range(networks))
            assert stage.trained == set(TRUNK)
    last = divide(OUTLINE, level(1.0, 4, 1.4), shares=COSTS, peers=True)[-1]
    assert last.trained_of_peers == ({"5", "7"},) and [route.frozen for route in last.routes] == [0, 3]
