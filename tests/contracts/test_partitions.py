"""What every way of splitting keeps, found by listing the package: a new module is tested before it has tests."""

import inspect

import numpy as np
import pytest

from hetero_tf.base import registry
from hetero_tf.base.errors import InputError
from hetero_tf.partitions import iid
from hetero_tf.partitions.partition import Partition
from hetero_tf.partitions.shares import ClientExamples

CLIENTS, CLASSES = 20, 10
TRAIN = np.random.default_rng(0).integers(0, CLASSES, 1000).astype(np.int32)
TEST = np.random.default_rng(1).integers(0, CLASSES, 300).astype(np.int32)
OWNERS = (np.arange(1000, dtype=np.int32) * 7) % (CLIENTS + 2)


@pytest.fixture(params=registry.names("partitions"))
def way(request, tmp_path):
    """`rng -> Partition` of one module; options without a default are given here."""
    given = {
        "file": {"path": str(tmp_path / "saved.npz")},
        "dirichlet": {"alpha": 0.5},
        "dirichlet_equal": {"alpha": 0.5},
        "dirichlet_turns": {"alpha": 0.5},
    }
    iid.split(TRAIN, TEST, CLASSES, np.random.default_rng(0), clients=CLIENTS).save(tmp_path / "saved.npz")
    split = registry.find("partitions", request.param).split

    def run(rng, train=TRAIN, tests=TEST, clients=CLIENTS, **options):
        owners = {"train_owners": OWNERS[: len(train)], "test_owners": OWNERS[: len(tests)]}
        asked = {name: given for name, given in owners.items() if name in inspect.signature(split).parameters}
        return split(train, tests, CLASSES, rng, clients=clients, **given.get(request.param, {}), **asked, **options)

    run.name = request.param
    return run


def test_the_number_of_clients_must_be_given(way):
    assert registry.options("partitions", way.name)["clients"].required


def test_every_client_gets_examples_of_its_labels(way):
    found = way(np.random.default_rng(2))
    assert isinstance(found, Partition)
    assert found.label_mask.shape == (CLIENTS, CLASSES)
    for ids, labels in ((found.train, TRAIN), (found.test, TEST)):
        assert isinstance(ids, ClientExamples)
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


def test_a_saved_split_is_the_same_split(way, tmp_path):
    found = way(np.random.default_rng(6))
    found.save(tmp_path / "again.npz")
    again = registry.find("partitions", "file").split(
        TRAIN, TEST, CLASSES, None, clients=CLIENTS, path=str(tmp_path / "again.npz")
    )
    assert again.sha256 == found.sha256
    assert again.summary(TRAIN) == found.summary(TRAIN)


def test_every_value_of_a_choice_gives_another_split(way):
    for name, option in registry.options("partitions", way.name).items():
        choices = option.constraint.choices or ()
        splits = [way(np.random.default_rng(0), **{name: choice}) for choice in choices]
        assert len({split.sha256 for split in splits}) == len(choices)
        assert all(len(np.unique(split.test.ids)) == len(split.test.ids) > 0 for split in splits)


def test_held_out_examples_are_nobodys(way):
    if "held_out" not in registry.options("partitions", way.name):
        return
    whole = way(np.random.default_rng(1), held_out=0.0)
    found = way(np.random.default_rng(1), held_out=0.3)
    assert found.held_out.sizes.tolist() == [int(0.3 * size) for size in whole.train.sizes]
    assert found.train.sizes.tolist() == [size - int(0.3 * size) for size in whole.train.sizes]
    for trained, held, own in zip(found.train, found.held_out, whole.train):
        assert sorted([*trained, *held]) == sorted(own)
    # Nothing is held out unless it is asked for, and then no other example changes hands.
    assert whole.sha256 == way(np.random.default_rng(1)).sha256 and not whole.held_out.ids.size
    if found.train.ids.size and way.name in ("iid", "labels", "quantity"):
        assert found.test.ids.tolist() == whole.test.ids.tolist()


def test_every_way_that_draws_can_hold_examples_out(way):
    assert way.name == "file" or "held_out" in registry.options("partitions", way.name)


def test_more_clients_than_examples_are_refused(way):
    with pytest.raises(InputError, match="`clients` must .* Received: clients=1001"):
        way(np.random.default_rng(0), clients=1001)


def test_text_is_split_or_refused_in_a_sentence(way):
    rows = np.random.default_rng(4).integers(0, CLASSES, (60, 7)).astype(np.int32)
    try:
        found = way(np.random.default_rng(5), train=rows, tests=rows)
    except InputError as error:
        assert "\n" not in str(error)
        assert len(str(error)) > 30
    else:
        assert all(own.size == 0 for own in found.test)
        for client, own in enumerate(found.train):
            assert set(rows[own].reshape(-1)) == set(np.flatnonzero(found.label_mask[client]))
