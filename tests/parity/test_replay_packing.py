"""The replay of packing cases, which must notice a wrong stage."""

import copy
import json

import pytest
import replay_packing

# Packed by hand.
CASES = {
    "unit_numbering": "1-based",
    "cases": [
        {"name": "prefix", "costs": [9, 9, 4, 3, 2, 2], "cap": 6, "skip": [1, 2], "stages": [[3], [4, 5], [6]]},
        {"name": "whole", "costs": [1, 2, 3], "cap": 6, "skip": [], "stages": [[1, 2, 3]]},
        {
            "name": "late",
            "costs": [1, 9, 1],
            "cap": 6,
            "skip": [],
            "stages": [[1], [3]],
            "error": "unit 2 does not fit",
        },
        {"name": "nothing", "costs": [7, 8], "cap": 6, "skip": [1, 2], "stages": []},
    ],
}


@pytest.fixture
def replayed(tmp_path):
    """`replayed(cases)`: what comes out of a file with these cases."""

    def replay(cases):
        path = tmp_path / "cases.json"
        path.write_text(json.dumps(cases))
        return replay_packing.replay_packing(path)

    return replay


def test_cases_by_hand_come_out(replayed):
    found = replayed(CASES)
    assert [(name, good) for name, good, _ in found] == [(case["name"], True) for case in CASES["cases"]]
    assert [detail for *_, detail in found][:2] == ["skip 1,2; 3 | 4,5 | 6", "1,2,3"]
    assert found[2][2].startswith("refused: unit 2 takes 9 and the client can hold 6; only units before")


def test_a_wrong_case_is_told(replayed):
    wrong = copy.deepcopy(CASES)
    wrong["cases"][0]["skip"] = [1]
    wrong["cases"][1]["error"] = "too large"
    del wrong["cases"][2]["error"]
    found = replayed(wrong)
    assert [good for _, good, _ in found] == [False, False, False, True]
    assert found[0][2] == "skip 1,2; 3 | 4,5 | 6, expected skip 1; 3 | 4,5 | 6"
    assert found[1][2] == "1,2,3, expected a refusal"


def test_units_may_count_from_0(replayed):
    case = {"name": "zero", "costs": [1, 2, 3], "cap": 3, "skip": [], "stages": [[0, 1], [2]]}
    assert replayed({"unit_numbering": "0-based", "cases": [case]}) == [("zero", True, "0,1 | 2")]


def test_the_program_fails_where_a_case_does(tmp_path, capsys):
    path = tmp_path / "cases.json"
    path.write_text(json.dumps(CASES))
    assert replay_packing.main([str(path)]) == 0
    path.write_text(json.dumps(CASES | {"cases": [CASES["cases"][1] | {"stages": [[1], [2, 3]]}]}))
    assert replay_packing.main([str(path)]) == 1
    assert capsys.readouterr().out.splitlines()[-1] == "FAIL whole                    1,2,3, expected 1 | 2,3"
