"""Splits of plain loops, written as the public code draws them, replayed; the replay must notice mistakes."""

import json
from pathlib import Path

import pytest
import replay_partitions

from hetero_tf.partitions import dirichlet_turns

# Recorded from plain loops that draw as the public code does: 150 examples of 5 labels.
SPLITS = Path(__file__).parent / "small" / "methods" / "splits.json"
CASES = {case["name"]: case for case in json.loads(SPLITS.read_text())["cases"]}
DECK, SHARDS, TURNS = CASES["deck False"], CASES["shards"], CASES["turns 0.6"]


def replayed(folder, *cases):
    path = folder / "cases.json"
    path.write_text(json.dumps({"cases": cases}))
    return replay_partitions.replay_partitions(path)


@pytest.mark.parametrize("block", [2**12, 16])
def test_recorded_splits_are_replayed_list_by_list(monkeypatch, block):
    monkeypatch.setattr(dirichlet_turns, "BLOCK", block)
    found = replay_partitions.replay_partitions(SPLITS)
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


def test_the_program_prints_a_line_for_each_case(tmp_path, capsys):
    assert replayed(tmp_path, SHARDS)[0][1]
    assert replay_partitions.main([str(tmp_path / "cases.json")]) == 0
    assert capsys.readouterr().out == f"ok   {'shards':36} labels: train, test, class_table equal\n"
    replayed(tmp_path, SHARDS | {"class_table": [[0, 0]] * 10})
    assert replay_partitions.main([str(tmp_path / "cases.json")]) == 1
    assert "differs in labels" in capsys.readouterr().out
