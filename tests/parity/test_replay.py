"""Replay of the HeteroFL authors' vectors; a wrong number must be reported."""

from pathlib import Path

import numpy as np
import pytest
import replay

OPTIMIZE_GRAPHS = True
SMALL = Path(__file__).parent / "small"
IMAGE_STAGES = {"cut", "loss", "norm", "client", "merge", "round", "unchanged", "sbn", "global", "local"}


@pytest.mark.long
def test_image_vectors_agree():
    gaps = replay.replay_file(SMALL / "conv_bn.npz", "float64", "stacked")
    assert set(gaps) == IMAGE_STAGES - {"cut"}
    assert replay.within("float64", gaps, double_passes=False) == []
    assert gaps["unchanged"] == 0.0


def test_image_vectors_agree_in_float32_sequentially(eager):
    gaps = replay.replay_file(SMALL / "conv_bn.npz", "float32", "sequential")
    assert set(gaps) == IMAGE_STAGES
    assert replay.within("float32", gaps, double_passes=False) == []
    assert gaps["unchanged"] == 0.0


@pytest.mark.long
def test_text_vectors_agree(eager):
    """Runs eagerly; `test_engines` compares compiled rounds of text."""
    gaps = replay.replay_file(SMALL / "transformer.npz", "float64", "stacked")
    assert set(gaps) == IMAGE_STAGES - {"cut", "sbn", "local"}
    assert max(gaps.values()) < 1e-12
    assert gaps["unchanged"] == 0.0


@pytest.mark.long
def test_changed_value_is_reported_with_exit_code_1(tmp_path, capsys, eager):
    with np.load(SMALL / "conv_bn.npz") as arrays:
        changed = {name: arrays[name] for name in arrays.files}
    changed["f64/round0/global_after/blocks.5.weight"][0, 0, 1, 1] += 1e-3
    np.savez(tmp_path / "changed.npz", **changed)
    assert replay.main([str(tmp_path), "--precision", "float64", "--engine", "stacked"]) == 1
    output = capsys.readouterr().out
    assert output.startswith("FAIL changed.npz")
    assert "merge 1.0e-03" in output
    assert output.rstrip().endswith("beyond tolerance: merge, round\n1 files, 1 failed")


def test_empty_folder_is_an_error(tmp_path, capsys):
    assert replay.main([str(tmp_path)]) == 2
    assert capsys.readouterr().out == f"{tmp_path}: no .npz file\n"


def test_nan_and_wrong_shapes_exceed_any_tolerance():
    gaps = replay.Gaps()
    gaps.note("loss", [1.0, np.nan], [1.0, 1.0])
    assert replay.within("float32", gaps, double_passes=True) == ["loss"]
    with pytest.raises(SystemExit, match="loss: shape"):
        gaps.note("loss", [1.0], [1.0, 1.0])
