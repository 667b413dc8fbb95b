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


def test_iid_assigns_equal_parts_and_drops_the_rest():
    train, test = np.arange(103, dtype=np.int32) % 5, np.arange(27, dtype=np.int32) % 5
    partition = iid.split(train, test, 5, np.random.default_rng(0), clients=10)
    for ids, each in ((partition.train, 10), (partition.test, 2)):
        assert [len(ids) for ids in ids] == [each] * 10
        assert len(set(np.concatenate(ids).tolist())) == 10 * each
    for client, ids in enumerate(partition.train):
        assert set(np.flatnonzero(partition.label_mask[client])) == set(train[ids])


def test_iid_draws_from_all_of_the_data():
    # Any example is drawn with chance 100/103: over 300 seeds each is left out about 9 times, hardly ever 0 times.
    left = np.zeros(103)
    for seed in range(300):
        partition = iid.split(
            np.zeros(103, np.int32), np.zeros(3, np.int32), 1, np.random.default_rng(seed), clients=50
        )
        left += ~np.isin(np.arange(103), np.concatenate(partition.train))
        assert all(ids.size == 0 for ids in partition.test)
    assert left.sum() == 300 * 3
    assert left.max() < 30


def test_iid_of_text_assigns_rows_but_no_test_rows():
    rows = np.array([[3, 1, 1], [2, 2, 2], [0, 4, 1]], np.int32)
    partition = iid.split(rows, rows, 6, np.random.default_rng(0), clients=3)
    assert sorted(int(ids[0]) for ids in partition.train) == [0, 1, 2]
    for client, ids in enumerate(partition.train):
        assert np.flatnonzero(partition.label_mask[client]).tolist() == sorted(set(rows[ids[0]].tolist()))
    assert [ids.size for ids in partition.test] == [0, 0, 0]


def test_mnist_split_by_labels_has_the_published_spread():
    # HeteroFL authors' code on MNIST, 100 clients, 2 labels: sizes from 271 (a one-label client with 5421 // 20
    # examples) to 651, and about one client in ten with one label (19 / 199 of 100 clients; seen there: 7..17).
    train, test = mnist_labels()
    single, sizes = [], []
    for seed in range(30):
        partition = labels.split(train, test, 10, np.random.default_rng(seed), clients=100, per_client=2)
        summary = partition.summary()
        single.append(summary["one_label_clients"])
        sizes += [len(ids) for ids in partition.train]
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
    partition = labels.split(train, test, classes, np.random.default_rng(1), clients=clients, per_client=per_client)
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
    train, test = mnist_labels()
    partition = labels.split(train, test, 10, np.random.default_rng(0), clients=100, per_client=3, draw="consecutive")
    assert [np.flatnonzero(partition.label_mask[client]).tolist() for client in (0, 9, 10, 89, 99)] == [
        [0, 1, 2],
        [0, 1, 2],
        [1, 2, 3],
        [0, 8, 9],
        [0, 1, 9],
    ]
    assert partition.label_mask.sum(0).tolist() == [30] * 10
    assert partition.summary()["train_used"] == len(train)


