"""Functions that partitions share, and the partitions by labels, sizes and owners."""

import time

import numpy as np
import pytest
from refusals import refusal
from splits import CIFAR, TEST, TRAIN, shares

from hetero_tf import recipe
from hetero_tf.base import registry
from hetero_tf.base.errors import InputError
from hetero_tf.data.dataset import Dataset, Split
from hetero_tf.partitions import class_deck, iid, labels, natural, quantity, splitting
from hetero_tf.partitions.partition import Partition, label_mask
from hetero_tf.partitions.shares import ClientExamples
from hetero_tf.partitions.statistics import label_counts, label_distances
from hetero_tf.process.data import load_data, split


def rng(seed=0):
    return np.random.default_rng(seed)


def test_cut_gives_the_least_and_then_the_parts():
    assert sorted(splitting.cut(17, 5, 2, None, rng())) in ([3, 3, 3, 3, 5], [3, 3, 3, 4, 4])
    assert splitting.cut(15, 5, 3, None, rng()).tolist() == [3] * 5
    sizes = splitting.cut(103, 3, 1, np.array([0.5, 0.25, 0.25]), rng())
    assert sizes.tolist() == [51, 26, 26]
    sizes = splitting.cut(12, 3, 0, np.array([0.99, 0.005, 0.005]), rng())
    assert sizes.sum() == 12 and sizes[0] >= 11


def test_shuffle_keeps_the_owners():
    examples, seen = shares([9, 4, 6], [], [1, 0, 7, 8]), set()
    for seed in range(40):
        shuffled = splitting.shuffle(examples, rng(seed))
        assert [sorted(ids) for ids in shuffled] == [[4, 6, 9], [], [0, 1, 7, 8]]
        seen.add(tuple(shuffled[0]))
    assert len(seen) == 6


def test_hold_out_selects_the_last_or_first_examples():
    examples = shares([9, 4, 6, 2], [], [1], [3, 5])
    train, validation = splitting.hold_out(examples, 0.5)
    assert [ids.tolist() for ids in train] == [[9, 4], [], [1], [3]]
    assert [ids.tolist() for ids in validation] == [[6, 2], [], [], [5]]
    train, validation = splitting.hold_out(examples, 0.5, first=True)
    assert [ids.tolist() for ids in train] == [[6, 2], [], [1], [5]]
    assert [ids.tolist() for ids in validation] == [[9, 4], [], [], [3]]
    assert splitting.hold_out(examples, 0.0)[0].ids.tolist() == examples.ids.tolist()
    message = "`held_out` must be 0, or large enough for one example .*, which has 4. Received: held_out=0.2"
    with pytest.raises(InputError, match=message):
        splitting.hold_out(examples, 0.2)


def test_test_examples_are_proportional_on_average():
    # Client 0 has 3 of 4 examples of label 0 and none of 1, client 2 has none: 10 test examples of 0, 4 of 1.
    train, test = np.array([0, 0, 0, 0, 1, 1], np.int32), np.repeat([0, 1, 2], [10, 4, 3]).astype(np.int32)
    examples, means = shares([0, 1, 2], [3, 4, 5], []), np.zeros((3, 3))
    for seed in range(200):
        assigned = splitting.split_test("own", train, test, 3, examples, rng(seed))
        means += [np.bincount(test[ids], minlength=3) / 200 for ids in assigned]
        assert len(set(assigned.ids.tolist())) == 14
    np.testing.assert_allclose(means, [[7.5, 0, 0], [2.5, 4, 0], [0, 0, 0]], atol=0.15)


def test_other_test_examples_are_equal_shares():
    train = shares(*[[client] for client in range(7)])
    contiguous = splitting.split_test("contiguous", TRAIN, TEST, 10, train, rng())
    assert contiguous.ids.tolist() == list(range(600))
    assert contiguous.sizes.min() == 85 and contiguous.sizes.sum() == 600
    equal = splitting.split_test("equal", TRAIN, TEST, 10, train, rng())
    assert sorted(equal.ids) == list(range(600)) and equal.ids.tolist() != contiguous.ids.tolist()


