"""Golden numbers and properties of the ways to split, and the file of a partition."""

import json
import os

import folders
import numpy as np
import pytest
from splits import shares

from hetero_tf.base.errors import DiskProblem, InputError
from hetero_tf.partitions import file, iid, labels
from hetero_tf.partitions import partition as partitions
from hetero_tf.partitions.partition import Partition, label_mask
from hetero_tf.partitions.shares import ClientExamples

# Label counts of MNIST (shared by every copy of the set: LeCun, Cortes, Burges).
MNIST_TRAIN = (5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949)
MNIST_TEST = (980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009)


def mnist_labels(seed=0):
    """The labels of MNIST in some order."""
    rng = np.random.default_rng(seed)
    digits = np.arange(10, dtype=np.int32)
    return tuple(rng.permutation(np.repeat(digits, counts)) for counts in (MNIST_TRAIN, MNIST_TEST))


def test_iid_deals_equal_parts_and_leaves_the_rest():
    train, test = np.arange(103, dtype=np.int32) % 5, np.arange(27, dtype=np.int32) % 5
    found = iid.split(train, test, 5, np.random.default_rng(0), clients=10)
    for ids, each in ((found.train, 10), (found.test, 2)):
        assert [len(own) for own in ids] == [each] * 10
        assert len(set(np.concatenate(ids).tolist())) == 10 * each
    for client, own in enumerate(found.train):
        assert set(np.flatnonzero(found.label_mask[client])) == set(train[own])


def test_iid_draws_from_all_of_the_data():
    # Any example is drawn with chance 100/103: over 300 seeds each is left out about 9 times, hardly ever 0 times.
    left = np.zeros(103)
    for seed in range(300):
        found = iid.split(np.zeros(103, np.int32), np.zeros(3, np.int32), 1, np.random.default_rng(seed), clients=50)
        left += ~np.isin(np.arange(103), np.concatenate(found.train))
        assert all(own.size == 0 for own in found.test)
    assert left.sum() == 300 * 3
    assert left.max() < 30


def test_iid_of_text_deals_rows_and_no_test_rows():
    rows = np.array([[3, 1, 1], [2, 2, 2], [0, 4, 1]], np.int32)
    found = iid.split(rows, rows, 6, np.random.default_rng(0), clients=3)
    assert sorted(int(own[0]) for own in found.train) == [0, 1, 2]
    for client, own in enumerate(found.train):
        assert np.flatnonzero(found.label_mask[client]).tolist() == sorted(set(rows[own[0]].tolist()))
    assert [own.size for own in found.test] == [0, 0, 0]


def test_mnist_split_by_labels_has_the_published_spread():
    # HeteroFL authors' code on MNIST, 100 clients, 2 labels: sizes from 271 (a one-label client with 5421 // 20
    # examples) to 651, and about one client in ten with one label (19 / 199 of 100 clients; seen there: 7..17).
    train, test = mnist_labels()
    single, sizes = [], []
    for seed in range(30):
        found = labels.split(train, test, 10, np.random.default_rng(seed), clients=100, per_client=2)
        summary = found.summary()
        single.append(summary["one_label_clients"])
        sizes += [len(own) for own in found.train]
        # Each one-label client leaves one shard of 271..338 unused.
        assert 271 * single[-1] <= 60000 - summary["train_used"] <= 338 * single[-1]
        assert summary["labels"]["max"] == 2
        assert summary["test_examples"]["min"] >= 892 // 20
    assert min(sizes) == 271
    assert max(sizes) in (650, 651, 652)
    assert 7 < np.mean(single) < 12
    assert 2 <= min(single) < max(single) <= 20


