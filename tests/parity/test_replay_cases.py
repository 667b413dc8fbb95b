"""Replays of recorded splits and packing; each mistake must be reported."""

import copy
import json
from pathlib import Path

import pytest
import replay_cases

from hetero_tf.data.partitions import dirichlet_turns

# Recorded from plain loops with the public code's draws: 150 examples of 5 labels.
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
def test_recorded_splits_are_equal(monkeypatch, block):
    monkeypatch.setattr(dirichlet_turns, "BLOCK", block)
    results = replay_cases.replay_partitions(SPLITS)
    assert [(name, good, detail) for name, good, detail in results if not good] == []
    detail = [detail for *_, detail in results]
    assert detail[0] == "dirichlet: train equal" and detail[1] == "dirichlet_equal: train, test, val equal"
    assert detail[2] == (
        "class_deck: train, test equal; val skipped: drawn a second time there, so that it overlaps train"
    )
    assert detail[-1] == "labels: train, test, class_table equal"


def swapped(lists):
    """Return the lists with two exchanged ids in the first one."""
    first = lists[0]
    return [[first[1], first[0], *first[2:]], *lists[1:]]


@pytest.mark.parametrize("whole", [case for case in CASES.values() if case["name"] not in ("deck True", "turns 0.0")])
def test_exchanged_ids_are_reported(tmp_path, whole):
    for part in {"train", "test", "val"} & set(whole) - ({"val"} if whole.get("method_arg") == "pat" else set()):
        ((_, good, detail),) = replayed(tmp_path, whole | {part: swapped(whole[part])})
        assert not good
        assert f"differs in {part}" in detail


def test_unknown_draws_and_sources_fail(tmp_path):
    whole = DECK
    more = whole["draws"] + [["rng.choice", [0]]]
    assert replayed(tmp_path, whole | {"draws": more})[0][1:] == (False, "class_deck: differs in integers")
    less = [draw for draw in whole["draws"] if draw[0] != "rng.choice"]
    assert "a draw of integers that the public code did not make" in replayed(tmp_path, whole | {"draws": less})[0][2]
    results = replayed(tmp_path, whole | {"source": "else"}, TURNS | {"seed": 7})
    assert [(good, detail.split(": ")[0]) for _, good, detail in results] == [
        (False, "source 'else'"),
        (False, "source 'feddc'"),
    ]
    assert all("not the draws or keys of a known case" in detail for *_, detail in results)


def test_rejected_cases_match_the_public_code(tmp_path):
    refused = {name: value for name, value in DECK.items() if name not in ("train", "test", "val", "draws")}
    results = replayed(tmp_path, refused | {"error": "slots", "clients": 2}, refused | {"error": "none"})
    assert results[0][1] and results[0][2].startswith("class_deck rejects: `per_client` must be in 1..5")
    assert results[1][1:] == (False, "class_deck accepts a case that the public code rejects: none")


def test_wrong_labels_are_reported(tmp_path):
    assert "differs in labels" in replayed(tmp_path, SHARDS | {"class_table": [[0, 0]] * 10})[0][2]


def test_handmade_packing_is_equal(tmp_path):
    results = packed(tmp_path, PACKING)
    assert [(name, good) for name, good, _ in results] == [(case["name"], True) for case in PACKING["cases"]]
    assert [detail for *_, detail in results][:2] == ["skip 1,2; 3 | 4,5 | 6", "1,2,3"]
    assert results[2][2].startswith("rejected: unit 2 needs 9, but the limit is 6; only units before")


def test_wrong_packing_is_reported(tmp_path):
    wrong = copy.deepcopy(PACKING)
    wrong["cases"][0]["skip"] = [1]
    wrong["cases"][1]["error"] = "too large"
    del wrong["cases"][2]["error"]
    results = packed(tmp_path, wrong)
    assert [good for _, good, _ in results] == [False, False, False, True]
    assert results[0][2] == "skip 1,2; 3 | 4,5 | 6, expected skip 1; 3 | 4,5 | 6"
    assert results[1][2] == "1,2,3, expected an error"


def test_unit_numbers_may_start_at_0(tmp_path):
    case = {"name": "zero", "costs": [1, 2, 3], "cap": 3, "skip": [], "stages": [[0, 1], [2]]}
    assert packed(tmp_path, {"unit_numbering": "0-based", "cases": [case]}) == [("zero", True, "0,1 | 2")]