def test_label_statistics_against_loops():
    rows = rng(3).integers(0, 6, (40, 5))
    for data in (TRAIN % 6, rows):
        examples = ClientExamples.from_sizes(rng(4).permutation(40).astype(np.int32), [9, 0, 1, 30])
        client, label, count = label_counts(data, examples, 6)
        table = np.zeros((4, 6))
        table[client, label] = count
        expected = np.array([np.bincount(data[ids].reshape(-1), minlength=6) for ids in examples])
        assert (table == expected).all() and count.min() > 0
        share = expected / np.maximum(expected.sum(1, keepdims=True), 1)
        gap = np.abs(share - expected.sum(0) / expected.sum()).sum(1) / 2
        gap[1] = 0
        np.testing.assert_allclose(label_distances(data, examples, 6), gap, atol=1e-12)


def test_duplicate_labels_give_two_shards():
    without_duplicates, with_duplicates = (
        labels.split(TRAIN, TEST, 10, rng(2), clients=50, per_client=3, keep_duplicates=keep) for keep in (False, True)
    )
    np.testing.assert_array_equal(without_duplicates.label_mask, with_duplicates.label_mask)
    assert without_duplicates.label_mask.sum() < 150
    assert sorted(with_duplicates.train.ids.tolist()) == list(range(2000)) and sorted(
        with_duplicates.test.ids.tolist()
    ) == list(range(600))
    assert len(without_duplicates.train.ids) < 1950
    np.testing.assert_array_equal(label_mask(TRAIN, with_duplicates.train, 10), with_duplicates.label_mask)


