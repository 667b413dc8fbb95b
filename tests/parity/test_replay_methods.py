"""Replay of the methods' vectors: recorded files pass, wrong or missing numbers fail."""

import json
from pathlib import Path

import methods_depthfl
import methods_files
import numpy as np
import pytest
import replay_methods

OPTIMIZE_GRAPHS = True
SMALL = Path(__file__).parent / "small" / "methods"
# One file of each module runs compiled rounds. The other files would take longer without testing more, so they run
# eagerly.
COMPILED = ("fedepth_link", "fedrolex_roll", "fjord", "splitmix_norms")
FILES = sorted(SMALL.glob("*.npz"))
CASES = [pytest.param(SMALL / "fjord.npz", False, id="fjord-eager")]
CASES += [pytest.param(path, path.stem in COMPILED, id=path.stem, marks=pytest.mark.long) for path in FILES]


def rewritten(folder, name, change):
    """Copy a small file to a folder, after `change` has edited its `{name: array}`."""
    with np.load(SMALL / f"{name}.npz") as arrays:
        arrays_by_name = {key: arrays[key] for key in arrays.files}
    change(arrays_by_name)
    np.savez(folder / f"{name}.npz", **arrays_by_name)
    return folder / f"{name}.npz"


def failed(path):
    """Stages of a file that exceed their tolerance."""
    return {stage for stage, good, _ in replay_methods.replay_file(path) if not good}


@pytest.mark.parametrize(("path", "is_compiled"), CASES)
def test_recorded_files_are_replayed(path, is_compiled, request):
    """The module of each method rejects a file with fewer stages than it expects."""
    if not is_compiled:
        request.getfixturevalue("eager")
    lines = replay_methods.replay_file(path)
    assert lines and all(good and float(detail) < 1e-12 for _, good, detail in lines)


@pytest.mark.long
def test_changed_value_is_reported_with_exit_code_1(tmp_path, capsys, eager):
    def change(arrays):
        arrays["f64/round0/global_after/layer2.0.bn1.bn.2.running_mean"][0] += 1e-3

    rewritten(tmp_path, "fjord", change)
    assert replay_methods.main([str(tmp_path)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == "1 files, 1 failed"
    failed = [line.split()[2:] for line in lines if line.startswith("FAIL")]
    assert failed == [["round", "1.0e-03", "beyond", "1e-08"]]


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "keys", "stages"),
    [
        (
            "fedepth_link",
            "round0/client0/loss round0/client1/after/bn9.bias eval/batch0/logits "
            "round0/client0/after_stage1/layer1.0.bn1.running_mean round0/global_after/first_norm.running_var",
            {"loss", "client", "logits", "stage", "round"},
        ),
        (
            "splitmix_resnet",
            "round0/client0/loss round0/client1/after/1.linear.weight round0/global_after/0.conv1.weight "
            "eval/members2/batch0/logits sort/base_acc sort/members1/batch0/logits",
            # The second round starts from the wrong weights.
            {"loss", "client", "round", "logits", "accuracy", "sorted"},
        ),
    ],
)
def test_every_wrong_number_is_reported(tmp_path, eager, name, keys, stages):
    def change(arrays):
        for key in keys.split():
            arrays[f"f64/{key}"] = np.array(arrays[f"f64/{key}"], order="C")
            arrays[f"f64/{key}"].reshape(-1)[0] += 1e-6

    assert failed(rewritten(tmp_path, name, change)) >= stages


@pytest.mark.long
def test_stages_are_compared_where_the_file_records_them(tmp_path, eager):
    """A second round without `after_stage` arrays. Its numbers repeat the first round, so only its other stages fail."""

    def add_round(arrays):
        meta = json.loads(str(arrays["meta.json"]))
        for key in ("users_per_round", "lr_per_round"):
            meta[key] = [*meta[key], meta[key][0]]
        for name in [name for name in arrays if "round0/" in name and "/after_stage" not in name]:
            arrays[name.replace("round0/", "round1/")] = arrays[name]
        arrays["meta.json"] = np.array(json.dumps(meta))

    assert failed(rewritten(tmp_path, "fedepth_link", add_round)) == {"loss", "client", "round"}


@pytest.mark.parametrize(
    ("missing", "message"),
    [
        ("f64/round0/client1/after/linear.bias", r"client: the file or the result has no \['.*dense/bias'\]"),
        ("f64/round0/client0/loss", "the file lacks f64/round0/client0/loss"),
        pytest.param("eval/batch0/img", r"shows .* instead of \[.*'logits', ", marks=pytest.mark.long),
    ],
    ids=["a variable", "a result", "an input"],
)
def test_missing_keys_are_reported(tmp_path, eager, missing, message):
    with pytest.raises(SystemExit, match=message):
        replay_methods.replay_file(rewritten(tmp_path, "fedepth_partial", lambda arrays: arrays.pop(missing)))


