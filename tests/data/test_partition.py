"""The examples of clients: their arrays, statistics, picture and file, and what partitioners share."""

import dataclasses
import json
import time

import folders
import numpy as np
import pytest
from refusals import refusal
from splits import TEST, TRAIN, rng, shares

from hetero_tf import recipe
from hetero_tf.base import registry
from hetero_tf.base.errors import InputError
from hetero_tf.data.partitions import drawing, iid, labels
from hetero_tf.data.partitions import partition as partitions
from hetero_tf.data.partitions.partition import ClientExamples, Partition, label_counts, label_mask
from hetero_tf.run.data import load_data, split

LISTS = [[4, 1], [], [7], [0, 9, 2]]


def test_sequence_behaves_like_a_tuple_of_arrays_with_sizes_and_owners():
    examples = shares(*LISTS)
    assert len(examples) == 4
    assert [ids.tolist() for ids in examples] == LISTS
    assert [examples[client].tolist() for client in range(4)] == LISTS
    assert [examples[client].tolist() for client in range(-4, 0)] == LISTS
    assert examples[np.int32(3)].tolist() == LISTS[3]
    assert {ids.dtype for ids in examples} == {examples[0].dtype} == {np.dtype(np.int32)}
    assert np.concatenate(examples).tolist() == examples.ids.tolist() == [4, 1, 7, 0, 9, 2]
    assert examples.sizes.tolist() == [2, 0, 1, 3]
    assert examples.owners.tolist() == [0, 0, 2, 3, 3, 3]
    assert examples.owners.dtype == np.int32
    again = ClientExamples.from_sizes(examples.ids, examples.sizes)
    assert again.starts.tolist() == examples.starts.tolist() == [0, 2, 2, 3, 6]


def test_clients_may_have_no_examples_and_one_out_of_range_is_rejected():
    none = np.zeros(0, np.int32)
    for examples in (ClientExamples.empty(3), shares([], [], []), ClientExamples.from_sizes(none, [0] * 3)):
        assert [ids.tolist() for ids in examples] == [[], [], []] and examples.owners.size == 0
    empty = ClientExamples.empty(0), ClientExamples.from_lists([]), ClientExamples.from_sizes(none, [])
    assert list(map(len, empty)) == [0, 0, 0]
    for client in (4, -5, 10**9):
        with pytest.raises(IndexError, match=f"`client` must be in 0..3. Received: client={client}"):
            shares(*LISTS)[client]


IDS = np.arange(4, dtype=np.int32)


def test_invalid_arrays_are_rejected():
    for ids, starts, message in (
        (IDS.astype(np.int64), [0, 4], "`ids` must be int32 with one axis. Received: int64 (4,)"),
        (IDS, [[0, 4]], "`starts` must be int64 with one axis. Received: int64 (1, 2)"),
        (IDS, [0, 3], "the sizes of the clients must add up to 4, the number of ids"),
        (IDS, [1, 4], "the sizes of the clients must add up to 4"),
        (IDS, [0, 3, 2, 4], "the sizes of the clients must add up to 4"),
        (IDS, np.zeros(0, np.int64), "the sizes of the clients must add up to 4"),
        (IDS - 2, [0, 0, 1, 4], "`ids` must be example ids from 0. Received: -2"),
    ):
        assert message in refusal(ClientExamples, ids, np.asarray(starts))
    # In int32 these would add up to 4.
    assert "must add up to 4" in refusal(ClientExamples.from_sizes, IDS, np.array([2**30] * 4 + [4], np.int32))


def test_label_statistics_against_loops():
    for data in (TRAIN % 6, rng(3).integers(0, 6, (40, 5))):
        examples = ClientExamples.from_sizes(rng(4).permutation(40).astype(np.int32), [9, 0, 1, 30])
        client, label, count = label_counts(data, examples, 6)
        table = np.zeros((4, 6))
        table[client, label] = count
        expected = np.array([np.bincount(data[ids].reshape(-1), minlength=6) for ids in examples])
        assert (table == expected).all() and count.min() > 0
        share = expected / np.maximum(expected.sum(1, keepdims=True), 1)
        gap = np.abs(share - expected.sum(0) / expected.sum()).sum(1) / 2
        gap[1] = 0
        summary = Partition(examples, ClientExamples.empty(4), np.ones((4, 6), bool)).summary(data)["label_distance"]
        expected = {name: getattr(np, name)(gap) for name in ("min", "mean", "std", "max")}
        assert summary == pytest.approx(expected, abs=1e-12)


