"""The replay of the methods' vectors: files made by plain loops come out, a wrong number does not."""

import json

import made_fedrolex
import made_fjord
import methods_fedrolex
import methods_files
import methods_fjord
import numpy as np
import pytest
import replay_methods

STAGES = {
    "methods_fedrolex": {"loss", "norm", "client", "round", "kept", "global", "local"},
    "methods_fjord": {"loss", "reported", "client", "round", "kept", "predict"},
}


def changed(path, name, value):
    """The file with one array changed at one place."""
    with np.load(path) as arrays:
        found = {key: arrays[key] for key in arrays.files}
    found[name][(0,) * found[name].ndim] += value
    np.savez(path, **found)


@pytest.mark.parametrize("algo", ["roll", "random"])
def test_fedrolex_of_a_plain_loop_is_replayed(tmp_path, algo):
    made_fedrolex.fedrolex(tmp_path / "made.npz", algo)
    found = methods_fedrolex.replay(tmp_path / "made.npz")
    assert {stage for stage, *_ in found} == STAGES["methods_fedrolex"]
    assert [(stage, gap) for stage, gap, _ in found if gap > 1e-12] == []
    assert {stage: tolerance for stage, _, tolerance in found if tolerance != 1e-8} == {"kept": 0.0}


@pytest.mark.parametrize("kd", [False, True])
def test_fjord_of_a_plain_loop_is_replayed(tmp_path, kd):
    made_fjord.fjord(tmp_path / "made.npz", kd)
    found = methods_fjord.replay(tmp_path / "made.npz")
    assert {stage for stage, *_ in found} == STAGES["methods_fjord"] - ({"reported"} if kd else set())
    assert [(stage, gap) for stage, gap, _ in found if gap > 1e-12] == []


def test_one_changed_value_is_told_and_gives_exit_code_1(tmp_path, capsys):
    made_fjord.fjord(tmp_path / "made.npz", False)
    changed(tmp_path / "made.npz", "f64/round0/global_after/layer2.0.bn1.bn.2.running_mean", 1e-3)
    assert replay_methods.main([str(tmp_path)]) == 1
    told = capsys.readouterr().out.splitlines()
    assert told[-1] == "1 files, 1 failed"
    failed = [line.split()[2:] for line in told if line.startswith("FAIL")]
    assert failed == [["round", "1.0e-03", "beyond", "1e-08"]]


def test_what_is_not_built_is_skipped_and_unknown_methods_fail(tmp_path, capsys):
    for method in ("fiarse", "other"):
        np.savez(tmp_path / f"{method}.npz", **{"meta.json": json.dumps({"method": method})})
    assert replay_methods.main([str(tmp_path)]) == 1
    first, second, last = capsys.readouterr().out.splitlines()
    assert first.startswith("-    fiarse.npz") and "masks of single weights by their magnitude are not built" in first
    assert second.startswith("FAIL other.npz") and "the meta data name 'other'; known: FedRolex, FjORD" in second
    assert last == "2 files, 1 failed"


def test_cases_of_splits_and_packing_are_told_apart_and_broken_files_fail(tmp_path, capsys):
    case = {"name": "whole", "costs": [1, 2, 3], "cap": 6, "skip": [], "stages": [[1, 2, 3]]}
    (tmp_path / "packing.json").write_text(json.dumps({"unit_numbering": "1-based", "cases": [case]}))
    (tmp_path / "broken.npz").write_bytes(b"no archive")
    assert replay_methods.main([str(tmp_path)]) == 1
    broken, packed, last = capsys.readouterr().out.splitlines()
    assert broken.startswith("FAIL broken.npz") and packed.split()[:3] == ["ok", "packing.json", "whole"]
    assert last == "2 files, 1 failed"


def test_an_empty_folder_is_an_error(tmp_path, capsys):
    assert replay_methods.main([str(tmp_path)]) == 2
    assert capsys.readouterr().out == f"{tmp_path}: no .npz or .json file\n"


def test_kernels_come_in_the_layout_of_their_variables():
    value = np.arange(2 * 3 * 5 * 5).reshape(2, 3, 5, 5)
    assert (methods_files.keras_layout(value, (5, 5, 3, 2))[1, 2, 2, 0] == value[0, 2, 1, 2]).all()
    depthwise = value.reshape(6, 1, 5, 5)
    assert (methods_files.keras_layout(depthwise, (5, 5, 6, 1))[1, 2, 4, 0] == depthwise[4, 0, 1, 2]).all()
    with pytest.raises(SystemExit, match="an array of shape .* stands for a variable of shape"):
        methods_files.keras_layout(value, (5, 5, 3, 4))
    # Two channels of a 2x3 map, flattened channel by channel, read position by position.
    flat = methods_files.channels_last(np.arange(12).reshape(1, 12), 2, 3)
    assert flat.tolist() == [[0, 6, 1, 7, 2, 8, 3, 9, 4, 10, 5, 11]]


def test_gaps_know_nan_other_shapes_missing_values_and_what_was_kept():
    gaps = methods_files.Gaps()
    gaps.note("nan", [1.0, np.nan], [1.0, 1.0])
    assert gaps["nan"] == np.inf
    with pytest.raises(SystemExit, match="loss: shape"):
        gaps.note("loss", [1.0], [1.0, 1.0])
    with pytest.raises(SystemExit, match=r"round: nothing stands for \['b'\]"):
        gaps.note("round", {"a": 1.0}, {"a": 1.0, "b": 1.0})
    old, before = {"a": np.array([1.0, 2.0])}, {"a": np.array([1.1, 2.1])}
    gaps.note_same("kept", {"a": np.array([1.0, 5.0])}, old, {"a": np.array([1.1, 7.0])}, before)
    assert gaps["kept"] == 0.0
    gaps.note_same("kept", {"a": np.array([1.5, 5.0])}, old, {"a": np.array([1.1, 7.0])}, before)
    assert gaps["kept"] == 0.5
