"""Contract of every plug-in of the package, except for layers; a new one is tested automatically."""

from pathlib import Path

import folders
import numpy as np
import pytest
from contract_cases import shipped

from hetero_tf import data
from hetero_tf.base import registry
from hetero_tf.base.errors import InputError
from hetero_tf.data.partitions import iid
from hetero_tf.recipe.schema import Plugin
from hetero_tf.testing import plugin_checks
from hetero_tf.testing.data_checks import CLASSES, CLIENTS, TEST, TRAIN, split_labels
from hetero_tf.testing.subject import Subject

# Options without a default, or those that enable all terms; a list has several sets of options.
OPTIONS = {
    "adapters": {},
    "corrections": {"proximal": {"mu": 0.3}},
    "couplings": {"weighted": {"gamma": 0.5, "from_round": 2}, "mutual": {"floor": 1e-3}},
    "inputs": {},
    "losses": {},
    "masks": {},
    "merges": {"qfedavg": [{"q": 2.0}, {"q": 0.5}], "trimmed_mean": {"share": 0.4}},
    "metrics": {},
    "optimizers": {},
    "partitions": {
        "file": {"path": "saved.npz"},
        **dict.fromkeys(("dirichlet", "dirichlet_equal", "dirichlet_turns"), {"alpha": 0.5}),
    },
    "personalizations": {},
    "policies": {"deadline": {"seconds": 60.0}},
    "schedules": {"steps": {"at": (3, 7)}, "cosine": {"rounds": 20}, "exponential": {"factor": 0.99}},
    "selections": {"power_of_choice": {"candidates": 9}},
    "servers": {},
    "stages": {
        "blockwise": [{}, {"exit": "branch"}, {"peers": True}, {"stem": "every"}],
        "joint": [{}, {"exits": "last"}],
        "nested": [{}, {"distill": True}],
    },
    "submodels": {},
    "tasks": {},
    "updates": {"clip": {"norm": 2.0}},
}
# Loaders whose data cannot be generated quickly: they are tested with their fallback.
STANDS_IN = {"tfds": {"dataset": "mnist", "download": False}}
# `from_python` has no data of its own.
LOADERS = {
    name: STANDS_IN.get(name) or (folders.loader_case(name) or (None, {}))[1]
    for name in registry.names("data")
    if name != "from_python"
}
CHECKS = [check for kind, options in OPTIONS.items() for check in shipped(kind, options).args[1]]


@pytest.fixture(autouse=True)
def saved_split(tmp_path, monkeypatch):
    """A split for `file` in the working folder."""
    monkeypatch.chdir(tmp_path)
    iid.split(TRAIN, TEST, CLASSES, np.random.default_rng(0), clients=CLIENTS).save(tmp_path / "saved.npz")


@pytest.mark.parametrize("check", CHECKS, ids=str)
def test_a_plugin_keeps_the_contract(check):
    check()


@pytest.mark.parametrize("name", registry.names("partitions"))
def test_a_saved_split_is_the_same_split_and_random_ones_support_validation_examples(name, tmp_path):
    partition = split_labels(Subject("partitions", name, OPTIONS["partitions"].get(name, {})))
    partition.save(tmp_path / "again.npz")
    again = split_labels(Subject("partitions", "file", {"path": "again.npz"}))
    assert again.sha256 == partition.sha256
    assert again.summary(TRAIN) == partition.summary(TRAIN)
    assert name == "file" or "held_out" in registry.options("partitions", name)


@pytest.mark.parametrize("name", ["iid", "labels", "quantity"])
def test_validation_examples_do_not_change_the_test_split(name):
    whole, partition = (split_labels(Subject("partitions", name), held_out=share) for share in (0.0, 0.3))
    assert partition.test.ids.tolist() == whole.test.ids.tolist()


@pytest.mark.parametrize(("loader", "options"), LOADERS.items())
def test_a_loader_keeps_the_contract(loader, options, tmp_path):
    if case := folders.loader_case(loader):
        case[0](tmp_path)
    checks = plugin_checks("data", loader, options, data_dir=tmp_path)
    for check in checks[:-1] if loader in STANDS_IN else checks:
        check()


@pytest.mark.parametrize(("loader", "options"), LOADERS.items())
def test_a_missing_folder_is_reported_unless_unused(loader, options):
    try:
        dataset = data.load(Plugin(loader, options), None, Path("/nowhere/at/all"))
    except InputError as error:
        assert "/nowhere/at/all" in str(error)
        assert "\n" not in str(error)
    else:
        assert dataset.stand_in_for is None and not options