def test_cut_gives_the_least_and_then_the_parts_and_shuffle_keeps_the_owners():
    assert sorted(partitions.cut(17, 5, 2, None, rng())) in ([3, 3, 3, 3, 5], [3, 3, 3, 4, 4])
    assert partitions.cut(15, 5, 3, None, rng()).tolist() == [3] * 5
    assert partitions.cut(103, 3, 1, np.array([0.5, 0.25, 0.25]), rng()).tolist() == [51, 26, 26]
    sizes = partitions.cut(12, 3, 0, np.array([0.99, 0.005, 0.005]), rng())
    assert sizes.sum() == 12 and sizes[0] >= 11
    shuffled = [partitions.shuffle(shares([9, 4, 6], [], [1, 0, 7, 8]), rng(seed)) for seed in range(40)]
    assert all([sorted(ids) for ids in each] == [[4, 6, 9], [], [0, 1, 7, 8]] for each in shuffled)
    assert len({tuple(each[0]) for each in shuffled}) == 6


def test_hold_out_selects_the_last_or_first_examples():
    examples = shares([9, 4, 6, 2], [], [1], [3, 5])
    train, validation = partitions.hold_out(examples, 0.5)
    assert [ids.tolist() for ids in train] == [[9, 4], [], [1], [3]]
    assert [ids.tolist() for ids in validation] == [[6, 2], [], [], [5]]
    train, validation = partitions.hold_out(examples, 0.5, first=True)
    assert [ids.tolist() for ids in train] == [[6, 2], [], [1], [5]]
    assert [ids.tolist() for ids in validation] == [[9, 4], [], [], [3]]
    assert partitions.hold_out(examples, 0.0)[0].ids.tolist() == examples.ids.tolist()
    message = "`held_out` must be 0, or large enough for one example .*, which has 4. Received: held_out=0.2"
    with pytest.raises(InputError, match=message):
        partitions.hold_out(examples, 0.2)


def test_test_examples_are_proportional_on_average_or_equal_shares():
    def build(test, test_labels, train, lists, seed=0, classes=10):
        return partitions.build_partition(shares(*lists), 0.0, test, train, test_labels, classes, rng(seed)).test

    # Client 0 has 3 of 4 examples of label 0 and none of 1: 10 test examples of 0, 4 of 1.
    train, test = np.array([0, 0, 0, 0, 1, 1], np.int32), np.repeat([0, 1, 2], [10, 4, 3]).astype(np.int32)
    means = np.zeros((2, 3))
    for seed in range(200):
        assigned = build("own", test, train, [[0, 1, 2], [3, 4, 5]], seed, 3)
        means += [np.bincount(test[ids], minlength=3) / 200 for ids in assigned]
        assert len(set(assigned.ids.tolist())) == 14
    np.testing.assert_allclose(means, [[7.5, 0, 0], [2.5, 4, 0]], atol=0.15)
    contiguous, equal = (build(test, TEST, TRAIN, [[n] for n in range(7)]) for test in ("contiguous", "equal"))
    assert contiguous.ids.tolist() == list(range(600)) == sorted(equal.ids) != equal.ids.tolist()
    assert contiguous.sizes.min() == 85 and contiguous.sizes.sum() == 600


def test_long_rows_of_text_are_looked_at_in_blocks(monkeypatch):
    rows = rng().integers(0, 40, (17, 9)).astype(np.int32)
    examples = ClientExamples.from_sizes(rng(1).permutation(17).astype(np.int32), [5, 0, 9, 3])
    for block in (1, 20, 2**22):
        monkeypatch.setattr(partitions, "BLOCK", block)
        for ids, mask in zip(examples, label_mask(rows, examples, 41), strict=True):
            assert set(np.flatnonzero(mask)) == set(rows[ids].reshape(-1).tolist())


MASK, NONE = np.array([[1, 0], [1, 1]], bool), shares([], [])


def test_partitions_are_checked_when_made():
    for arguments, message in (
        ((shares([0]), NONE, MASK), r"`train` must have one entry for each of the 2 clients .* Received: 1"),
        ((shares([0], [1]), shares([]), MASK), "`test` must have one entry for each of the 2 clients"),
        ((shares([0], [1]), NONE, MASK, shares([7])), "`held_out` must have one entry for each of the 2 clients"),
        ((NONE, NONE, MASK.astype(int)), r"`label_mask` must be bool \[clients, classes\]. Received: int64"),
        (
            (shares([4, 5], [6]), NONE, MASK, shares([6], [7])),
            "`held_out` and `train` must not overlap. Received: example 6 in both",
        ),
    ):
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
        (shares([4, 5], [6]), NONE, MASK),
        (shares([4], [5, 6]), NONE, MASK),
        (shares([4, 5], []), shares([], [6]), MASK),
        (shares([4, 5], [6]), NONE, ~MASK),
        (shares([4, 5], [6]), NONE, MASK, shares([7], [])),
    ]
    assert len({Partition(*each).sha256 for each in others}) == 5


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


