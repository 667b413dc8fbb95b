"""`Partition`: its checks, numbers, digest and file; and what holds for every way to split."""

import json
import os
import time

import folders
import numpy as np
import pytest
from refusals import refusal
from splits import TEST, TRAIN, rng, shares

from hetero_tf import recipe
from hetero_tf.base import registry
from hetero_tf.base.errors import DiskProblem, InputError
from hetero_tf.data.partitions import iid, labels
from hetero_tf.data.partitions import partition as partitions
from hetero_tf.data.partitions.partition import ClientExamples, Partition, label_mask
from hetero_tf.run.data import load_data, split


def test_long_rows_of_text_are_looked_at_in_blocks(monkeypatch):
    rows = rng().integers(0, 40, (17, 9)).astype(np.int32)
    examples = ClientExamples.from_sizes(rng(1).permutation(17).astype(np.int32), [5, 0, 9, 3])
    for block in (1, 20, 2**22):
        monkeypatch.setattr(partitions, "BLOCK", block)
        masks = label_mask(rows, examples, 41)
        for ids, mask in zip(examples, masks, strict=True):
            assert set(np.flatnonzero(mask)) == set(rows[ids].reshape(-1).tolist())


MASK, NONE = np.array([[1, 0], [1, 1]], bool), shares([], [])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((shares([0]), NONE, MASK), r"`train` must have one entry for each of the 2 clients .* Received: 1"),
        ((shares([0], [1]), shares([]), MASK), "`test` must have one entry for each of the 2 clients"),
        ((shares([0], [1]), NONE, MASK, shares([7])), "`held_out` must have one entry for each of the 2 clients"),
        ((NONE, NONE, MASK.astype(int)), r"`label_mask` must be bool \[clients, classes\]. Received: int64"),
        (
            (shares([4, 5], [6]), NONE, MASK, shares([6], [7])),
            "`held_out` and `train` must not overlap. Received: example 6 in both",
        ),
    ],
)
def test_partitions_are_checked_when_made(arguments, message):
    with pytest.raises(InputError, match=message):
        Partition(*arguments)


def test_summary_in_numbers():
    partition = Partition(shares([4, 5, 6], [1]), shares([], [2, 3]), MASK)
    expected = {
        "clients": 2,
        "train_examples": {"min": 1, "mean": 2.0, "std": 1.0, "max": 3},
        "test_examples": {"min": 0, "mean": 1.0, "std": 1.0, "max": 2},
        "labels": {"min": 1, "mean": 1.5, "std": 0.5, "max": 2},
        "one_label_clients": 1,
        "train_used": 4,
        "test_used": 2,
    }
    assert json.loads(json.dumps(partition.summary())) == expected
    # All together have label 0 in 1 of 4 examples; client 0 in 1 of 3, client 1 in none.
    distance = partition.summary(np.array([9, 1, 9, 9, 0, 1, 1]))["label_distance"]
    assert distance == pytest.approx({"min": 1 / 12, "mean": 1 / 6, "std": 1 / 12, "max": 1 / 4})
    validated = Partition(partition.train, partition.test, MASK, shares([9, 8, 7], [])).summary()
    sizes = {"min": 0, "mean": 1.5, "std": 1.5, "max": 3}
    assert validated == expected | {"held_out_examples": sizes, "held_out_used": 3}


def test_digest_distinguishes_partitions():
    others = [
        Partition(shares([4, 5], [6]), NONE, MASK),
        Partition(shares([4], [5, 6]), NONE, MASK),
        Partition(shares([4, 5], []), shares([], [6]), MASK),
        Partition(shares([4, 5], [6]), NONE, ~MASK),
        Partition(shares([4, 5], [6]), NONE, MASK, shares([7], [])),
    ]
    assert len({one.sha256 for one in others}) == 5


@pytest.fixture
def saved(tmp_path):
    partition = labels.split(TRAIN, TEST, 10, rng(), clients=100)
    partition.save(tmp_path / "p.npz")
    return partition, tmp_path / "p.npz"


def test_validation_examples_are_saved_and_older_files_have_none(saved):
    plain, path = saved
    assert set(np.load(path)) == set(partitions.NAMES)
    assert Partition.load(path).sha256 == plain.sha256
    assert Partition.load(path).held_out.sizes.tolist() == [0] * 100
    validated = labels.split(TRAIN, TEST, 10, rng(), clients=100, held_out=0.1)
    validated.save(path)
    assert set(np.load(path)) == {*partitions.NAMES, "held_out_ids", "held_out_sizes"}
    again = Partition.load(path)
    assert again.sha256 == validated.sha256 != plain.sha256
    np.testing.assert_array_equal(again.held_out.ids, validated.held_out.ids)
    assert again.held_out.sizes.tolist() == validated.held_out.sizes.tolist()