@pytest.mark.parametrize("sizes", ["equal", "dirichlet"])
@pytest.mark.parametrize(("clients", "per_client"), [(11, 1), (7, 3), (40, 4), (3, 10)])
def test_deck_uses_every_label_equally_often(sizes, clients, per_client):
    partition = class_deck.split(TRAIN, TEST, 10, rng(), clients=clients, per_client=per_client, sizes=sizes)
    assert sorted(partition.train.ids.tolist()) == list(range(2000)) and sorted(partition.test.ids.tolist()) == list(
        range(600)
    )
    assert partition.label_mask.sum(1).max() <= per_client
    owners = partition.label_mask.sum(0)
    assert owners.min() >= 1 and owners.max() <= -(-clients * per_client // 10)
    np.testing.assert_array_equal(label_mask(TRAIN, partition.train, 10), partition.label_mask)
    assert (label_mask(TEST, partition.test, 10) <= partition.label_mask).all()


def test_label_is_divided_evenly_and_duplicate_label_gives_two_shares():
    train = np.arange(600, dtype=np.int32) % 3
    twice = 0
    for seed in range(30):
        partition = class_deck.split(train, train, 3, rng(seed), clients=6, per_client=2)
        assert partition.train.sizes.tolist() == [100] * 6
        for ids, mask in zip(partition.train, partition.label_mask):
            assert np.bincount(train[ids], minlength=3)[mask].tolist() in ([50, 50], [100])
        twice += (partition.label_mask.sum(1) == 1).sum()
    assert twice > 5


def test_new_draw_of_the_test_split_has_other_labels():
    ids, new = (class_deck.split(TRAIN, TEST, 10, rng(), clients=20, test=test) for test in ("own", "new"))
    np.testing.assert_array_equal(label_mask(TEST, ids.test, 10), ids.label_mask)
    other = label_mask(TEST, new.test, 10)
    assert (other & ~new.label_mask).sum() > 10 and other.sum(1).max() <= 2
    assert ids.train.ids.tolist() == new.train.ids.tolist()


def test_absent_labels_are_not_assigned():
    partition = class_deck.split(TRAIN[TRAIN > 3], TEST, 10, rng(), clients=12)
    assert partition.label_mask.any(0).tolist() == [False] * 4 + [True] * 6
    assert set(TEST[partition.test.ids]) == set(range(4, 10))


@pytest.mark.parametrize(
    ("sizes", "spread", "low", "high"),
    [("equal", 1.0, 0, 1), ("dirichlet", 10.0, 20, 45), ("dirichlet", 1.0, 75, 130), ("lognormal", 0.3, 20, 45)],
)
def test_quantities_follow_the_requested_spread(sizes, spread, low, high):
    partition = quantity.split(CIFAR, TEST, 10, rng(), clients=500, sizes=sizes, spread=spread)
    assert sorted(partition.train.ids.tolist()) == list(range(50000))
    assert partition.train.sizes.min() >= 1 and low <= np.std(partition.train.sizes) <= high
    assert partition.label_mask.sum(1).max() == 10


def test_quantities_in_the_order_of_the_data_and_of_the_test_split():
    partition = quantity.split(TRAIN, TEST, 10, rng(), clients=10, sizes="dirichlet", least=30, shuffled=False)
    assert partition.train.ids.tolist() == list(range(2000)) and partition.train.sizes.min() >= 30
    assert np.abs(partition.test.sizes - partition.train.sizes * 0.3).max() < 4
    other = quantity.split(TRAIN, TEST, 10, rng(), clients=10, sizes="dirichlet", shuffled=False, test="new")
    assert other.test.ids.tolist() == list(range(600))
    assert np.abs(other.test.sizes - other.train.sizes * 0.3).max() > 10
    # The least number of test examples is at most the mean.
    small = quantity.split(TRAIN, TEST[:250], 10, rng(), clients=10, sizes="dirichlet", least=30, test="new")
    assert small.test.sizes.tolist() == [25] * 10 and small.train.sizes.max() > 210


def test_quantities_of_text_assign_rows():
    rows = rng().integers(0, 9, (50, 8)).astype(np.int32)
    for test in ["own", "new", "equal", "contiguous"]:
        partition = quantity.split(rows, rows, 9, rng(), clients=6, test=test)
        assert sorted(partition.train.ids.tolist()) == list(range(50)) and partition.test.ids.size == 0


OWNERS = np.array([40, 7, 7, 40, 3, 900000000, 7, 3], np.int32)
TEST_OWNERS = np.array([3, 7, 5, 40, 7], np.int32)


def split_by_owner(
    clients, train=TRAIN[:8], test=TEST[:5], train_owners=OWNERS, test_owners=TEST_OWNERS, seed=0, **options
):
    return natural.split(
        train, test, 10, rng(seed), clients=clients, train_owners=train_owners, test_owners=test_owners, **options
    )


def test_natural_clients_are_the_owners():
    partition = split_by_owner(4)
    assert [sorted(ids) for ids in partition.train] == [[4, 7], [1, 2, 6], [0, 3], [5]]
    assert [ids.tolist() for ids in partition.test] == [[0], [1, 4], [3], []]
    np.testing.assert_array_equal(label_mask(TRAIN, partition.train, 10), partition.label_mask)
    assert [sorted(ids) for ids in split_by_owner(3, least=2).train] == [[4, 7], [1, 2, 6], [0, 3]]


def test_some_of_many_owners_are_drawn():
    seen = {tuple(map(tuple, map(sorted, split_by_owner(2, seed=seed).train))) for seed in range(60)}
    assert len(seen) == 6


def test_natural_clients_of_text_have_no_test_rows():
    rows = rng().integers(0, 9, (8, 4)).astype(np.int32)
    partition = split_by_owner(4, train=rows, test=rows[:5], test_owners=None)
    assert [ids.size for ids in partition.train] == [2, 3, 2, 1] and partition.test.ids.size == 0


def test_recipe_passes_owners_to_the_partition():
    images = np.zeros((8, 4, 4, 1), np.uint8)
    data = Dataset(Split(images, TRAIN[:8], OWNERS), Split(images[:5], TEST[:5], TEST_OWNERS), 10, "s")
    for overrides, sizes in (["partition.name=natural"], [2, 3, 2, 1]), ([], [2, 2, 2, 2]):
        partition = split(recipe.load("digits", ["partition.clients=4", "round.clients=2", *overrides]), data)
        assert partition.train.sizes.tolist() == sizes


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


FEW = np.arange(20, dtype=np.int32) % 10
EMPTY = r"have no training example, the first is client \d+; use"
OWNER_COUNT = "the number of owners with at least"
NO_TEST_OWNERS = "`test` must be equal or contiguous: the data have no owners of test examples"
DECK_TOO_LARGE = (
    r"`per_client` must be in 1..10, and `clients` times `per_client` must exceed the number of labels, 10, so that "
    "each label is used"
)


@pytest.mark.parametrize(
    ("module", "options", "message"),
    [
        (iid, {"clients": 21}, r"`clients` must be in 1..20, the number of training examples .* Received: clients=21"),
        (iid, {"clients": 0}, r"`clients` must be in 1..20.* Received: clients=0"),
        (labels, {"clients": 21}, r"`clients` must be in 1..20.* Received: clients=21"),
        (labels, {"clients": 10, "per_client": 11}, r"`per_client` must be in 1..10, .* Received: per_client=11"),
        (labels, {"clients": 10, "per_client": 0}, r"`per_client` must be in 1..10, .* Received: per_client=0"),
        (labels, {"clients": 7, "per_client": 2}, r"a multiple of the 10 labels. Received: clients=7, per_client=2"),
        (
            labels,
            {"clients": 15, "per_client": 2},
            r"at least one example for each of its 3 shards, but label 0 has 2 examples; use fewer",
        ),
        (
            labels,
            {"clients": 5, "per_client": 4, "draw": "consecutive"},
            "`clients` must be a multiple of the 10 labels with draw: consecutive. Received: clients=5",
        ),
        (class_deck, {"clients": 5}, f"{DECK_TOO_LARGE}. Received: clients=5, per_client=2"),
        (class_deck, {"clients": 5, "per_client": 11}, "`per_client` must be in 1..10.* Received: .*per_client=11"),
        (class_deck, {"clients": 5, "per_client": 0}, "`per_client` must be in 1..10"),
        (
            class_deck,
            {"clients": 10, "least": 2},
            r"`least` must be in 0..1: 2 examples of label 0 are split into 2 shares. "
            "Received: least=2",
        ),
        (class_deck, {"clients": 10, "test_least": 2}, "`test_least` must be in 0..1: 2 examples of label 0"),
        (
            class_deck,
            {"clients": 20, "per_client": 1, "least": 0, "sizes": "dirichlet"},
            rf"\d of 20 clients {EMPTY} fewer clients or a larger least",
        ),
        (quantity, {"clients": 21}, "`clients` must be in 1..20, .* Received: clients=21"),
        (
            quantity,
            {"clients": 4, "least": 6},
            "`least` must be in 0..5: 20 training examples are split into 4 shares. Received: least=6",
        ),
        (
            quantity,
            {"clients": 19, "least": 0},
            rf"\d+ of 19 clients {EMPTY} a larger least or fewer clients. Received: clients=19, least=0",
        ),
    ],
)
def test_impossible_splits_are_rejected(module, options, message):
    with pytest.raises(InputError, match=message):
        module.split(FEW, FEW, 10, rng(), **options)


@pytest.mark.parametrize(
    ("clients", "options", "message"),
    [
        (5, {}, f"`clients` must be in 1..4, {OWNER_COUNT} 1 training examples. Received: clients=5"),
        (2, {"least": 3}, f"in 1..1, {OWNER_COUNT} 3 training examples. Received: clients=2"),
        (0, {}, "`clients` must be in 1..4"),
        (2, {"train_owners": None}, "the partition `natural` needs data with an owner for each example"),
        (2, {"test_owners": None}, f"{NO_TEST_OWNERS}. Received: test='own'"),
    ],
)
def test_impossible_owners_are_rejected(clients, options, message):
    with pytest.raises(InputError, match=message):
        split_by_owner(clients, **options)


@pytest.mark.parametrize(
    ("result", "sentence"),
    [
        (lambda: None, "the partition iid: must be a `Partition`. Received: NoneType"),
        (lambda: everything(9), "the partition iid: belongs to data with 9 labels. Received: 10 labels"),
        (lambda: everything(10, 10**6), "the partition iid: belongs to other data: it refers to train example 1000002"),
    ],
)
def test_partitions_of_registered_plugins_are_checked(monkeypatch, result, sentence):
    monkeypatch.setitem(registry._registered["partitions"], "iid", "hetero_tf.partitions.iid")
    monkeypatch.setattr(iid, "split", lambda *arguments, **options: result())
    loaded = recipe.load("tiny/digits")
    assert sentence in refusal(split, loaded, load_data(loaded, None))


def everything(labels, first=0):
    """The same three examples for one client."""
    examples = ClientExamples.from_lists([np.arange(first, first + 3, dtype=np.int32)])
    return Partition(examples, ClientExamples.empty(1), np.ones((1, labels), bool))