def test_no_flip_or_cut_of_a_saved_partition_is_silent(saved):
    partition, path = saved
    for broken in folders.damaged(path.read_bytes(), 90, cuts=3):
        path.write_bytes(broken)
        try:
            assert Partition.load(path).sha256 == partition.sha256
        except InputError as error:
            assert str(path) in str(error)


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


def test_partitions_of_registered_plugins_are_checked(monkeypatch):
    monkeypatch.setitem(registry._registered["partitions"], "iid", "hetero_tf.data.partitions.iid")
    loaded, nine = recipe.load("tiny/digits"), Partition(shares(range(3)), shares([]), np.ones((1, 9), bool))
    for result, sentence in (
        (None, "must be a `Partition`. Received: NoneType"),
        (nine, "belongs to data with 9 labels."),
    ):
        monkeypatch.setattr(iid, "split", lambda *arguments, result=result, **options: result)
        assert f"the partition iid: {sentence}" in refusal(split, loaded, load_data(loaded, None))


LABELS = np.array([0, 0, 1, 1, 2, 2, 2, 2], np.int32)


def partition(lists):
    train = shares(*lists)
    return Partition(train, ClientExamples.empty(len(lists)), label_mask(LABELS, train, 3))


def test_neighbours_share_columns_and_rows_where_there_are_too_many():
    clients = 3 * drawing.COLUMNS + 7
    labels = np.arange(2 * clients, dtype=np.int32) % 1000
    train = ClientExamples.from_sizes(np.arange(2 * clients, dtype=np.int32), np.full(clients, 2))
    sizes, shares_of_labels = drawing.table(
        Partition(train, ClientExamples.empty(clients), np.ones((clients, 1000), bool)), labels
    )
    assert sizes.tolist() == [2] * drawing.COLUMNS
    assert shares_of_labels.shape == (drawing.ROWS, drawing.COLUMNS)
    np.testing.assert_allclose(shares_of_labels.sum(axis=0), 1)


def test_validation_examples_are_stacked_on_the_bars_and_all_axes_have_names():
    """Sizes and labels are those of training; the figure has further bars where examples are held out."""
    figures = pytest.importorskip("matplotlib.figure")
    split = partition([[0, 1, 2], [4, 5, 6]])
    with_validation = dataclasses.replace(split, held_out=shares([3], [7]))
    for one, other in zip(drawing.table(split, LABELS), drawing.table(with_validation, LABELS)):
        np.testing.assert_array_equal(one, other)
    for drawn, bars in ((split, 1), (with_validation, 2)):
        figure = figures.Figure(layout="constrained")
        drawing.draw_into(figure, drawn, *drawing.table(drawn, LABELS), "share")
        assert len(figure.axes[0].patches) == bars
    above, below, bar = figure.axes
    names = (above.get_ylabel(), below.get_xlabel(), below.get_ylabel(), bar.get_ylabel())
    assert names == ("examples", "client id", "label", "share")


def test_plot_without_data_shows_labels_of_clients_whose_neighbours_may_share_a_cell(monkeypatch):
    split = partition([[0, 1, 2], [4, 5, 6, 7], [0]])
    _, shares_of_labels = drawing.table(split, LABELS)
    np.testing.assert_allclose(shares_of_labels, [[2 / 3, 0, 1], [1 / 3, 0, 0], [0, 1, 0]])
    sizes, shares_of_labels = drawing.table(split)
    assert sizes.tolist() == [3, 4, 1]
    np.testing.assert_array_equal(shares_of_labels, split.label_mask.T)
    monkeypatch.setattr(drawing, "COLUMNS", 2)
    monkeypatch.setattr(drawing, "ROWS", 2)
    split = partition([[0], [0, 2], [4], [4, 0]])
    sizes, shares_of_labels = drawing.table(split)
    assert sizes.tolist() == [1.5, 1.5]
    # Labels 0 and 1 share a row, and two clients each a column.
    cells = split.label_mask.astype(float)
    expected = [[cells[:2, :2].mean(), cells[2:, :2].mean()], [cells[:2, 2].mean(), cells[2:, 2].mean()]]
    np.testing.assert_allclose(shares_of_labels, expected)


@pytest.mark.parametrize(("labels_", "numbers"), [(3, 6), (40, 0)])
def test_coverage_has_a_row_for_each_level(labels_, numbers):
    panel = pytest.importorskip("matplotlib.figure").Figure(layout="constrained").subplots()
    coverage = np.arange(2 * labels_).reshape(2, labels_)
    drawing.draw_coverage(panel, coverage, ("a", "b"))
    np.testing.assert_array_equal(panel.images[0].get_array(), coverage)
    assert [tick.get_text() for tick in panel.get_yticklabels()] == ["a", "b"] and len(panel.texts) == numbers
