"""What ways of splitting share, and the splits that deal labels, sizes or owners."""

import time

import numpy as np
import pytest
from splits import CIFAR, TEST, TRAIN, shares

from hetero_tf import recipe
from hetero_tf.base import registry
from hetero_tf.base.errors import InputError
from hetero_tf.data.dataset import Dataset, Split
from hetero_tf.partitions import class_deck, iid, labels, natural, quantity, splitting
from hetero_tf.partitions.partition import label_mask
from hetero_tf.partitions.shares import ClientExamples
from hetero_tf.partitions.statistics import label_counts, label_distances
from hetero_tf.process.data import split


def rng(seed=0):
    return np.random.default_rng(seed)


def test_cut_gives_the_least_and_then_the_parts():
    assert sorted(splitting.cut(17, 5, 2, None, rng())) in ([3, 3, 3, 3, 5], [3, 3, 3, 4, 4])
    assert splitting.cut(15, 5, 3, None, rng()).tolist() == [3] * 5
    found = splitting.cut(103, 3, 1, np.array([0.5, 0.25, 0.25]), rng())
    assert found.tolist() == [51, 26, 26]
    found = splitting.cut(12, 3, 0, np.array([0.99, 0.005, 0.005]), rng())
    assert found.sum() == 12 and found[0] >= 11


def test_shuffle_keeps_the_owners():
    given, seen = shares([9, 4, 6], [], [1, 0, 7, 8]), set()
    for seed in range(40):
        found = splitting.shuffle(given, rng(seed))
        assert [sorted(own) for own in found] == [[4, 6, 9], [], [0, 1, 7, 8]]
        seen.add(tuple(found[0]))
    assert len(seen) == 6


def test_hold_out_takes_the_last_or_the_first():
    given = shares([9, 4, 6, 2], [], [1], [3, 5])
    kept, held = splitting.hold_out(given, 0.5)
    assert [own.tolist() for own in kept] == [[9, 4], [], [1], [3]]
    assert [own.tolist() for own in held] == [[6, 2], [], [], [5]]
    kept, held = splitting.hold_out(given, 0.5, first=True)
    assert [own.tolist() for own in kept] == [[6, 2], [], [1], [5]]
    assert [own.tolist() for own in held] == [[9, 4], [], [], [3]]
    assert splitting.hold_out(given, 0.0)[0].ids.tolist() == given.ids.tolist()
    told = "`held_out` must be 0, or large enough that .*: the largest has 4. Received: held_out=0.2"
    with pytest.raises(InputError, match=told):
        splitting.hold_out(given, 0.2)


def test_own_test_examples_are_in_proportion_on_average():
    # Client 0 has 3 of 4 examples of label 0 and none of 1, client 2 has none: 10 test examples of 0, 4 of 1.
    train, test = np.array([0, 0, 0, 0, 1, 1], np.int32), np.repeat([0, 1, 2], [10, 4, 3]).astype(np.int32)
    found, means = shares([0, 1, 2], [3, 4, 5], []), np.zeros((3, 3))
    for seed in range(200):
        dealt = splitting.deal_test("own", train, test, 3, found, rng(seed))
        means += [np.bincount(test[own], minlength=3) / 200 for own in dealt]
        assert len(set(dealt.ids.tolist())) == 14
    np.testing.assert_allclose(means, [[7.5, 0, 0], [2.5, 4, 0], [0, 0, 0]], atol=0.15)


def test_other_test_examples_are_equal_shares():
    train = shares(*[[client] for client in range(7)])
    found = splitting.deal_test("contiguous", TRAIN, TEST, 10, train, rng())
    assert found.ids.tolist() == list(range(600))
    assert found.sizes.min() == 85 and found.sizes.sum() == 600
    mixed = splitting.deal_test("equal", TRAIN, TEST, 10, train, rng())
    assert sorted(mixed.ids) == list(range(600)) and mixed.ids.tolist() != found.ids.tolist()


