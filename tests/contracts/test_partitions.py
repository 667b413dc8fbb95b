"""Contract of every partition in the package; a new module is tested automatically."""

import numpy as np
import pytest
from contract_cases import shipped

from hetero_tf.base import registry
from hetero_tf.data.partitions import iid
from hetero_tf.testing.data_checks import CLASSES, CLIENTS, TEST, TRAIN, split_labels
from hetero_tf.testing.subject import Subject

OPTIONS = {"file": {"path": "saved.npz"}} | dict.fromkeys(
    ("dirichlet", "dirichlet_equal", "dirichlet_turns"), {"alpha": 0.5}
)


@pytest.fixture(autouse=True)
def saved_split(tmp_path, monkeypatch):
    """A split for `file` in the working folder."""
    monkeypatch.chdir(tmp_path)
    iid.split(TRAIN, TEST, CLASSES, np.random.default_rng(0), clients=CLIENTS).save(tmp_path / "saved.npz")


@shipped("partitions", OPTIONS)
def test_a_plugin_keeps_the_contract(check):
    check()


@pytest.mark.parametrize("name", registry.names("partitions"))
def test_a_saved_split_is_the_same_split_and_random_ones_support_validation_examples(name, tmp_path):
    partition = split_labels(Subject("partitions", name, OPTIONS.get(name, {})))
    partition.save(tmp_path / "again.npz")
    again = split_labels(Subject("partitions", "file", {"path": "again.npz"}))
    assert again.sha256 == partition.sha256
    assert again.summary(TRAIN) == partition.summary(TRAIN)
    assert name == "file" or "held_out" in registry.options("partitions", name)


@pytest.mark.parametrize("name", ["iid", "labels", "quantity"])
def test_validation_examples_do_not_change_the_test_split(name):
    whole, partition = (split_labels(Subject("partitions", name), held_out=share) for share in (0.0, 0.3))
    assert partition.test.ids.tolist() == whole.test.ids.tolist()