@pytest.mark.parametrize(
    ("clients", "per_client", "classes"), [(100, 2, 10), (10, 3, 5), (6, 4, 4), (7, 1, 7), (5, 1, 1)]
)
def test_shards_are_contiguous_and_used_once(clients, per_client, classes):
    rng = np.random.default_rng(clients)
    train, test = (rng.permutation(np.arange(count, dtype=np.int32) % classes) for count in (2011, 997))
    found = labels.split(train, test, classes, np.random.default_rng(1), clients=clients, per_client=per_client)
    shards = clients * per_client // classes
    for of_client, of_split in ((found.train, train), (found.test, test)):
        everything = np.concatenate(of_client)
        assert len(set(everything.tolist())) == len(everything)
        for client, own in enumerate(of_client):
            for label in np.flatnonzero(found.label_mask[client]):
                whole = np.flatnonzero(of_split == label)
                each, rest = divmod(len(whole), shards)
                places = np.searchsorted(whole, own[of_split[own] == label])
                # `each` neighbours from a multiple of `each`, then for the first `rest` shards one of the end.
                number = places[0] // each
                body = np.arange(number * each, (number + 1) * each)
                tail = [shards * each + number] if number < rest else []
                assert places.tolist() == [*body.tolist(), *tail]
            assert set(of_split[own]) <= set(np.flatnonzero(found.label_mask[client]))
    assert found.label_mask.sum(0).max() <= shards
    assert 1 <= found.label_mask.sum(1).min() <= found.label_mask.sum(1).max() <= per_client