def test_label_statistics_against_loops():
    rows = rng(3).integers(0, 6, (40, 5))
    for what in (TRAIN % 6, rows):
        given = ClientExamples.from_sizes(rng(4).permutation(40).astype(np.int32), [9, 0, 1, 30])
        client, label, count = label_counts(what, given, 6)
        table = np.zeros((4, 6))
        table[client, label] = count
        expected = np.array([np.bincount(what[own].reshape(-1), minlength=6) for own in given])
        assert (table == expected).all() and count.min() > 0
        share = expected / np.maximum(expected.sum(1, keepdims=True), 1)
        gap = np.abs(share - expected.sum(0) / expected.sum()).sum(1) / 2
        gap[1] = 0
        np.testing.assert_allclose(label_distances(what, given, 6), gap, atol=1e-12)


def test_shards_of_a_label_dealt_twice_are_both_kept():
    dropped, kept = (
        labels.split(TRAIN, TEST, 10, rng(2), clients=50, per_client=3, keep_duplicates=keep) for keep in (False, True)
    )
    np.testing.assert_array_equal(dropped.label_mask, kept.label_mask)
    assert dropped.label_mask.sum() < 150
    assert sorted(kept.train.ids.tolist()) == list(range(2000)) and sorted(kept.test.ids.tolist()) == list(range(600))
    assert len(dropped.train.ids) < 1950
    np.testing.assert_array_equal(label_mask(TRAIN, kept.train, 10), kept.label_mask)


