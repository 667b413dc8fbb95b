"""Training loads of levels under budgets, as JSON and as tables, from plain numbers."""

import dataclasses
import json
from fractions import Fraction

import pytest

from hetero_tf.reports.describe.load_tables import to_json, to_text
from hetero_tf.reports.describe.loads import LevelLoad, Loads, StageLoad, round_totals

MIB = 2**20
PARTS = (StageLoad(("1", "2"), 3 * MIB, 0), StageLoad(("3",), 2.5 * MIB, 0))
WHOLE, UNIT = (StageLoad(("0", "1", "2", "3"), 24 * MIB, 0),), (StageLoad(("0",), 6 * MIB, 0),)


def work(clients, down, up, flops):
    return {"clients": clients, "bytes_down": down, "bytes_up": up, "train_flops": flops}


STAGED = LevelLoad("e", Fraction(1, 4), "2 stages", ("0",), PARTS, **work(1.5, 100, 90, 1000))
JOINT = LevelLoad("a", Fraction(2), "2 models", (), WHOLE, **work(0.5, 200, 200, 4000))
FREE = LevelLoad("b", None, "width 0.5", (), UNIT, **work(2, 1, 1, 10))


def described(*levels):
    return Loads(whole=12 * MIB, batch=32, measure="memory", tolerance=0.05, levels=levels)


def test_largest_stage_is_compared_with_the_budget():
    loads = described(STAGED, JOINT, FREE)
    assert [load.estimate / MIB for load in loads.levels] == [3, 24, 6]
    assert [loads.of_budget(load) for load in loads.levels] == [1.0, 1.0, None]


@pytest.mark.parametrize(("memory", "over"), [(3.0, False), (3.15, False), (3.16, True)])
def test_exceeding_the_tolerance_is_over(memory, over):
    load = dataclasses.replace(STAGED, parts=(StageLoad(("1",), memory * MIB, 0),))
    assert described(load).is_over(load) is over
    assert ("OVER" in to_text(described(load))) is over


def test_idle_clients_are_never_over():
    idle = dataclasses.replace(STAGED, parts=WHOLE, clients=0.0, trains="takes no part")
    assert described(STAGED, idle).of_budget(idle) > 2 and not described(STAGED, idle).is_over(idle)
    assert "takes no part" in to_text(described(STAGED, idle)) and "OVER" not in to_text(described(STAGED, idle))


def test_round_totals_are_expectations_over_the_mix():
    assert round_totals(described(STAGED, JOINT)) == work(2.0, 250.0, 235.0, 3500.0)


def test_json_is_plain_and_complete():
    result = to_json(described(STAGED, FREE))
    assert json.loads(json.dumps(result)) == result
    assert result["levels"]["e"] == {
        "budget": "1/4",
        "trains": "2 stages",
        "skipped": ["0"],
        "parts": [
            {"units": ["1", "2"], "held": 3 * MIB, "buffer": 0},
            {"units": ["3"], "held": 2.5 * MIB, "buffer": 0},
        ],
        "estimate": 3 * MIB,
        "of_budget": 1.0,
        "over": False,
        **work(1.5, 100, 90, 1000),
    }
    assert [result["levels"]["b"][name] for name in ("budget", "of_budget", "over")] == [None, None, False]
    totals = round_totals(described(STAGED, FREE))
    del result["levels"]
    assert result == {"whole": 12 * MIB, "batch": 32, "measure": "memory", "tolerance": 0.05, "round": totals}


def test_text_shows_levels_stages_and_totals():
    levels, stages, notes = to_text(described(STAGED, JOINT, FREE)).split("\n\n")
    assert levels.splitlines() == [
        "level  budget  budget MiB     trains  left out  estimate MiB  of budget",
        "e         1/4        3.00   2 stages         0          3.00    100.0 %",
        "a           2       24.00   2 models         -         24.00    100.0 %",
        "b           -           -  width 0.5         -          6.00          -",
    ]
    assert stages.splitlines() == [
        "level  stage   units   MiB",
        "e          1  1 to 2  3.00",
        "e          2       3  2.50",
    ]
    assert notes == (
        "full model: 12.00 MiB of training memory (FeDepth's convention, batches of 32). Budgets are shares of it; 5 % "
        "more is allowed.\n"
        "a round of 4 clients: 252 bytes down, 237 bytes up, 3520 FLOPs of training, expected."
    )


def test_text_shows_buffers_if_any():
    load = dataclasses.replace(STAGED, parts=(STAGED.parts[0], StageLoad(("3",), 2.5 * MIB, 1.5 * MIB)))
    stages = to_text(described(load)).split("\n\n")[1]
    assert stages.splitlines() == [
        "level  stage   units   MiB  buffer MiB",
        "e          1  1 to 2  3.00           -",
        "e          2       3  2.50        1.50",
    ]


def test_stage_table_needs_stages():
    assert to_text(described(JOINT)).count("\n\n") == 1


def test_text_names_the_measure():
    text = to_text(dataclasses.replace(described(JOINT), measure="multiply_adds"))
    assert "budget million multiply-adds" in text.splitlines()[0]
    assert "full model: 12.58 million multiply-adds for one example, forward. Budgets are shares of it;" in text
