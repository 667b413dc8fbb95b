"""Cases of splits, written as the public code draws them, and of packing; their replay must notice mistakes."""

import copy
import json
from pathlib import Path

import pytest
import replay_cases

from hetero_tf.partitions import dirichlet_turns

# Recorded from plain loops that draw as the public code does: 150 examples of 5 labels.
SPLITS = Path(__file__).parent / "small" / "methods" / "splits.json"
CASES = {case["name"]: case for case in json.loads(SPLITS.read_text())["cases"]}
DECK, SHARDS, TURNS = CASES["deck False"], CASES["shards"], CASES["turns 0.6"]

# Packed by hand.
PACKING = {
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


def replayed(folder, *cases):
    path = folder / "cases.json"
    path.write_text(json.dumps({"cases": cases}))
    return replay_cases.replay_partitions(path)


def packed(folder, cases):
    path = folder / "cases.json"
    path.write_text(json.dumps(cases))
    return replay_cases.replay_packing(path)


@pytest.mark.parametrize("block", [2**12, 16])
def test_recorded_splits_are_replayed_list_by_list(monkeypatch, block):
    monkeypatch.setattr(dirichlet_turns, "BLOCK", block)
    found = replay_cases.replay_partitions(SPLITS)
    assert [(name, good, told) for name, good, told in found if not good] == []
    told = [told for *_, told in found]
    assert told[0] == "dirichlet: train equal" and told[1] == "dirichlet_equal: train, test, val equal"
    assert told[2] == (
        "class_deck: train, test equal; val skipped: drawn a second time there, so that it overlaps train"
    )
    assert told[-1] == "labels: train, test, class_table equal"


def swapped(lists):
    """The same lists with two ids of the first one exchanged."""
    first = lists[0]
    return [[first[1], first[0], *first[2:]], *lists[1:]]


@pytest.mark.parametrize("whole", [case for case in CASES.values() if case["name"] not in ("deck True", "turns 0.0")])
def test_one_exchange_of_two_ids_is_noticed(tmp_path, whole):
    for part in {"train", "test", "val"} & set(whole) - ({"val"} if whole.get("method_arg") == "pat" else set()):
        ((_, good, told),) = replayed(tmp_path, whole | {part: swapped(whole[part])})
        assert not good
        assert f"differs in {part}" in told


def test_other_draws_and_sources_are_failures(tmp_path):
    whole = DECK
    more = whole["draws"] + [["rng.choice", [0]]]
    assert replayed(tmp_path, whole | {"draws": more})[0][1:] == (False, "class_deck: differs in integers")
    less = [draw for draw in whole["draws"] if draw[0] != "rng.choice"]
    assert "a draw of integers that the public code did not make" in replayed(tmp_path, whole | {"draws": less})[0][2]
    found = replayed(tmp_path, whole | {"source": "else"}, TURNS | {"seed": 7})
    assert [(good, told.split(": ")[0]) for _, good, told in found] == [
        (False, "source 'else'"),
        (False, "source 'feddc'"),
    ]
    assert all("not the draws or keys of a known case" in told for *_, told in found)


def test_refusals_must_be_shared(tmp_path):
    refused = {name: value for name, value in DECK.items() if name not in ("train", "test", "val", "draws")}
    found = replayed(tmp_path, refused | {"error": "slots", "clients": 2}, refused | {"error": "none"})
    assert found[0][1] and found[0][2].startswith("class_deck refuses: `per_client` must be in 1..5")
    assert found[1][1:] == (False, "class_deck takes what the public code refuses: none")


def test_other_labels_are_noticed(tmp_path):
    assert "differs in labels" in replayed(tmp_path, SHARDS | {"class_table": [[0, 0]] * 10})[0][2]


def test_cases_by_hand_come_out(tmp_path):
    found = packed(tmp_path, PACKING)
    assert [(name, good) for name, good, _ in found] == [(case["name"], True) for case in PACKING["cases"]]
    assert [detail for *_, detail in found][:2] == ["skip 1,2; 3 | 4,5 | 6", "1,2,3"]
    assert found[2][2].startswith("refused: unit 2 takes 9 and the client can hold 6; only units before")


def test_a_wrong_case_is_told(tmp_path):
    wrong = copy.deepcopy(PACKING)
    wrong["cases"][0]["skip"] = [1]
    wrong["cases"][1]["error"] = "too large"
    del wrong["cases"][2]["error"]
    found = packed(tmp_path, wrong)
    assert [good for _, good, _ in found] == [False, False, False, True]
    assert found[0][2] == "skip 1,2; 3 | 4,5 | 6, expected skip 1; 3 | 4,5 | 6"
    assert found[1][2] == "1,2,3, expected a refusal"


def test_units_may_count_from_0(tmp_path):
    case = {"name": "zero", "costs": [1, 2, 3], "cap": 3, "skip": [], "stages": [[0, 1], [2]]}
    assert packed(tmp_path, {"unit_numbering": "0-based", "cases": [case]}) == [("zero", True, "0,1 | 2")]