@pytest.mark.parametrize("sizes", ["equal", "dirichlet"])
@pytest.mark.parametrize(("clients", "per_client"), [(11, 1), (7, 3), (40, 4), (3, 10)])
def test_a_deck_deals_every_label_equally_often(sizes, clients, per_client):
    found = class_deck.split(TRAIN, TEST, 10, rng(), clients=clients, per_client=per_client, sizes=sizes)
    assert sorted(found.train.ids.tolist()) == list(range(2000)) and sorted(found.test.ids.tolist()) == list(range(600))
    assert found.label_mask.sum(1).max() <= per_client
    owners = found.label_mask.sum(0)
    assert owners.min() >= 1 and owners.max() <= -(-clients * per_client // 10)
    np.testing.assert_array_equal(label_mask(TRAIN, found.train, 10), found.label_mask)
    assert (label_mask(TEST, found.test, 10) <= found.label_mask).all()


def test_a_label_is_cut_evenly_and_a_label_held_twice_gives_two_shares():
    train = np.arange(600, dtype=np.int32) % 3
    twice = 0
    for seed in range(30):
        found = class_deck.split(train, train, 3, rng(seed), clients=6, per_client=2)
        assert found.train.sizes.tolist() == [100] * 6
        for own, mask in zip(found.train, found.label_mask):
            assert np.bincount(train[own], minlength=3)[mask].tolist() in ([50, 50], [100])
        twice += (found.label_mask.sum(1) == 1).sum()
    assert twice > 5


def test_a_new_deal_of_the_test_split_has_other_labels():
    own, new = (class_deck.split(TRAIN, TEST, 10, rng(), clients=20, test=test) for test in ("own", "new"))
    np.testing.assert_array_equal(label_mask(TEST, own.test, 10), own.label_mask)
    other = label_mask(TEST, new.test, 10)
    assert (other & ~new.label_mask).sum() > 10 and other.sum(1).max() <= 2
    assert own.train.ids.tolist() == new.train.ids.tolist()


def test_labels_that_do_not_occur_are_not_dealt():
    found = class_deck.split(TRAIN[TRAIN > 3], TEST, 10, rng(), clients=12)
    assert found.label_mask.any(0).tolist() == [False] * 4 + [True] * 6
    assert set(TEST[found.test.ids]) == set(range(4, 10))


@pytest.mark.parametrize(
    ("sizes", "spread", "low", "high"),
    [("equal", 1.0, 0, 1), ("dirichlet", 10.0, 20, 45), ("dirichlet", 1.0, 75, 130), ("lognormal", 0.3, 20, 45)],
)
def test_quantities_spread_as_asked(sizes, spread, low, high):
    found = quantity.split(CIFAR, TEST, 10, rng(), clients=500, sizes=sizes, spread=spread)
    assert sorted(found.train.ids.tolist()) == list(range(50000))
    assert found.train.sizes.min() >= 1 and low <= np.std(found.train.sizes) <= high
    assert found.label_mask.sum(1).max() == 10


def test_quantities_in_the_order_of_the_data_and_of_the_test_split():
    found = quantity.split(TRAIN, TEST, 10, rng(), clients=10, sizes="dirichlet", least=30, shuffled=False)
    assert found.train.ids.tolist() == list(range(2000)) and found.train.sizes.min() >= 30
    assert np.abs(found.test.sizes - found.train.sizes * 0.3).max() < 4
    other = quantity.split(TRAIN, TEST, 10, rng(), clients=10, sizes="dirichlet", shuffled=False, test="new")
    assert other.test.ids.tolist() == list(range(600))
    assert np.abs(other.test.sizes - other.train.sizes * 0.3).max() > 10


def test_quantities_of_text_deal_rows():
    rows = rng().integers(0, 9, (50, 8)).astype(np.int32)
    for test in ["own", "new", "equal", "contiguous"]:
        found = quantity.split(rows, rows, 9, rng(), clients=6, test=test)
        assert sorted(found.train.ids.tolist()) == list(range(50)) and found.test.ids.size == 0


OWNERS = np.array([40, 7, 7, 40, 3, 900000000, 7, 3], np.int32)
TEST_OWNERS = np.array([3, 7, 5, 40, 7], np.int32)


def owned(clients, train=TRAIN[:8], test=TEST[:5], train_owners=OWNERS, test_owners=TEST_OWNERS, seed=0, **options):
    return natural.split(
        train, test, 10, rng(seed), clients=clients, train_owners=train_owners, test_owners=test_owners, **options
    )


def test_natural_clients_are_the_owners():
    found = owned(4)
    assert [sorted(own) for own in found.train] == [[4, 7], [1, 2, 6], [0, 3], [5]]
    assert [own.tolist() for own in found.test] == [[0], [1, 4], [3], []]
    np.testing.assert_array_equal(label_mask(TRAIN, found.train, 10), found.label_mask)
    assert [sorted(own) for own in owned(3, least=2).train] == [[4, 7], [1, 2, 6], [0, 3]]


def test_some_of_many_owners_are_drawn():
    seen = {tuple(map(tuple, map(sorted, owned(2, seed=seed).train))) for seed in range(60)}
    assert len(seen) == 6


def test_natural_clients_of_text_have_no_test_rows():
    rows = rng().integers(0, 9, (8, 4)).astype(np.int32)
    found = owned(4, train=rows, test=rows[:5], test_owners=None)
    assert [own.size for own in found.train] == [2, 3, 2, 1] and found.test.ids.size == 0


def test_the_recipe_hands_owners_to_the_way_that_takes_them():
    images = np.zeros((8, 4, 4, 1), np.uint8)
    data = Dataset(Split(images, TRAIN[:8], OWNERS), Split(images[:5], TEST[:5], TEST_OWNERS), 10, "s")
    for overrides, sizes in (["partition.name=natural"], [2, 3, 2, 1]), ([], [2, 2, 2, 2]):
        found = split(recipe.load("digits", ["partition.clients=4", "round.clients=2", *overrides]), data)
        assert found.train.sizes.tolist() == sizes


OF_MANY = {"train_owners": rng().permutation(600_000).astype(np.int32) % 150_000, "test_owners": None, "test": "equal"}


@pytest.mark.parametrize(
    ("way", "examples", "clients", "options", "least", "used"),
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
def test_many_clients_are_a_matter_of_moments(way, examples, clients, options, least, used):
    train = np.arange(examples, dtype=np.int32) % 10
    began = time.process_time()
    found = registry.find("partitions", way).split(train, train[:1000], 10, rng(), clients=clients, **options)
    # It takes about a second; the bound only catches what grows faster than the data.
    assert time.process_time() - began < 10
    assert found.train.sizes.min() >= least and found.summary()["train_used"] >= used * examples


FEW = np.arange(20, dtype=np.int32) % 10
NOBODY = r"got no training example, the first of them client \d+; use"
OWNED = "the number of owners with at least"
UNOWNED = "`test` must be equal or contiguous: the data name no owners of test examples"
DEALT = (
    r"`per_client` must be in 1..10, and `clients` times `per_client` more than the 10 labels, so that each is dealt"
)


@pytest.mark.parametrize(
    ("way", "options", "told"),
    [
        (iid, {"clients": 21}, r"`clients` must be in 1..20, the number of training examples .* Received: clients=21"),
        (iid, {"clients": 0}, r"`clients` must be in 1..20.* Received: clients=0"),
        (labels, {"clients": 21}, r"`clients` must be in 1..20.* Received: clients=21"),
        (labels, {"clients": 10, "per_client": 11}, r"`per_client` must be in 1..10, .* Received: per_client=11"),
        (labels, {"clients": 10, "per_client": 0}, r"`per_client` must be in 1..10, .* Received: per_client=0"),
        (labels, {"clients": 7, "per_client": 2}, r"a multiple of the 10 labels. Received: clients=7, per_client=2"),
        (labels, {"clients": 15, "per_client": 2}, r"an example for each of its 3 shards; label 0 has 2; use fewer"),
        (class_deck, {"clients": 5}, f"{DEALT}. Received: clients=5, per_client=2"),
        (class_deck, {"clients": 5, "per_client": 11}, "`per_client` must be in 1..10.* Received: .*per_client=11"),
        (class_deck, {"clients": 5, "per_client": 0}, "`per_client` must be in 1..10"),
        (
            class_deck,
            {"clients": 10, "least": 2},
            r"`least` must be in 0..1: 2 examples of label 0 are cut into 2 shares. "
            "Received: least=2",
        ),
        (class_deck, {"clients": 10, "test_least": 2}, "`test_least` must be in 0..1: 2 examples of label 0"),
        (
            class_deck,
            {"clients": 20, "per_client": 1, "least": 0, "sizes": "dirichlet"},
            rf"\d of 20 clients {NOBODY} fewer clients or a larger least",
        ),
        (quantity, {"clients": 21}, "`clients` must be in 1..20, .* Received: clients=21"),
        (
            quantity,
            {"clients": 4, "least": 6},
            "`least` must be in 0..5: 20 training examples are cut into 4 shares. Received: least=6",
        ),
        (
            quantity,
            {"clients": 19, "least": 0},
            rf"\d+ of 19 clients {NOBODY} a larger least or fewer clients. Received: clients=19, least=0",
        ),
    ],
)
def test_impossible_splits_are_refused(way, options, told):
    with pytest.raises(InputError, match=told):
        way.split(FEW, FEW, 10, rng(), **options)


@pytest.mark.parametrize(
    ("clients", "options", "told"),
    [
        (5, {}, f"`clients` must be in 1..4, {OWNED} 1 training examples. Received: clients=5"),
        (2, {"least": 3}, f"in 1..1, {OWNED} 3 training examples. Received: clients=2"),
        (0, {}, "`clients` must be in 1..4"),
        (2, {"train_owners": None}, "the partition `natural` needs data that name the owner of each example"),
        (2, {"test_owners": None}, f"{UNOWNED}. Received: test='own'"),
    ],
)
def test_impossible_owners_are_refused(clients, options, told):
    with pytest.raises(InputError, match=told):
        owned(clients, **options)
