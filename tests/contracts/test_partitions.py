"""Contract of every partition in the package; a new module is tested automatically."""

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
    """`rng -> Partition` of one module, with values for options without a default."""
    options_by_name = {
        "file": {"path": str(tmp_path / "saved.npz")},
        "dirichlet": {"alpha": 0.5},
        "dirichlet_equal": {"alpha": 0.5},
        "dirichlet_turns": {"alpha": 0.5},
    }
    iid.split(TRAIN, TEST, CLASSES, np.random.default_rng(0), clients=CLIENTS).save(tmp_path / "saved.npz")
    split = registry.find("partitions", request.param).split

    def run(rng, train=TRAIN, tests=TEST, clients=CLIENTS, **options):
        owners = {"train_owners": OWNERS[: len(train)], "test_owners": OWNERS[: len(tests)]}
        owner_arguments = {
            name: labels for name, labels in owners.items() if name in inspect.signature(split).parameters
        }
        return split(
            train,
            tests,
            CLASSES,
            rng,
            clients=clients,
            **options_by_name.get(request.param, {}),
            **owner_arguments,
            **options,
        )

    run.name = request.param
    return run


def test_the_number_of_clients_is_required(way):
    assert registry.options("partitions", way.name)["clients"].required


def test_every_client_gets_examples_of_its_labels(way):
    partition = way(np.random.default_rng(2))
    assert isinstance(partition, Partition)
    assert partition.label_mask.shape == (CLIENTS, CLASSES)
    for ids, labels in ((partition.train, TRAIN), (partition.test, TEST)):
        assert isinstance(ids, ClientExamples)
        everything = ids.ids
        assert everything.max() < len(labels)
        assert len(np.unique(everything)) == len(everything)
    for client, client_ids in enumerate(partition.train):
        assert client_ids.size > 0
        assert partition.label_mask[client, TRAIN[client_ids]].all()
    # Clients get at least half of the data.
    assert partition.summary()["train_used"] >= len(TRAIN) // 2


def test_equal_generators_give_equal_splits_and_inputs_are_unchanged(way):
    before = TRAIN.copy(), TEST.copy()
    assert way(np.random.default_rng(3)).sha256 == way(np.random.default_rng(3)).sha256
    assert (before[0] == TRAIN).all()
    assert (before[1] == TEST).all()


def test_a_saved_split_is_the_same_split(way, tmp_path):
    partition = way(np.random.default_rng(6))
    partition.save(tmp_path / "again.npz")
    again = registry.find("partitions", "file").split(
        TRAIN, TEST, CLASSES, None, clients=CLIENTS, path=str(tmp_path / "again.npz")
    )
    assert again.sha256 == partition.sha256
    assert again.summary(TRAIN) == partition.summary(TRAIN)


def test_every_value_of_an_option_gives_another_split(way):
    for name, option in registry.options("partitions", way.name).items():
        choices = option.constraint.choices or ()
        splits = [way(np.random.default_rng(0), **{name: choice}) for choice in choices]
        assert len({split.sha256 for split in splits}) == len(choices)
        assert all(len(np.unique(split.test.ids)) == len(split.test.ids) > 0 for split in splits)


def test_validation_examples_belong_to_no_client(way):
    if "held_out" not in registry.options("partitions", way.name):
        return
    whole = way(np.random.default_rng(1), held_out=0.0)
    partition = way(np.random.default_rng(1), held_out=0.3)
    assert partition.held_out.sizes.tolist() == [int(0.3 * size) for size in whole.train.sizes]
    assert partition.train.sizes.tolist() == [size - int(0.3 * size) for size in whole.train.sizes]
    for trained, validation, client_ids in zip(partition.train, partition.held_out, whole.train):
        assert sorted([*trained, *validation]) == sorted(client_ids)
    # Nothing is held out by default, and holding out examples does not change the test split.
    assert whole.sha256 == way(np.random.default_rng(1)).sha256 and not whole.held_out.ids.size
    if partition.train.ids.size and way.name in ("iid", "labels", "quantity"):
        assert partition.test.ids.tolist() == whole.test.ids.tolist()


def test_every_random_partition_supports_validation_examples(way):
    assert way.name == "file" or "held_out" in registry.options("partitions", way.name)


def test_more_clients_than_examples_are_refused(way):
    with pytest.raises(InputError, match="`clients` must .* Received: clients=1001"):
        way(np.random.default_rng(0), clients=1001)


def test_text_is_split_or_refused_with_a_message(way):
    rows = np.random.default_rng(4).integers(0, CLASSES, (60, 7)).astype(np.int32)
    try:
        partition = way(np.random.default_rng(5), train=rows, tests=rows)
    except InputError as error:
        assert "\n" not in str(error)
        assert len(str(error)) > 30
    else:
        assert all(client_ids.size == 0 for client_ids in partition.test)
        for client, client_ids in enumerate(partition.train):
            assert set(rows[client_ids].reshape(-1)) == set(np.flatnonzero(partition.label_mask[client]))
