"""What every way of splitting keeps, found by listing the package: a new module is tested before it has tests."""

import inspect

import numpy as np
import pytest

from hetero_tf import registry
from hetero_tf.errors import BadInput
from hetero_tf.partitions import iid
from hetero_tf.partitions.partition import Partition
from hetero_tf.partitions.shares import Shares

CLIENTS, CLASSES = 20, 10
TRAIN = np.random.default_rng(0).integers(0, CLASSES, 1000).astype(np.int32)
TEST = np.random.default_rng(1).integers(0, CLASSES, 300).astype(np.int32)


@pytest.fixture(params=registry.names("partitions"))
def way(request, tmp_path):
    """`rng -> Partition` of one module; options without a default are given here."""
    given = {"file": {"path": str(tmp_path / "saved.npz")}}
    iid.split(TRAIN, TEST, CLASSES, np.random.default_rng(0), clients=CLIENTS).save(tmp_path / "saved.npz")
    split = registry.find("partitions", request.param).split

    def run(rng, train=TRAIN, test=TEST, clients=CLIENTS):
        return split(train, test, CLASSES, rng, clients=clients, **given.get(request.param, {}))

    run.name, run.function = request.param, split
    return run


def test_signature_and_documented_options(way):
    parameters = inspect.signature(way.function).parameters
    assert [name for name, one in parameters.items() if one.kind is not one.KEYWORD_ONLY] == [
        "train_labels", "test_labels", "classes", "rng"]
    options = registry.options("partitions", way.name)
    assert options["clients"].required
    assert {name for name, one in parameters.items() if one.kind is one.KEYWORD_ONLY} == set(options)
    assert all(option.doc and option.type for option in options.values())


def test_every_client_gets_examples_of_its_labels(way):
    found = way(np.random.default_rng(2))
    assert isinstance(found, Partition)
    assert found.label_mask.shape == (CLIENTS, CLASSES)
    for ids, labels in ((found.train, TRAIN), (found.test, TEST)):
        assert isinstance(ids, Shares)
        everything = ids.ids
        assert everything.max() < len(labels)
        assert len(np.unique(everything)) == len(everything)
    for client, own in enumerate(found.train):
        assert own.size > 0
        assert found.label_mask[client, TRAIN[own]].all()
    # More than a token share of the data is handed out.
    assert found.summary()["train_used"] >= len(TRAIN) // 2


def test_equal_generators_give_equal_splits_and_inputs_stay(way):
    before = TRAIN.copy(), TEST.copy()
    assert way(np.random.default_rng(3)).sha256 == way(np.random.default_rng(3)).sha256
    assert (before[0] == TRAIN).all()
    assert (before[1] == TEST).all()


def test_more_clients_than_examples_are_refused(way):
    with pytest.raises(BadInput, match="`clients` must .* Received: clients=1001"):
        way(np.random.default_rng(0), clients=1001)


def test_text_is_split_or_refused_in_a_sentence(way):
    rows = np.random.default_rng(4).integers(0, CLASSES, (60, 7)).astype(np.int32)
    try:
        found = way(np.random.default_rng(5), train=rows, test=rows)
    except BadInput as error:
        assert "\n" not in str(error)
        assert len(str(error)) > 30
    else:
        assert all(own.size == 0 for own in found.test)
        for client, own in enumerate(found.train):
            assert set(rows[own].reshape(-1)) == set(np.flatnonzero(found.label_mask[client]))
