"""Facts in checkpoints about their run are checked, because anyone can write a checkpoint."""

import numpy as np
import pytest
from refusals import refusal
from written_runs import FACTS, save_round

from hetero_tf.runs import checkpoints, facts
from hetero_tf.runs.run_folder import RunFolder


def checkpoint_with(info):
    return checkpoints.SavedRound(4, {"x": np.zeros(1)}, info)


def test_valid_facts_are_returned():
    assert facts.from_checkpoint(checkpoint_with(FACTS), "c") == FACTS


@pytest.mark.parametrize("name", FACTS)
def test_missing_fact_is_reported(name):
    info = {key: value for key, value in FACTS.items() if key != name}
    assert refusal(facts.from_checkpoint, checkpoint_with(info), "c") == (
        f"c: round 4 was not saved by this version of hetero_tf: {name} is missing; continue with the version that "
        "saved it, restore the folder from a copy, or choose another one by --run_dir"
    )


ODD = {
    "recipe": (None,),
    "environment": ({}, {**FACTS["environment"], "settings": []}),
    "metrics": ({"bytes": "3", "sha256": "00"},),
    "last": ({"loss": 0.5}, {"round": -1}, {"round": True}, {"round": 1, "loss": "x"}),
    "best": (None, {"round": 1.0}, {"round": 1, "loss": 10**400}),
    "totals": ({}, *({"bytes": value} for value in (1.5, -1)), {"bytes": 7, "energy": float("nan")}),
}


@pytest.mark.parametrize(("name", "value"), [(name, value) for name in ODD for value in ODD[name]])
def test_invalid_facts_are_refused(name, value):
    message = refusal(facts.from_checkpoint, checkpoint_with({**FACTS, name: value}), "c")
    assert message.startswith(f"c: round 4 was not saved by this version of hetero_tf: {name}")
    assert "must be" in message or "is missing" in message
    assert "; continue with the version that saved it, restore the folder" in message and len(message) < 300


def test_global_weights_are_those_of_the_best_state_and_means_of_personal_units(tmp_path):
    run = RunFolder(tmp_path)
    run.recipe.write_text("name: x")
    arrays = {
        "weights/a": np.float32([1, 2]),
        "clients/personal/b": np.float32([[1, 5], [2, 9]]),
        "server/a": np.ones(2),
    }
    save_round(run, 2, arrays, best=2)
    save_round(run, 3, {"weights/a": np.zeros(2)}, best=2)
    weights, source = facts.global_weights(run)
    assert {path: value.tolist() for path, value in weights.items()} == {"a": [1, 2], "b": [1.5, 7]}
    assert source == f"{run.checkpoints}, round 2" and weights["b"].dtype == np.float32
    newest = checkpoints.path_of(run.checkpoints, 3)
    content = newest.read_bytes()
    newest.write_bytes(b"x")
    assert facts.load_best(run).skipped == (f"skipped {newest}: is damaged: File is not a zip file",)
    newest.write_bytes(content)
    checkpoints.path_of(run.checkpoints, 2).unlink()
    assert "round-000002.npz: could not read: No such file" in refusal(facts.global_weights, run)
    checkpoints.save(run.checkpoints, 2, arrays, {**FACTS, "last": {"round": 2, "loss": 1.0}}, keep=1)
    save_round(run, 3, arrays, best=2)
    assert "round-000002.npz: is not the state that this run saved" in refusal(facts.global_weights, run)
