"""Vectors of the HeteroFL authors' code, replayed; and the replay itself, which must notice a wrong number."""

from pathlib import Path

import numpy as np
import pytest
import replay

SMALL = Path(__file__).parent / "small"
IMAGE_STAGES = {"cut", "loss", "norm", "client", "merge", "round", "kept", "sbn", "global", "local"}


@pytest.mark.long
def test_image_vectors_agree():
    found = replay.replay_file(SMALL / "conv_bn.npz", "float64", "stacked")
    assert set(found) == IMAGE_STAGES - {"cut"}
    assert replay.within("float64", found, double_passes=False) == []
    assert found["kept"] == 0.0


def test_image_vectors_agree_in_float32_one_by_one(eager):
    found = replay.replay_file(SMALL / "conv_bn.npz", "float32", "sequential")
    assert set(found) == IMAGE_STAGES
    assert replay.within("float32", found, double_passes=False) == []
    assert found["kept"] == 0.0


@pytest.mark.long
def test_text_vectors_agree(eager):
    """Step by step; `test_engines` compares compiled rounds of text."""
    found = replay.replay_file(SMALL / "transformer.npz", "float64", "stacked")
    assert set(found) == IMAGE_STAGES - {"cut", "sbn", "local"}
    assert max(found.values()) < 1e-12
    assert found["kept"] == 0.0


@pytest.mark.long
def test_one_changed_value_is_reported_and_gives_exit_code_1(tmp_path, capsys, eager):
    with np.load(SMALL / "conv_bn.npz") as arrays:
        changed = {name: arrays[name] for name in arrays.files}
    changed["f64/round0/global_after/blocks.5.weight"][0, 0, 1, 1] += 1e-3
    np.savez(tmp_path / "changed.npz", **changed)
    assert replay.main([str(tmp_path), "--precision", "float64", "--engine", "stacked"]) == 1
    told = capsys.readouterr().out
    assert told.startswith("FAIL changed.npz")
    assert "merge 1.0e-03" in told
    assert told.rstrip().endswith("beyond tolerance: merge, round\n1 files, 1 failed")


def test_an_empty_folder_is_an_error(tmp_path, capsys):
    assert replay.main([str(tmp_path)]) == 2
    assert capsys.readouterr().out == f"{tmp_path}: no .npz file\n"


def test_nan_and_wrong_shapes_are_never_within_tolerance():
    found = replay.Gaps()
    found.note("loss", [1.0, np.nan], [1.0, 1.0])
    assert replay.within("float32", found, double_passes=True) == ["loss"]
    with pytest.raises(SystemExit, match="loss: shape"):
        found.note("loss", [1.0], [1.0, 1.0])
