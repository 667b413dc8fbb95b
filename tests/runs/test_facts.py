"""Facts in sealed states about their run are checked, because anyone can seal a folder."""

import numpy as np
import pytest
from refusals import refusal

from hetero_tf.runs import checkpoints, facts

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
    return checkpoints.Checkpoint(4, {"x": np.zeros(1)}, info, "ab")


def test_valid_facts_are_returned_with_round_and_digest():
    assert facts.from_checkpoint(checkpoint_with(GOOD), "c") == {**GOOD, "best_seal": None, "round": 4, "seal": "ab"}
    assert facts.from_checkpoint(checkpoint_with({**GOOD, "best_seal": "cd"}), "c")["best_seal"] == "cd"


@pytest.mark.parametrize("name", GOOD)
def test_missing_fact_is_reported(name):
    info = {key: value for key, value in GOOD.items() if key != name}
    assert refusal(facts.from_checkpoint, checkpoint_with(info), "c") == (
        f"c: round 4 was saved without {name}, by another version of hetero_tf; continue with that version, or "
        "choose another folder by --run_dir"
    )


ODD = {
    "recipe": (5, None, ["a"]),
    "environment": ("x", {}, {**CONDITIONS, "settings": []}, {**CONDITIONS, "cpu": None}),
    "metrics": ("x", {}, {"bytes": "3", "sha256": "00"}, {"bytes": 3, "sha256": 0}, {"bytes": True, "sha256": ""}),
    "last": (1, [1], {"loss": 0.5}, {"round": {"a": 1}}, {"round": -1}, {"round": 1, "loss": "x"}),
    "best": (None, {"round": 1.0}, {"round": 1, "loss": [1]}, {"round": 1, "loss": 10**400}, {"round": 10**300}),
    "totals": (
        7,
        {},
        *({"bytes": value} for value in ("x", None, 1.5, -1, True, 10**300)),
        *({"bytes": 7, "energy": value} for value in ("x", None, -0.5, float("inf"), float("nan"))),
    ),
    "best_seal": (5, ["ab"]),
}


@pytest.mark.parametrize(("name", "value"), [(name, value) for name in ODD for value in ODD[name]])
def test_invalid_facts_are_refused(name, value):
    message = refusal(facts.from_checkpoint, checkpoint_with({**GOOD, name: value}), "c")
    assert message.startswith(f"c: round 4 was not saved by hetero_tf: its `{name}` must be ")
    assert f"; restore the folder from a copy. Received: {name}=" in message and len(message) < 250
