"""Shards of labels."""

import numpy as np
import pytest
from splits import FEW, TEST, TRAIN, mnist_labels, rng

from hetero_tf.base.errors import InputError
from hetero_tf.data.partitions import labels
from hetero_tf.data.partitions.partition import label_mask


def test_mnist_split_by_labels_has_the_published_spread():
    # HeteroFL authors' code on MNIST, 100 clients, 2 labels: sizes from 271 (a one-label client with 5421 // 20
    # examples) to 651, and about one client in ten with one label (19 / 199 of 100 clients; seen there: 7..17).
    train, test = mnist_labels()
    single, sizes = [], []
    for seed in range(30):
        partition = labels.split(train, test, 10, rng(seed), clients=100, per_client=2)
        summary = partition.summary()
        single.append(summary["one_label_clients"])
        sizes += [len(ids) for ids in partition.train]
        # Each one-label client leaves one shard of 271..338 unused.
        assert 271 * single[-1] <= 60000 - summary["train_used"] <= 338 * single[-1]
        assert summary["labels"]["max"] == 2
        assert summary["test_examples"]["min"] >= 892 // 20
    for of_split, examples in ((train, partition.train), (test, partition.test)):
        np.testing.assert_array_equal(label_mask(of_split, examples, 10), partition.label_mask)
    assert min(sizes) == 271
    assert max(sizes) in (650, 651, 652)
    assert 7 < np.mean(single) < 12
    assert 2 <= min(single) < max(single) <= 20


@pytest.mark.parametrize(
    ("clients", "per_client", "classes"), [(100, 2, 10), (10, 3, 5), (6, 4, 4), (7, 1, 7), (5, 1, 1)]
)
def test_shards_are_contiguous_and_used_once(clients, per_client, classes):
    generator = rng(clients)
    train, test = (generator.permutation(np.arange(count, dtype=np.int32) % classes) for count in (2011, 997))
    partition = labels.split(train, test, classes, rng(1), clients=clients, per_client=per_client)
    shards = clients * per_client // classes
    for of_client, of_split in ((partition.train, train), (partition.test, test)):
        everything = np.concatenate(of_client)
        assert len(set(everything.tolist())) == len(everything)
        for client, ids in enumerate(of_client):
            for label in np.flatnonzero(partition.label_mask[client]):
                whole = np.flatnonzero(of_split == label)
                each, rest = divmod(len(whole), shards)
                positions = np.searchsorted(whole, ids[of_split[ids] == label])
                # `each` neighbours from a multiple of `each`, then for the first `rest` shards one of the end.
                number = positions[0] // each
                body = np.arange(number * each, (number + 1) * each)
                tail = [shards * each + number] if number < rest else []
                assert positions.tolist() == [*body.tolist(), *tail]
            assert set(of_split[ids]) <= set(np.flatnonzero(partition.label_mask[client]))
    assert partition.label_mask.sum(0).max() <= shards
    assert 1 <= partition.label_mask.sum(1).min() <= partition.label_mask.sum(1).max() <= per_client


def test_consecutive_clients_hold_consecutive_labels():
    partition = labels.split(TRAIN, TEST, 10, rng(), clients=50, per_client=3, draw="consecutive")
    for client, expected in {0: [0, 1, 2], 4: [0, 1, 2], 5: [1, 2, 3], 44: [0, 8, 9], 49: [0, 1, 9]}.items():
        assert np.flatnonzero(partition.label_mask[client]).tolist() == expected
    assert partition.label_mask.sum(0).tolist() == [15] * 10 and partition.summary()["train_used"] == 2000


def test_every_shard_has_the_same_chance():
    # 24 examples of each label in 6 shards of 4: the first example of a client identifies its shard of its first label.
    train = np.arange(96, dtype=np.int32) % 4
    counts = np.zeros((6, 6), int)
    for seed in range(300):
        for client, ids in enumerate(labels.split(train, train, 4, rng(seed), clients=6, per_client=4).train):
            counts[client, ids[0] // 16] += 1
    assert counts.min() > 20


def test_small_test_class_is_assigned_once():
    train, test = np.arange(400, dtype=np.int32) % 10, np.array([3, 3, 3, 7], np.int32)
    owned = np.zeros(4)
    for seed in range(20):
        partition = labels.split(train, test, 10, rng(seed), clients=20, per_client=2)
        assert all(partition.label_mask[client, test[ids]].all() for client, ids in enumerate(partition.test))
        counts = np.bincount(np.concatenate(partition.test), minlength=4)
        assert counts.max() == 1
        owned += counts
    assert owned.min() > 0


def test_authors_order_of_examples_and_labels():
    # By hand: 3 shards of 2 examples for each label; label 0 has 7, and its last one goes to the owner of shard 0.
    train = np.array([0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0], np.int32)
    partition = labels.split(train, train, 2, rng(5), clients=3, per_client=2)
    shard = {0: ([0, 2, 12], [4, 6], [8, 10]), 1: ([1, 3], [5, 7], [9, 11])}
    for ids, mask in zip(partition.train, partition.label_mask):
        pieces = [next(piece for piece in shard[label] if piece[0] in ids) for label in np.flatnonzero(mask)]
        assert ids.tolist() == sum(pieces, [])


def test_duplicate_labels_give_two_shards():
    without, duplicates = (
        labels.split(TRAIN, TEST, 10, rng(2), clients=50, per_client=3, keep_duplicates=keep) for keep in (False, True)
    )
    np.testing.assert_array_equal(without.label_mask, duplicates.label_mask)
    assert without.label_mask.sum() < 150 and len(without.train.ids) < 1950
    assert sorted(duplicates.train.ids) == list(range(2000)) and sorted(duplicates.test.ids) == list(range(600))
    np.testing.assert_array_equal(label_mask(TRAIN, duplicates.train, 10), duplicates.label_mask)


def test_validation_examples_have_all_labels_of_a_client():
    partition = labels.split(TRAIN, TEST, 10, rng(), clients=50, per_client=2, held_out=0.2)
    two = partition.label_mask.sum(1) == 2
    assert two.sum() > 30
    # Its examples are mixed first.
    assert np.mean(label_mask(TRAIN, partition.held_out, 10)[two].sum(1)) > 1.9


@pytest.mark.parametrize(
    ("train", "options", "message"),
    [
        (FEW, {"clients": 10, "per_client": 11}, r"`per_client` must be in 1..10, .* Received: per_client=11"),
        (FEW, {"clients": 7, "per_client": 2}, "a multiple of the 10 labels. Received: clients=7, per_client=2"),
        (FEW, {"clients": 15}, "at least one example for each of its 3 shards, but label 0 has 2 examples; use fewer"),
        (
            FEW,
            {"clients": 5, "per_client": 4, "draw": "consecutive"},
            "`clients` must be a multiple of the 10 labels with draw: consecutive. Received: clients=5",
        ),
        (
            FEW.reshape(4, 5),
            {"clients": 2},
            "`labels` needs one label per example, which text does not have; use `iid`",
        ),
    ],
)
def test_impossible_splits_are_rejected(train, options, message):
    with pytest.raises(InputError, match=message):
        labels.split(train, train, 10, rng(), **{"per_client": 2, **options})