def test_every_shard_has_the_same_chance():
    # 24 examples of each label in 6 shards of 4: the first example of a client identifies its shard of its first label.
    train = np.arange(96, dtype=np.int32) % 4
    counts = np.zeros((6, 6), int)
    for seed in range(300):
        partition = labels.split(train, train, 4, np.random.default_rng(seed), clients=6, per_client=4)
        for client, ids in enumerate(partition.train):
            counts[client, ids[0] // 16] += 1
    assert counts.min() > 20


def test_small_test_class_is_assigned_once():
    train, test = np.arange(400, dtype=np.int32) % 10, np.array([3, 3, 3, 7], np.int32)
    owned = np.zeros(4)
    for seed in range(20):
        partition = labels.split(train, test, 10, np.random.default_rng(seed), clients=20, per_client=2)
        assert all(partition.label_mask[client, test[ids]].all() for client, ids in enumerate(partition.test))
        counts = np.bincount(np.concatenate(partition.test), minlength=4)
        assert counts.max() == 1
        owned += counts
    assert owned.min() > 0


def test_test_split_follows_the_same_labels():
    train, test = mnist_labels(1)
    partition = labels.split(train, test, 10, np.random.default_rng(3), clients=100, per_client=2)
    np.testing.assert_array_equal(label_mask(train, partition.train, 10), partition.label_mask)
    np.testing.assert_array_equal(label_mask(test, partition.test, 10), partition.label_mask)


@pytest.mark.parametrize("split", [iid.split, labels.split])
def test_split_depends_on_the_generator_only(split):
    train, test = mnist_labels()
    digests = [split(train, test, 10, np.random.default_rng(seed), clients=100).sha256 for seed in (0, 0, 1)]
    assert digests[0] == digests[1] != digests[2]


def test_authors_order_of_examples_and_labels():
    # By hand: 3 shards of 2 examples for each label; label 0 has 7, and its last one goes to the owner of shard 0.
    train = np.array([0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0], np.int32)
    partition = labels.split(train, train, 2, np.random.default_rng(5), clients=3, per_client=2)
    shard = {0: ([0, 2, 12], [4, 6], [8, 10]), 1: ([1, 3], [5, 7], [9, 11])}
    for ids, mask in zip(partition.train, partition.label_mask):
        pieces = [next(piece for piece in shard[label] if piece[0] in ids) for label in np.flatnonzero(mask)]
        assert ids.tolist() == sum(pieces, [])


def test_long_rows_of_text_are_looked_at_in_blocks(monkeypatch):
    rows = np.random.default_rng(0).integers(0, 40, (17, 9)).astype(np.int32)
    examples = ClientExamples.from_sizes(np.random.default_rng(1).permutation(17).astype(np.int32), [5, 0, 9, 3])
    for block in (1, 20, 2**22):
        monkeypatch.setattr(partitions, "BLOCK", block)
        masks = label_mask(rows, examples, 41)
        for ids, mask in zip(examples, masks, strict=True):
            assert set(np.flatnonzero(mask)) == set(rows[ids].reshape(-1).tolist())


def test_text_cannot_be_split_by_labels():
    with pytest.raises(InputError, match="`labels` needs one label per example, which text does not have; use `iid`"):
        labels.split(np.zeros((4, 9), np.int32), np.zeros((1, 9), np.int32), 5, np.random.default_rng(0), clients=2)


MASK = np.array([[1, 0], [1, 1]], bool)


@pytest.mark.parametrize(
    ("train", "test", "mask", "message"),
    [
        (shares([0]), shares([], []), MASK, r"`train` must have one entry for each of the 2 clients .* Received: 1"),
        (shares([0], [1]), shares([]), MASK, r"`test` must have one entry for each of the 2 clients"),
        (
            (np.zeros(1, np.int32),) * 2,
            shares([], []),
            MASK,
            r"`train` must be `ClientExamples`; .* from arrays with .* Received: tuple",
        ),
        (
            shares([0], [1]),
            shares([], []),
            MASK.astype(int),
            r"`label_mask` must be bool \[clients, classes\]. Received: int64",
        ),
    ],
)
def test_partitions_are_checked_when_made(train, test, mask, message):
    with pytest.raises(InputError, match=message):
        Partition(train, test, mask)


def test_summary_in_numbers():
    partition = Partition(shares([4, 5, 6], [1]), shares([], [2, 3]), MASK)
    assert json.loads(json.dumps(partition.summary())) == {
        "clients": 2,
        "train_examples": {"min": 1, "mean": 2.0, "std": 1.0, "max": 3},
        "test_examples": {"min": 0, "mean": 1.0, "std": 1.0, "max": 2},
        "labels": {"min": 1, "mean": 1.5, "std": 0.5, "max": 2},
        "one_label_clients": 1,
        "train_used": 4,
        "test_used": 2,
    }
    # All together have label 0 in 1 of 4 examples; client 0 in 1 of 3, client 1 in none.
    distance = partition.summary(np.array([9, 1, 9, 9, 0, 1, 1]))["label_distance"]
    assert distance == pytest.approx({"min": 1 / 12, "mean": 1 / 6, "std": 1 / 12, "max": 1 / 4})


def test_digest_distinguishes_partitions():
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


def test_saved_partition_is_restored(saved):
    partition, path, train, test = saved
    partition = file.split(train, test, 10, None, clients=100, path=str(path))
    assert partition.sha256 == partition.sha256
    for one, other in zip((partition.train, partition.test), (partition.train, partition.test)):
        np.testing.assert_array_equal(one.ids, other.ids)
        np.testing.assert_array_equal(one.starts, other.starts)
    assert os.listdir(path.parent) == ["p.npz"]


def test_validation_examples_are_saved_and_older_files_have_none(tmp_path):
    train, test = mnist_labels()
    plain, with_validation = (
        labels.split(train, test, 10, np.random.default_rng(0), clients=100, held_out=share) for share in (0.0, 0.1)
    )
    for name, one in (("plain", plain), ("held", with_validation)):
        one.save(tmp_path / f"{name}.npz")
    assert set(np.load(tmp_path / "plain.npz")) == set(partitions.NAMES)
    assert set(np.load(tmp_path / "held.npz")) == {*partitions.NAMES, "held_out_ids", "held_out_sizes"}
    partition = file.split(train, test, 10, None, clients=100, path=str(tmp_path / "held.npz"))
    assert partition.sha256 == with_validation.sha256 != plain.sha256
    np.testing.assert_array_equal(partition.held_out.ids, with_validation.held_out.ids)
    assert partition.held_out.sizes.tolist() == with_validation.held_out.sizes.tolist()
    assert Partition.load(tmp_path / "plain.npz").held_out.sizes.tolist() == [0] * 100
    # Both labels of a client are among them: its examples are mixed first.
    several = [
        len(set(train[ids]))
        for ids, mask in zip(with_validation.held_out, with_validation.label_mask)
        if mask.sum() == 2
    ]
    assert len(several) > 50 and set(several) == {2}
    summary = with_validation.summary()
    assert (
        summary["held_out_used"] == len(with_validation.held_out.ids)
        and summary["held_out_examples"]["max"] == with_validation.held_out.sizes.max()
    )
    assert not {"held_out_used", "held_out_examples"} & set(plain.summary())


def test_validation_and_training_examples_are_disjoint():
    message = "`held_out` and `train` must not overlap. Received: example 6 in both"
    with pytest.raises(InputError, match=message):
        Partition(shares([4, 5], [6]), shares([], []), MASK, shares([6], [7]))
    with pytest.raises(InputError, match="`held_out` must have one entry for each of the 2 clients"):
        Partition(shares([4, 5], [6]), shares([], []), MASK, shares([7]))


def test_file_with_validation_examples_of_other_data_is_rejected(tmp_path):
    train, test = mnist_labels()
    everything = shares(np.arange(0, 100), np.arange(100, 200))
    Partition(everything, shares([], []), np.ones((2, 10), bool), shares([59_999], [])).save(tmp_path / "p.npz")
    with pytest.raises(InputError, match="it refers to held-out example 59999. Received: 59999 examples"):
        file.split(train[:-1], test, 10, None, clients=2, path=tmp_path / "p.npz")


def test_partition_of_other_data_is_rejected(saved):
    _, path, train, test = saved
    with pytest.raises(
        InputError, match="`clients` must be 100, the number of clients in .*p.npz. Received: clients=99"
    ):
        file.split(train, test, 10, None, clients=99, path=path)
    with pytest.raises(InputError, match="belongs to data with 10 labels. Received: 11 labels"):
        file.split(train, test, 11, None, clients=100, path=path)
    with pytest.raises(InputError, match=r"other data: it refers to train example 59\d+. Received: 59000 examples"):
        file.split(train[:59000], test, 10, None, clients=100, path=path)
    last = max(ids.max() for ids in Partition.load(path).train)
    with pytest.raises(InputError, match=f"train example {last}. Received: {last} examples"):
        file.split(train[:last], test, 10, None, clients=100, path=path)
    with pytest.raises(InputError, match="test example 99... Received: 9000 examples"):
        file.split(train, test[:9000], 10, None, clients=100, path=path)
    with pytest.raises(InputError, match="client 0 has examples with labels outside its `label_mask`"):
        file.split(train[::-1], test, 10, None, clients=100, path=path)
    Partition(shares([0], []), shares([], []), np.ones((2, 10), bool)).save(path)
    with pytest.raises(InputError, match="every client must have a training example. Received: none for client 1"):
        file.split(train, test, 10, None, clients=2, path=path)


def test_changed_files_are_rejected(saved):
    _, path, _, _ = saved
    whole = dict(np.load(path, allow_pickle=False))
    for changes, message in (
        ({"train_ids": whole["train_ids"][::-1]}, "the content does not match its sha256"),
        ({"label_mask": ~whole["label_mask"]}, "the content does not match its sha256"),
        ({"train_sizes": whole["train_sizes"] + 1}, "the sum of train_sizes must be"),
        ({"test_sizes": -whole["test_sizes"]}, "the sum of test_sizes must be"),
        ({"train_ids": whole["train_ids"].astype(float)}, r"train_ids must be int32 with 1 axes. Received: float"),
        ({"label_mask": whole["label_mask"][0]}, r"label_mask must be bool with 2 axes. Received: bool \(10,\)"),
        ({"train_ids": np.array([None])}, "array 'train_ids.npy' contains Python objects"),
    ):
        np.savez(path, **(whole | changes))
        with pytest.raises(InputError, match=message):
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


def test_partition_that_cannot_be_written_leaves_nothing(saved, tmp_path):
    partition, path, _, _ = saved
    with pytest.raises(DiskProblem, match="p.npz: could not write: No such file"):
        partition.save(tmp_path / "none" / "p.npz")
    (tmp_path / "folder.npz").mkdir()
    with pytest.raises(InputError, match="folder.npz: expected a file or nothing. Received: a folder"):
        partition.save(tmp_path / "folder.npz")
    assert sorted(os.listdir(tmp_path)) == ["folder.npz", "p.npz"]
