"""Replays of recorded selections and asynchronous rounds; each mistake must be reported."""

import functools
import json
from pathlib import Path

import numpy as np
import pytest
import replay_async
import replay_selection

# The first selections of three recorded runs of 40 or 60 clients, and asynchronous runs of six clients.
SMALL = Path(__file__).parent / "small" / "async"


def failed(path):
    return [stage for stage, gap, tolerance, _ in replay_async.replay_file(path) if not gap <= tolerance]


@pytest.mark.parametrize("path", sorted(SMALL.glob("*.npz")), ids=lambda path: path.stem)
def test_recorded_results_are_equal(path, monkeypatch):
    monkeypatch.setattr(replay_selection, "_draw_shares", functools.partial(replay_selection._draw_shares, draws=500))
    assert failed(path) == []


@pytest.mark.parametrize(
    ("name", "stages"),
    [
        ("round/scores", ["scores"]),
        ("chosen", ["exploit_util", "ids in sequence"]),
        ("round/exploit_pool", ["exploit_pool"]),
        ("round/fallback", ["fallback"]),
    ],
)
def test_changed_arrays_are_reported(tmp_path, name, stages):
    with np.load(SMALL / "oort_availability.npz") as stored:
        arrays = dict(stored)
    arrays[name].reshape(len(arrays[name]), -1)[-2, 0] += 1
    np.savez(tmp_path / "changed.npz", **arrays, more=np.zeros(1))
    assert failed(tmp_path / "changed.npz") == [*stages, "arrays"]


STAGES = {
    "global/w": "global values",
    "momentum/b": "momentum",
    "arrivals/losses": "loss",
    "arrivals/change/w": "change",
    "arrivals/weight": "weight",
    "arrivals/staleness": "arrivals",
    "starts/version": "starts",
}


def test_changed_arrays_of_asynchronous_rounds_are_reported(tmp_path):
    """Each array is compared with the replay alone, so one file has all changes."""
    with np.load(SMALL / "fedbuff_poly_momentum.npz") as stored:
        arrays = dict(stored)
    for name in STAGES:
        arrays[name].reshape(len(arrays[name]), -1)[-4, 0] += 1
    np.savez(tmp_path / "changed.npz", **arrays, more=np.zeros(1))
    assert {*STAGES.values(), "arrays"} <= set(failed(tmp_path / "changed.npz"))


def test_public_quirk_is_an_option(monkeypatch):
    monkeypatch.setattr(
        replay_selection,
        "oort_options",
        lambda meta, of=replay_selection.oort_options: {**of(meta), "filled_utility": False},
    )
    assert failed(SMALL / "oort_availability.npz") == ["window utility"]


def test_other_files_are_reported(tmp_path, capsys):
    assert replay_async.main([str(tmp_path)]) == 2
    np.savez(tmp_path / "other.npz", **{"meta.json": np.asarray(json.dumps({"kind": "else"}))})
    assert replay_async.main([str(tmp_path)]) == 1
    assert (
        "the meta data name 'else'; known: oort, fedscale, power_of_choice, fedbuff, fedasync"
        in capsys.readouterr().out
    )