def test_changed_files_are_rejected(saved):
    _, path = saved
    whole = dict(np.load(path, allow_pickle=False))
    for changes, message in (
        ({"train_ids": whole["train_ids"][::-1]}, "the content does not match its sha256"),
        ({"label_mask": ~whole["label_mask"]}, "the content does not match its sha256"),
        ({"train_sizes": whole["train_sizes"] + 1}, "is not a partition: the sizes of the clients must add up"),
        ({"train_ids": whole["train_ids"].astype(float)}, "`ids` must be int32 with one axis. Received: float"),
        ({"label_mask": whole["label_mask"][0]}, r"`label_mask` must be bool .* Received: bool \(10,\)"),
        ({"train_ids": np.array([None])}, "contains Python objects"),
    ):
        np.savez(path, **(whole | changes))
        with pytest.raises(InputError, match=message):
            Partition.load(path)
    with pytest.raises(InputError, match="none.npz: could not read: No such file or directory"):
        Partition.load(path.with_name("none.npz"))


def test_no_flip_or_cut_of_a_saved_partition_is_silent(saved):
    partition, path = saved
    for broken in folders.damaged(path.read_bytes(), 90, cuts=3):
        path.write_bytes(broken)
        try:
            assert Partition.load(path).sha256 == partition.sha256
        except InputError as error:
            assert str(path) in str(error)


def test_partition_that_cannot_be_written_leaves_nothing(saved, tmp_path):
    partition, _ = saved
    with pytest.raises(DiskProblem, match="p.npz: could not write: No such file"):
        partition.save(tmp_path / "none" / "p.npz")
    (tmp_path / "folder.npz").mkdir()
    with pytest.raises(InputError, match="folder.npz: expected a file or nothing. Received: a folder"):
        partition.save(tmp_path / "folder.npz")
    assert sorted(os.listdir(tmp_path)) == ["folder.npz", "p.npz"]


OF_MANY = {"train_owners": rng().permutation(600_000).astype(np.int32) % 150_000, "test_owners": None, "test": "equal"}


@pytest.mark.parametrize(
    ("module", "examples", "clients", "options", "least", "used"),
    [
        ("iid", 1_000_000, 500_000, {}, 2, 1.0),
        ("labels", 1_000_000, 250_000, {"per_client": 2}, 2, 0.94),
        ("class_deck", 600_000, 150_000, {}, 1, 0.92),
        ("quantity", 600_000, 150_000, {"sizes": "equal"}, 1, 0.92),
        ("natural", 600_000, 150_000, OF_MANY, 1, 0.92),
        ("dirichlet_turns", 400_000, 100_000, {"alpha": 0.5}, 4, 1.0),
        ("dirichlet", 400_000, 20_000, {"alpha": 5.0, "least": 1, "held_out": 0.2}, 1, 0.75),
    ],
)
def test_many_clients_are_split_quickly(module, examples, clients, options, least, used):
    train = np.arange(examples, dtype=np.int32) % 10
    began = time.process_time()
    partition = registry.find("partitions", module).split(train, train[:1000], 10, rng(), clients=clients, **options)
    # It takes about a second; the bound only catches what grows faster than the data.
    assert time.process_time() - began < 10
    assert partition.train.sizes.min() >= least and partition.summary()["train_used"] >= used * examples


def everything(labels, first=0):
    """The same three examples for one client."""
    return Partition(shares(range(first, first + 3)), ClientExamples.empty(1), np.ones((1, labels), bool))


@pytest.mark.parametrize(
    ("result", "sentence"),
    [
        (None, "the partition iid: must be a `Partition`. Received: NoneType"),
        (everything(9), "the partition iid: belongs to data with 9 labels. Received: 10 labels"),
        (everything(10, 10**6), "the partition iid: belongs to other data: it refers to train example 1000002"),
    ],
)
def test_partitions_of_registered_plugins_are_checked(monkeypatch, result, sentence):
    monkeypatch.setitem(registry._registered["partitions"], "iid", "hetero_tf.data.partitions.iid")
    monkeypatch.setattr(iid, "split", lambda *arguments, **options: result)
    loaded = recipe.load("tiny/digits")
    assert sentence in refusal(split, loaded, load_data(loaded, None))