def test_every_shard_has_the_same_chance():
    # 24 examples of each label in 6 shards of 4: the first example of a client tells its shard of its first label.
    train = np.arange(96, dtype=np.int32) % 4
    taken = np.zeros((6, 6), int)
    for seed in range(300):
        found = labels.split(train, train, 4, np.random.default_rng(seed), clients=6, per_client=4)
        for client, own in enumerate(found.train):
            taken[client, own[0] // 16] += 1
    assert taken.min() > 20


def test_a_test_class_with_fewer_examples_than_shards_is_handed_out_once():
    train, test = np.arange(400, dtype=np.int32) % 10, np.array([3, 3, 3, 7], np.int32)
    owned = np.zeros(4)
    for seed in range(20):
        found = labels.split(train, test, 10, np.random.default_rng(seed), clients=20, per_client=2)
        assert all(found.label_mask[client, test[own]].all() for client, own in enumerate(found.test))
        counts = np.bincount(np.concatenate(found.test), minlength=4)
        assert counts.max() == 1
        owned += counts
    assert owned.min() > 0


def test_the_test_split_follows_the_same_labels():
    train, test = mnist_labels(1)
    found = labels.split(train, test, 10, np.random.default_rng(3), clients=100, per_client=2)
    np.testing.assert_array_equal(label_mask(train, found.train, 10), found.label_mask)
    np.testing.assert_array_equal(label_mask(test, found.test, 10), found.label_mask)


@pytest.mark.parametrize("way", [iid.split, labels.split])
def test_a_split_depends_on_the_generator_only(way):
    train, test = mnist_labels()
    digests = [way(train, test, 10, np.random.default_rng(seed), clients=100).sha256 for seed in (0, 0, 1)]
    assert digests[0] == digests[1] != digests[2]


def test_the_authors_order_of_examples_and_labels():
    # By hand: 3 shards of 2 examples for each label; label 0 has 7, and its last one goes to the owner of shard 0.
    train = np.array([0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0], np.int32)
    found = labels.split(train, train, 2, np.random.default_rng(5), clients=3, per_client=2)
    shard = {0: ([0, 2, 12], [4, 6], [8, 10]), 1: ([1, 3], [5, 7], [9, 11])}
    for own, mask in zip(found.train, found.label_mask):
        pieces = [next(piece for piece in shard[label] if piece[0] in own) for label in np.flatnonzero(mask)]
        assert own.tolist() == sum(pieces, [])


def test_long_rows_of_text_are_looked_at_in_blocks(monkeypatch):
    rows = np.random.default_rng(0).integers(0, 40, (17, 9)).astype(np.int32)
    given = ClientExamples.from_sizes(np.random.default_rng(1).permutation(17).astype(np.int32), [5, 0, 9, 3])
    for block in (1, 20, 2**22):
        monkeypatch.setattr(partitions, "BLOCK", block)
        found = label_mask(rows, given, 41)
        for own, mask in zip(given, found, strict=True):
            assert set(np.flatnonzero(mask)) == set(rows[own].reshape(-1).tolist())


def test_text_cannot_be_split_by_labels():
    with pytest.raises(InputError, match="`labels` needs one label for each example, which text has not; use `iid`"):
        labels.split(np.zeros((4, 9), np.int32), np.zeros((1, 9), np.int32), 5, np.random.default_rng(0), clients=2)


MASK = np.array([[1, 0], [1, 1]], bool)


@pytest.mark.parametrize(
    ("train", "test", "mask", "told"),
    [
        (shares([0]), shares([], []), MASK, r"`train` must have one share for each of the 2 clients .* Received: 1"),
        (shares([0], [1]), shares([]), MASK, r"`test` must have one share for each of the 2 clients"),
        (
            (np.zeros(1, np.int32),) * 2,
            shares([], []),
            MASK,
            r"`train` must be `ClientExamples`; .* of arrays. Received: tuple",
        ),
        (
            shares([0], [1]),
            shares([], []),
            MASK.astype(int),
            r"`label_mask` must be bool \[clients, classes\]. Received: int64",
        ),
    ],
)
def test_partitions_are_checked_when_made(train, test, mask, told):
    with pytest.raises(InputError, match=told):
        Partition(train, test, mask)


def test_summary_in_numbers():
    found = Partition(shares([4, 5, 6], [1]), shares([], [2, 3]), MASK)
    assert json.loads(json.dumps(found.summary())) == {
        "clients": 2,
        "train_examples": {"min": 1, "mean": 2.0, "std": 1.0, "max": 3},
        "test_examples": {"min": 0, "mean": 1.0, "std": 1.0, "max": 2},
        "labels": {"min": 1, "mean": 1.5, "std": 0.5, "max": 2},
        "one_label_clients": 1,
        "train_used": 4,
        "test_used": 2,
    }
    # All together have label 0 in 1 of 4 examples; client 0 in 1 of 3, client 1 in none.
    distance = found.summary(np.array([9, 1, 9, 9, 0, 1, 1]))["label_distance"]
    assert distance == pytest.approx({"min": 1 / 12, "mean": 1 / 6, "std": 1 / 12, "max": 1 / 4})


def test_digest_tells_partitions_apart():
    others = [
        Partition(shares([4, 5], [6]), shares([], []), MASK),
        Partition(shares([4], [5, 6]), shares([], []), MASK),
        Partition(shares([4, 5], []), shares([], [6]), MASK),
        Partition(shares([4, 5], [6]), shares([], []), ~MASK),
    ]
    assert len({one.sha256 for one in others}) == 4


@pytest.fixture
def saved(tmp_path):
    train, test = mnist_labels()
    partition = labels.split(train, test, 10, np.random.default_rng(0), clients=100)
    partition.save(tmp_path / "p.npz")
    return partition, tmp_path / "p.npz", train, test


def test_a_saved_partition_comes_back(saved):
    partition, path, train, test = saved
    found = file.split(train, test, 10, None, clients=100, path=str(path))
    assert found.sha256 == partition.sha256
    for one, other in zip((found.train, found.test), (partition.train, partition.test)):
        np.testing.assert_array_equal(one.ids, other.ids)
        np.testing.assert_array_equal(one.starts, other.starts)
    assert os.listdir(path.parent) == ["p.npz"]


def test_held_out_examples_are_saved_and_older_files_have_none(tmp_path):
    train, test = mnist_labels()
    plain, held = (
        labels.split(train, test, 10, np.random.default_rng(0), clients=100, held_out=share) for share in (0.0, 0.1)
    )
    for name, one in (("plain", plain), ("held", held)):
        one.save(tmp_path / f"{name}.npz")
    assert set(np.load(tmp_path / "plain.npz")) == set(partitions.NAMES)
    assert set(np.load(tmp_path / "held.npz")) == {*partitions.NAMES, "held_out_ids", "held_out_sizes"}
    found = file.split(train, test, 10, None, clients=100, path=str(tmp_path / "held.npz"))
    assert found.sha256 == held.sha256 != plain.sha256
    np.testing.assert_array_equal(found.held_out.ids, held.held_out.ids)
    assert found.held_out.sizes.tolist() == held.held_out.sizes.tolist()
    assert Partition.load(tmp_path / "plain.npz").held_out.sizes.tolist() == [0] * 100
    # Both labels of a client are among them: its examples are mixed first.
    several = [len(set(train[own])) for own, mask in zip(held.held_out, held.label_mask) if mask.sum() == 2]
    assert len(several) > 50 and set(several) == {2}
    summary = held.summary()
    assert (
        summary["held_out_used"] == len(held.held_out.ids)
        and summary["held_out_examples"]["max"] == held.held_out.sizes.max()
    )
    assert not {"held_out_used", "held_out_examples"} & set(plain.summary())


def test_what_is_held_out_is_not_trained_on():
    told = "`held_out` must be examples that nobody trains on. Received: 6, which is in `train`"
    with pytest.raises(InputError, match=told):
        Partition(shares([4, 5], [6]), shares([], []), MASK, shares([6], [7]))
    with pytest.raises(InputError, match="`held_out` must have one share for each of the 2 clients"):
        Partition(shares([4, 5], [6]), shares([], []), MASK, shares([7]))


def test_a_file_with_held_out_examples_of_other_data_is_refused(tmp_path):
    train, test = mnist_labels()
    everything = shares(np.arange(0, 100), np.arange(100, 200))
    Partition(everything, shares([], []), np.ones((2, 10), bool), shares([59_999], [])).save(tmp_path / "p.npz")
    with pytest.raises(InputError, match="held-out example 59999 is asked for. Received: 59999 examples"):
        file.split(train[:-1], test, 10, None, clients=2, path=tmp_path / "p.npz")


def test_a_partition_of_other_data_is_refused(saved):
    _, path, train, test = saved
    with pytest.raises(InputError, match="`clients` must be that of .*p.npz, 100. Received: clients=99"):
        file.split(train, test, 10, None, clients=99, path=path)
    with pytest.raises(InputError, match="belongs to data with 10 labels. Received: 11 labels"):
        file.split(train, test, 11, None, clients=100, path=path)
    with pytest.raises(InputError, match=r"other data: train example 59\d+ is asked for. Received: 59000 examples"):
        file.split(train[:59000], test, 10, None, clients=100, path=path)
    last = max(own.max() for own in Partition.load(path).train)
    with pytest.raises(InputError, match=f"train example {last} is asked for. Received: {last} examples"):
        file.split(train[:last], test, 10, None, clients=100, path=path)
    with pytest.raises(InputError, match="test example 99.. is asked for. Received: 9000 examples"):
        file.split(train, test[:9000], 10, None, clients=100, path=path)
    with pytest.raises(InputError, match="examples of client 0 have labels that its `label_mask` lacks"):
        file.split(train[::-1], test, 10, None, clients=100, path=path)
    Partition(shares([0], []), shares([], []), np.ones((2, 10), bool)).save(path)
    with pytest.raises(InputError, match="every client must have a training example. Received: none of client 1"):
        file.split(train, test, 10, None, clients=2, path=path)


def test_changed_files_are_refused(saved):
    _, path, _, _ = saved
    whole = dict(np.load(path, allow_pickle=False))
    for changes, told in (
        ({"train_ids": whole["train_ids"][::-1]}, "the content differs from its sha256"),
        ({"label_mask": ~whole["label_mask"]}, "the content differs from its sha256"),
        ({"train_sizes": whole["train_sizes"] + 1}, "train_sizes must add up to the"),
        ({"test_sizes": -whole["test_sizes"]}, "test_sizes must add up to the"),
        ({"train_ids": whole["train_ids"].astype(float)}, r"train_ids must be int32 with 1 axes. Received: float"),
        ({"label_mask": whole["label_mask"][0]}, r"label_mask must be bool with 2 axes. Received: bool \(10,\)"),
        ({"train_ids": np.array([None])}, "array 'train_ids.npy' holds Python objects"),
    ):
        np.savez(path, **(whole | changes))
        with pytest.raises(InputError, match=told):
            Partition.load(path)
    with pytest.raises(InputError, match="none.npz: could not read: No such file or directory"):
        Partition.load(path.with_name("none.npz"))


def test_no_flip_or_cut_of_a_saved_partition_is_silent(saved):
    partition, path, _, _ = saved
    for broken in folders.damaged(path.read_bytes(), 90, cuts=3):
        path.write_bytes(broken)
        try:
            assert Partition.load(path).sha256 == partition.sha256
        except InputError as error:
            assert str(path) in str(error)


def test_a_partition_that_cannot_be_written_leaves_nothing(saved, tmp_path):
    partition, path, _, _ = saved
    with pytest.raises(DiskProblem, match="p.npz: could not write: No such file"):
        partition.save(tmp_path / "none" / "p.npz")
    (tmp_path / "folder.npz").mkdir()
    with pytest.raises(InputError, match="folder.npz: expected a file or nothing. Received: a folder"):
        partition.save(tmp_path / "folder.npz")
    assert sorted(os.listdir(tmp_path)) == ["folder.npz", "p.npz"]
