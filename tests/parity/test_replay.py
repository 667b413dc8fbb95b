"""Replay of the recorded files: all pass, and wrong, missing or unread numbers are reported."""

import functools
import json
import re
from pathlib import Path

import numpy as np
import pytest
import recorded_selections
import recorded_splits
import replay
from recorded_file import NOT_COMPARED, Gaps

from hetero_tf.data.partitions import dirichlet_turns

OPTIMIZE_GRAPHS = True
SMALL = Path(__file__).parent / "small"
FILES = {path.stem: path for path in sorted(SMALL.rglob("*.npz"))}
# One file of each module runs compiled rounds. The other files would take longer without testing more, so they run
# eagerly, as the quick ones do.
COMPILED = ("conv_bn", "fedepth_link", "fedrolex_roll", "fjord", "splitmix_norms")
SEQUENTIAL = {"precisions": ["float32"], "engines": ["sequential"]}
DOUBLE = {"precisions": ["float64"]}
STACKED = DOUBLE | {"engines": ["stacked"]}
# Takes nine seconds, as long as all other quick files together.
RUNS = [pytest.param("conv_bn", False, SEQUENTIAL, marks=pytest.mark.long), ("fjord", False, {})]
RUNS += [(path.stem, False, {}) for path in sorted((SMALL / "async").iterdir())]
LONG = [path.stem for path in FILES.values() if path.parent.name != "async"]
RUNS += [pytest.param(name, name in COMPILED, DOUBLE, marks=pytest.mark.long) for name in LONG]


@pytest.fixture
def few_draws(monkeypatch):
    draw = functools.partial(recorded_selections._draw_shares, draws=500)
    monkeypatch.setattr(recorded_selections, "_draw_shares", draw)


@pytest.mark.parametrize(("name", "is_compiled", "runs"), RUNS)
def test_recorded_files_are_replayed(name, is_compiled, runs, request, few_draws):
    """The module of each method rejects a file with fewer stages than it expects."""
    if not is_compiled and FILES[name].parent.name != "async":
        request.getfixturevalue("eager")
    stages = replay.replay_file(FILES[name], **runs)
    assert stages and [row for row in stages if not row[1] <= row[2]] == []
    if FILES[name].parent.name == "methods":
        assert max(gap for _, gap, *_ in stages) < 1e-12


def rewritten(folder, name, change):
    """Copy a small file to a folder, after `change` has edited its `{name: array}`."""
    with np.load(FILES[name]) as arrays:
        arrays_by_name = {key: np.array(arrays[key], order="C") for key in arrays.files}
    change(arrays_by_name)
    np.savez(folder / f"{name}.npz", **arrays_by_name)
    return folder / f"{name}.npz"


def change(arrays, *names):
    """Change some arrays by one, and numbers a little and not all alike: a changed bias has equally changed logits."""
    for name in names:
        value = arrays[name]
        step = np.linspace(1e-6, 2e-6, value.size).reshape(value.shape) * np.maximum(1, np.abs(value))
        arrays[name] = ~value if value.dtype.kind == "b" else value + (step if value.dtype.kind == "f" else 1)


def last_results(arrays):
    """Names of the last result of each kind and of the head that weighs FeDepth's exits; of all arrays of arrivals."""
    names = [name for name in arrays if name.startswith("f64/") and not NOT_COMPARED.search(name)]
    # Statistics first, since FjORD's clients do not merge them. A kind is a name without numbers and its variable.
    names.sort(key=lambda name: "running_" not in name)
    last = {re.sub(r"\d+|/[^/]*\..*", "", name): name for name in names}.values()
    selected = {*last, "f64/round0/global_after/linear1.bias"} & {*names}
    return selected or [name for name in arrays if not re.match("meta|data|init|events|arrivals/start_index", name)]


# Stages that fail if the results of a file are changed.
STAGES = {
    "fedbuff_poly_momentum": "after arrivals change compared flush loss momentum refused starts step values weight",
    "conv_bn": "client global local loss merge norm round sbn",
    "depthfl": "client compared exits logits loss memory prediction round server",
    "fedepth_heads": "client compared exits logits loss round stage",
    "fedepth_link": "client compared logits loss round stage",
    "fedepth_mkd": "client compared logits loss peer round stage",
    "fedepth_partial": "client compared logits loss round",
    "fedrolex_random": "client compared global local loss merge norm round",
    "fedrolex_roll": "client compared global local loss merge norm round",
    "fjord": "client compared loss predict round",
    "fjord_kd": "client compared loss predict round",
    "splitmix_norms": "client compared logits loss personal round",
    "splitmix_resnet": "accuracy client compared logits loss round",
    "transformer": "client global loss merge norm perplexity round",
}


