"""Facts in sealed states about their run are checked, because anyone can seal a folder."""

import numpy as np
import pytest
from refusals import refusal

from hetero_tf.runs import checkpoints, facts
from hetero_tf.runs.run_folder import RunFolder

CONDITIONS = {"versions": {}, "cpu": {}, "threads": {}, "settings": {}}
GOOD = {
    "recipe": "name: a\n",
    "environment": CONDITIONS,
    "metrics": {"bytes": 3, "sha256": "00"},
    "last": {"round": 4, "loss": 0.5, "global_loss": None},
    "best": {},
    "totals": {"bytes": 7, "device_seconds": 1.5},
}


def checkpoint_with(info):
    return checkpoints.SavedRound(4, {"x": np.zeros(1)}, info, "ab")


def test_valid_facts_are_returned_with_round_and_digest():
    assert facts.from_checkpoint(checkpoint_with(GOOD), "c") == {**GOOD, "best_seal": None, "round": 4, "seal": "ab"}
    assert facts.from_checkpoint(checkpoint_with({**GOOD, "best_seal": "cd"}), "c")["best_seal"] == "cd"


@pytest.mark.parametrize("name", GOOD)
def test_missing_fact_is_reported(name):
    info = {key: value for key, value in GOOD.items() if key != name}
    assert refusal(facts.from_checkpoint, checkpoint_with(info), "c") == (
        f"c: round 4 was not saved by this version of hetero_tf: {name} is missing; continue with the version that "
        "saved it, restore the folder from a copy, or choose another one by --run_dir"
    )


ODD = {
    "recipe": (None,),
    "environment": ({}, {**CONDITIONS, "settings": []}),
    "metrics": ({"bytes": "3", "sha256": "00"},),
    "last": ({"loss": 0.5}, {"round": -1}, {"round": True}, {"round": 1, "loss": "x"}),
    "best": (None, {"round": 1.0}, {"round": 1, "loss": 10**400}),
    "totals": ({}, *({"bytes": value} for value in (1.5, -1)), {"bytes": 7, "energy": float("nan")}),
    "best_seal": (5,),
}


@pytest.mark.parametrize(("name", "value"), [(name, value) for name in ODD for value in ODD[name]])
def test_invalid_facts_are_refused(name, value):
    message = refusal(facts.from_checkpoint, checkpoint_with({**GOOD, name: value}), "c")
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
    for folder, number in ((run.checkpoints, 3), (run.best, 2)):
        checkpoints.save(folder, number, {"weights/a": np.zeros(2)} if number == 3 else arrays, {}, keep=1)
    weights, source = facts.global_weights(run)
    assert {path: value.tolist() for path, value in weights.items()} == {"a": [1, 2], "b": [1.5, 7]}
    assert source == f"{run.best}, round 2" and weights["b"].dtype == np.float32