def test_unread_results_are_reported():
    file, gaps = methods_files.File(SMALL / "fedepth_partial.npz"), methods_files.Gaps(loss=0.0)
    with pytest.raises(SystemExit, match=r"fedepth_partial.npz: f64/\S+ and \d+ more results were not compared"):
        gaps.check_stages(file, {"loss"})


def test_predicted_depths_are_the_client_depths_and_the_deepest():
    assert methods_depthfl.predicted_depths({"depth": [1, 3, 3], "widths": [4, 5, 6, 7]}) == {1, 3, 4}


def test_unknown_methods_fail(tmp_path, capsys):
    np.savez(tmp_path / "other.npz", **{"meta.json": json.dumps({"method": "other"})})
    assert replay_methods.main([str(tmp_path)]) == 1
    line, last = capsys.readouterr().out.splitlines()
    assert line.startswith("FAIL other.npz") and "the meta data name 'other'; known: FedRolex, FjORD" in line
    assert last == "1 files, 1 failed"


def test_json_files_have_splits_or_packing_and_broken_files_fail(tmp_path, capsys):
    case = {"name": "whole", "costs": [1, 2, 3], "cap": 6, "skip": [], "stages": [[1, 2, 3]]}
    other = case | {"name": "other", "stages": [[1], [2, 3]]}
    splits = {case["name"]: case for case in json.loads((SMALL / "splits.json").read_text())["cases"]}
    (tmp_path / "packing.json").write_text(json.dumps({"unit_numbering": "1-based", "cases": [case, other]}))
    (tmp_path / "splits.json").write_text(json.dumps({"cases": [splits["shards"]]}))
    (tmp_path / "broken.npz").write_bytes(b"no archive")
    assert replay_methods.main([str(tmp_path)]) == 1
    broken, *lines, last = capsys.readouterr().out.splitlines()
    assert broken.startswith("FAIL broken.npz") and last == "3 files, 2 failed"
    assert lines == [
        f"ok   {'packing.json':28} {'whole':20} 1,2,3",
        f"FAIL {'packing.json':28} {'other':20} 1,2,3, expected 1 | 2,3",
        f"ok   {'splits.json':28} {'shards':20} labels: train, test, class_table equal",
    ]


def test_empty_folder_is_an_error(tmp_path, capsys):
    assert replay_methods.main([str(tmp_path)]) == 2
    assert capsys.readouterr().out == f"{tmp_path}: no .npz or .json file\n"


def test_kernels_have_the_layout_of_their_variables():
    value = np.arange(2 * 3 * 5 * 5).reshape(2, 3, 5, 5)
    assert (methods_files.keras_layout(value, (5, 5, 3, 2))[1, 2, 2, 0] == value[0, 2, 1, 2]).all()
    depthwise = value.reshape(6, 1, 5, 5)
    assert (methods_files.keras_layout(depthwise, (5, 5, 6, 1))[1, 2, 4, 0] == depthwise[4, 0, 1, 2]).all()
    with pytest.raises(SystemExit, match="an array of shape .* does not fit a variable of shape"):
        methods_files.keras_layout(value, (5, 5, 3, 4))
    # Two channels of a 2x3 map, flattened channel by channel, read position by position.
    flat = methods_files.channels_last(np.arange(12).reshape(1, 12), 2, 3)
    assert flat.tolist() == [[0, 6, 1, 7, 2, 8, 3, 9, 4, 10, 5, 11]]


def test_gaps_report_nan_shapes_missing_and_changed_values():
    gaps = methods_files.Gaps()
    gaps.note("nan", [1.0, np.nan], [1.0, 1.0])
    assert gaps["nan"] == np.inf
    with pytest.raises(SystemExit, match="loss: shape"):
        gaps.note("loss", [1.0], [1.0, 1.0])
    for actual, expected in (({"a": 1.0}, {"a": 1.0, "b": 1.0}), ({"a": 1.0, "b": 1.0}, {"a": 1.0})):
        with pytest.raises(SystemExit, match=r"round: the file or the result has no \['b'\]"):
            gaps.note("round", actual, expected)
    gaps.note("round", {"a": 1.0, "b": 2.0}, {"a": 1.0}, some=True)
    old, covered = {"a": np.array([1.0, 2.0])}, {"a": np.array([False, True])}
    gaps.note_unchanged("unchanged", {"a": np.array([1.0, 5.0])}, old, covered)
    assert gaps["unchanged"] == 0.0
    gaps.note_unchanged("unchanged", {"a": np.array([1.5, 5.0])}, old, covered)
    assert gaps["unchanged"] == 0.5