@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.long] * (name in LONG)) for name in STAGES])
def test_changed_results_fail_in_every_stage(tmp_path, eager, name):
    def change_results(arrays):
        change(arrays, *last_results(arrays))
        arrays["more"] = np.zeros(1)

    path, runs = rewritten(tmp_path, name, change_results), STACKED if name in LONG else {}
    failed = {
        stage.split()[-1] for stage, gap, tolerance, *_ in replay.replay_file(path, **runs) if not gap <= tolerance
    }
    assert " ".join(sorted(failed)) == STAGES[name]


@pytest.mark.parametrize("name", ["fedscale_availability", "oort_availability", "power_of_choice"])
def test_each_changed_array_of_selections_fails_and_each_removed_one_is_named(tmp_path, capsys, few_draws, name):
    # An input that cancels out, and shares of draws, which have the tolerance of statistics.
    without_effect = re.compile("registered_reward|share/")
    for key in np.load(FILES[name]).keys() - {"meta.json"}:
        changed = rewritten(tmp_path, name, lambda arrays: change(arrays, key))
        assert replay.report(changed, {}) == bool(without_effect.match(key)), key
        lines = capsys.readouterr().out
        assert key != "chosen" or re.search("FAIL .* (ids in sequence|chosen) ", lines)
        assert not replay.report(rewritten(tmp_path, name, lambda arrays: arrays.pop(key)), {})
        assert f"SystemExit: the file lacks {key}\n" in capsys.readouterr().out


def test_public_quirk_is_an_option(monkeypatch):
    options = recorded_selections.oort_options
    monkeypatch.setattr(recorded_selections, "oort_options", lambda meta: {**options(meta), "filled_utility": False})
    stages = replay.replay_file(FILES["oort_availability"])
    assert [stage for stage, gap, tolerance, *_ in stages if not gap <= tolerance] == ["window utility"]


@pytest.mark.parametrize(
    ("missing", "message"),
    [
        ("f64/round0/client1/after/linear.bias", r"client: the file or the result has no \['.*dense/bias'\]"),
        ("f64/round0/client0/loss", "the file lacks f64/round0/client0/loss"),
        pytest.param(
            "f64/round0/global_after/linear.bias", "round: the file or the result has", marks=pytest.mark.long
        ),
        pytest.param(
            "eval/batch0/img", r"partial.npz: f64/eval/\S+ and 0 more results were not", marks=pytest.mark.long
        ),
    ],
)
def test_missing_keys_are_reported(tmp_path, eager, missing, message):
    with pytest.raises(SystemExit, match=message):
        replay.replay_file(rewritten(tmp_path, "fedepth_partial", lambda arrays: arrays.pop(missing)))


def test_a_folder_has_files_of_any_program(tmp_path, capsys):
    assert replay.main([str(tmp_path)]) == 2
    assert capsys.readouterr().out == f"{tmp_path}: no .npz or .json file\n"
    np.savez(tmp_path / "other.npz", **{"meta.json": json.dumps({"method": "other"})})
    (tmp_path / "broken.npz").write_bytes(b"no archive")
    (tmp_path / "packing.json").write_text(json.dumps({"unit_numbering": "1-based", "cases": PACKED}))
    (tmp_path / "splits.json").write_text(json.dumps({"cases": [SHARDS]}))
    assert replay.main([str(tmp_path)]) == 1
    broken, other, *cases, last = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert broken.startswith("FAIL broken.npz") and last == "4 files, 2 failed"
    assert other.startswith("FAIL other.npz") and "the meta data name 'other'; known: heterofl, FedRolex" in other
    assert cases[1] == "ok packing.json whole 0.0e+00 (at most 0e+00) 1,2,3"
    assert cases[-1] == "ok splits.json shards 0.0e+00 (at most 0e+00) labels: train, test, class_table equal"


def test_gaps_report_nan_shapes_missing_and_changed_values():
    gaps = Gaps()
    gaps.note("nan", [1.0, np.nan], [1.0, 1.0])
    gaps.note("shape", [1.0], [1.0, 1.0])
    gaps.note("relative", [5.0, 0.5], [4.0, 0.25], relative="above 1")
    assert gaps == {"nan": np.inf, "shape": np.inf, "relative": 0.25}
    old, recorded = {"a": np.array([1.0, 2.0])}, {"a": np.array([1.0, 3.0])}
    gaps.note_unchanged("unchanged", {"a": np.array([1.0, 5.0])}, recorded, old)
    assert gaps["unchanged"] == 0.0
    gaps.note_unchanged("unchanged", {"a": np.array([1.5, 3.0])}, recorded, old)
    assert gaps["unchanged"] == 0.5


# Recorded from plain loops with the public code's draws: 150 examples of 5 labels.
CASES = {case["name"]: case for case in json.loads((SMALL / "methods" / "splits.json").read_text())["cases"]}
DECK, SHARDS, TURNS = CASES["deck False"], CASES["shards"], CASES["turns 0.6"]
# Packed by hand.
PACKED = [
    {"name": "prefix", "costs": [9, 9, 4, 3, 2, 2], "cap": 6, "skip": [1, 2], "stages": [[3], [4, 5], [6]]},
    {"name": "whole", "costs": [1, 2, 3], "cap": 6, "skip": [], "stages": [[1, 2, 3]]},
    {"name": "late", "costs": [1, 9, 1], "cap": 6, "skip": [], "stages": [[1], [3]], "error": "unit 2 does not fit"},
    {"name": "nothing", "costs": [7, 8], "cap": 6, "skip": [1, 2], "stages": []},
]


def replayed(folder, *cases, **document):
    """(True if equal, detail) of each case."""
    (folder / "cases.json").write_text(json.dumps({"cases": cases, **document}))
    return [(gap == 0.0, detail) for _, gap, _, detail in recorded_splits.replay(folder / "cases.json")]


@pytest.mark.parametrize("block", [2**12, 16])
def test_recorded_splits_are_equal(monkeypatch, tmp_path, block):
    monkeypatch.setattr(dirichlet_turns, "BLOCK", block)
    results = replayed(tmp_path, *CASES.values())
    assert [detail for is_equal, detail in results if not is_equal] == []
    details = [detail for _, detail in results]
    assert details[:2] == ["dirichlet: train equal", "dirichlet_equal: train, test, val equal"]
    assert "class_deck: train, test equal; val skipped: drawn a second time there, so that it overlaps train" in details
    assert details[-1] == "labels: train, test, class_table equal"


def test_exchanged_ids_are_reported(tmp_path):
    changed = []
    for whole in CASES.values():
        if whole["name"] not in ("deck True", "turns 0.0"):
            parts = {"train", "test", "val"} & set(whole) - ({"val"} if whole.get("method_arg") == "pat" else set())
            for part in parts:
                first, *rest = whole[part]
                changed.append((part, whole | {part: [[first[1], first[0], *first[2:]], *rest]}))
    results = replayed(tmp_path, *(case for _, case in changed))
    assert len(changed) > 8
    assert [part for (part, _), (same, detail) in zip(changed, results) if same or f"in {part}" not in detail] == []


def test_unknown_draws_sources_and_labels_fail_and_rejections_match(tmp_path):
    less = [draw for draw in DECK["draws"] if draw[0] != "rng.choice"]
    refused = {name: value for name, value in DECK.items() if name not in ("train", "test", "val", "draws")}
    cases = {
        "class_deck: differs in integers": DECK | {"draws": DECK["draws"] + [["rng.choice", [0]]]},
        "a draw of integers that the public code did not make": DECK | {"draws": less},
        "source 'else': not the draws or keys of a known case": DECK | {"source": "else"},
        "source 'feddc': not the draws or keys of a known case": TURNS | {"seed": 7},
        "differs in labels": SHARDS | {"class_table": [[0, 0]] * 10},
        "class_deck accepts a case that the public code rejects: none": refused | {"error": "none"},
        "class_deck rejects: `per_client` must be in 1..5": refused | {"error": "slots", "clients": 2},
    }
    results = replayed(tmp_path, *cases.values())
    assert [text for text, (_, detail) in zip(cases, results) if text not in detail] == []
    assert [same for same, _ in results] == [False] * 6 + [True]


def test_packing_by_hand_is_equal_and_wrong_packing_is_reported(tmp_path):
    results = replayed(tmp_path, *PACKED, unit_numbering="1-based")
    assert [same for same, _ in results] == [True] * 4
    assert [detail for _, detail in results][:2] == ["skip 1,2; 3 | 4,5 | 6", "1,2,3"]
    assert results[2][1].startswith("rejected: unit 2 needs 9, but the limit is 6; only units before")
    late = {name: value for name, value in PACKED[2].items() if name != "error"}
    wrong = (PACKED[0] | {"skip": [1]}, PACKED[1] | {"error": "too large"}, late)
    results = replayed(tmp_path, *wrong, unit_numbering="1-based")
    expected = ["skip 1,2; 3 | 4,5 | 6, expected skip 1; 3 | 4,5 | 6", "1,2,3, expected an error"]
    assert not any(same for same, _ in results) and [detail for _, detail in results][:2] == expected
    case = {"name": "zero", "costs": [1, 2, 3], "cap": 3, "skip": [], "stages": [[0, 1], [2]]}
    assert replayed(tmp_path, case, unit_numbering="0-based") == [(True, "0,1 | 2")]
