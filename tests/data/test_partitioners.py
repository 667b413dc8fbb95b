"""What each partitioner promises beyond the contract of all, and the requests that each rejects."""

from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
from splits import CIFAR, FEW, TEST, TRAIN, mnist_labels, rng, shares

from hetero_tf import recipe
from hetero_tf.base import registry
from hetero_tf.base.errors import InputError
from hetero_tf.data.codecs import picture
from hetero_tf.data.dataset import Dataset, Split
from hetero_tf.data.partitions import (
    class_deck,
    dirichlet,
    dirichlet_equal,
    dirichlet_turns,
    file,
    iid,
    labels,
    quantity,
)
from hetero_tf.data.partitions.partition import Partition, label_mask
from hetero_tf.run.data import split as split_data

DIRICHLET = [dirichlet, dirichlet_equal, dirichlet_turns]
OWNERS = np.array([40, 7, 7, 40, 3, 900000000, 7, 3], np.int32)
TEST_OWNERS = np.array([3, 7, 5, 40, 7], np.int32)


def split(module, clients=20, train=TRAIN, test=TEST, seed=0, **options):
    return module.split(train, test, 10, rng(seed), clients=clients, **options)


def split_by_owner(clients, train=TRAIN[:8], test=TEST[:5], seed=0, **options):
    options = {"train_owners": OWNERS, "test_owners": TEST_OWNERS, **options}
    return split(registry.find("partitions", "natural"), clients, train, test, seed, **options)


DECK = "must exceed the number of labels, 10, so that each label is used. Received: clients=5, per_client=2"
LEAST = "`least` must be in 0..{}: {} training examples are split into {} shares. Received: least={}"
EMPTY = r"\d+ of {} clients have no training example, the first is client \d+; use fewer clients, more equal sizes or a"
OWNER_COUNT = "the number of owners with at least"
DRAWS = r"none of 5 Dirichlet draws gave every client 99 training examples, at best \d+; use a larger alpha, fewer "
NATURAL = {"train_owners": OWNERS, "test_owners": TEST_OWNERS, "train": TRAIN[:8], "test": TEST[:5]}
REJECTED = [
    ("class_deck", {"clients": 5}, f"`per_client` must be in 1..10, and `clients` times `per_client` {DECK}"),
    ("class_deck", {"clients": 5, "per_client": 11}, "`per_client` must be in 1..10.* Received: .*per_client=11"),
    ("class_deck", {"least": 2}, "`least` must be in 0..1: 2 examples of label 0 are split into 2 shares. Received: "),
    ("class_deck", {"test_least": 2}, "`test_least` must be in 0..1: 2 examples of label 0"),
    ("class_deck", {"clients": 20, "per_client": 1, "least": 0, "sizes": "dirichlet"}, EMPTY.format(20)),
    ("quantity", {"clients": 4, "least": 6}, LEAST.format(5, 20, 4, 6)),
    ("quantity", {"clients": 19, "least": 0}, EMPTY.format(19)),
    ("labels", {"per_client": 11}, r"`per_client` must be in 1..10, .* Received: per_client=11"),
    ("labels", {"clients": 7}, "a multiple of the 10 labels. Received: clients=7, per_client=2"),
    ("labels", {"clients": 15}, "at least one example for each of its 3 shards, but label 0 has 2 examples; use fewer"),
    ("labels", {"clients": 5, "per_client": 4, "draw": "consecutive"}, "must be a multiple of the 10 labels with draw: "),
    ("natural", {**NATURAL, "clients": 5}, f"`clients` must be in 1..4, {OWNER_COUNT} 1 training examples. Received: "),
    ("natural", {**NATURAL, "clients": 2, "least": 3}, f"in 1..1, {OWNER_COUNT} 3 training examples. Received: clie"),
    ("natural", {**NATURAL, "train_owners": None}, "the partition `natural` needs data with an owner for each example"),
    ("natural", {**NATURAL, "clients": 2, "test_owners": None}, "the data have no owners .* test='own'"),
    ("dirichlet", {"alpha": 1.0, "train": TRAIN, "clients": 20, "least": 101}, LEAST.format(100, 2000, 20, 101)),
    ("dirichlet", {"alpha": 0.1, "train": TRAIN, "clients": 20, "least": 99}, DRAWS),
    ("dirichlet_turns", {"alpha": 1.0, "train": TRAIN, "clients": 1000, "sigma": 2.0}, EMPTY.format(1000)),
]  # fmt: skip


@pytest.mark.parametrize(("name", "options", "message"), REJECTED)
def test_impossible_splits_are_rejected(name, options, message, monkeypatch):
    monkeypatch.setattr(dirichlet, "ATTEMPTS", 5)
    with pytest.raises(InputError, match=message):
        split(registry.find("partitions", name), **{"clients": 10, "train": FEW, "test": FEW, **options})


def test_iid_assigns_equal_parts_of_all_of_the_data():
    train, test = np.arange(103, dtype=np.int32) % 5, np.arange(27, dtype=np.int32) % 5
    partition = iid.split(train, test, 5, rng(), clients=10)
    assert (partition.train.sizes.tolist(), partition.test.sizes.tolist()) == ([10] * 10, [2] * 10)
    # Any example is drawn with chance 100/103: over 300 seeds each is left out about 9 times, hardly ever 0 times.
    drawn = [iid.split(train, test[:3], 5, rng(seed), clients=50).train.ids for seed in range(300)]
    left = 300 - np.bincount(np.concatenate(drawn), minlength=103)
    assert left.sum() == 300 * 3 and left.max() < 30


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
    assert min(sizes) == 271 and max(sizes) in (650, 651, 652)
    assert 7 < np.mean(single) < 12 and 2 <= min(single) < max(single) <= 20


@pytest.mark.parametrize(
    ("clients", "per_client", "classes"), [(100, 2, 10), (10, 3, 5), (6, 4, 4), (7, 1, 7), (5, 1, 1)]
)
def test_shards_are_contiguous_and_used_once(clients, per_client, classes):
    generator = rng(clients)
    train, test = (generator.permutation(np.arange(count, dtype=np.int32) % classes) for count in (2011, 997))
    partition = labels.split(train, test, classes, rng(1), clients=clients, per_client=per_client)
    shards = clients * per_client // classes
    for of_client, of_split in ((partition.train, train), (partition.test, test)):
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
    assert 1 <= partition.label_mask.sum(1).min() <= partition.label_mask.sum(1).max() <= per_client


def test_consecutive_clients_hold_consecutive_labels_and_a_share_exchanges_them():
    split = partial(labels.split, TRAIN, TEST, 10, clients=50, per_client=3, draw="consecutive")
    partition = split(rng())
    for client, expected in {0: [0, 1, 2], 4: [0, 1, 2], 5: [1, 2, 3], 44: [0, 8, 9], 49: [0, 1, 9]}.items():
        assert np.flatnonzero(partition.label_mask[client]).tolist() == expected
    assert partition.label_mask.sum(0).tolist() == [15] * 10 and partition.summary()["train_used"] == 2000
    for shuffled, least in ((0.0, 0), (0.5, 18), (1.0, 38)):
        masks = [split(rng(seed), shuffled=shuffled).label_mask for seed in range(5)]
        moved = [(mask != partition.label_mask).any(1).sum() for mask in masks]
        # Some of them draw labels that are equal to their own.
        assert least <= min(moved) and max(moved) <= shuffled * 50
        assert all(sorted(mask.tolist()) == sorted(partition.label_mask.tolist()) for mask in masks)


def test_duplicate_labels_give_two_shards_and_validation_examples_have_all_labels():
    without, duplicates = (
        labels.split(TRAIN, TEST, 10, rng(2), clients=50, per_client=3, keep_duplicates=keep) for keep in (False, True)
    )
    np.testing.assert_array_equal(without.label_mask, duplicates.label_mask)
    assert without.label_mask.sum() < 150 and len(without.train.ids) < 1950
    assert sorted(duplicates.train.ids) == list(range(2000)) and sorted(duplicates.test.ids) == list(range(600))
    np.testing.assert_array_equal(label_mask(TRAIN, duplicates.train, 10), duplicates.label_mask)
    # Examples of a client are mixed before some are held out.
    partition = labels.split(TRAIN, TEST, 10, rng(), clients=50, per_client=2, held_out=0.2)
    two = partition.label_mask.sum(1) == 2
    assert two.sum() > 30 and np.mean(label_mask(TRAIN, partition.held_out, 10)[two].sum(1)) > 1.9


def test_labels_are_assigned_by_their_weights_up_to_the_cap():
    partition = split(class_deck, 12, TRAIN[TRAIN > 3])
    assert partition.label_mask.any(0).tolist() == [False] * 4 + [True] * 6
    assert set(TEST[partition.test.ids]) == set(range(4, 10))
    # The cap is 12 / 2: client 0 has 6 of the first label and none of the second; then both are full.
    proportions = iter([[0.75, 0.25], [0.5, 0.5], [0.75, 0.25]])
    draws = SimpleNamespace(permutation=np.asarray, dirichlet=lambda alpha: np.array(next(proportions)))
    assigned = dirichlet._draw(np.split(np.arange(16), [8, 12]), 12, 2, 1.0, draws)
    assert [ids.tolist() for ids in assigned] == [[0, 1, 2, 3, 4, 5, 12, 13], [6, 7, 8, 9, 10, 11, 14, 15]]
    weights = np.array([1.0, dirichlet_equal.SMALLEST, 1.0])
    assert dirichlet_equal._draw_label_counts(weights, np.array([2, 9, 1]), 5, rng()).tolist() == [2, 2, 1]
    assert split(dirichlet_equal, alpha=1e-6).train.sizes.tolist() == [100] * 20
    # Label 0 is used up at once; after it 1 and 2 are drawn 1 to 3, in whatever blocks.
    turns, priors = np.zeros(4000, int), np.array([[0.6, 0.1, 0.3]])
    counts = np.bincount(dirichlet_turns._draw_labels(turns, priors, np.array([20, 4000, 4000]), rng()))
    assert counts[0] == 20 and abs(counts[1] - 3980 / 4) < 4 * np.sqrt(3980 * 3 / 16)


@pytest.mark.parametrize(
    ("sizes", "spread", "low", "high"),
    [("equal", 1.0, 0, 1), ("dirichlet", 10.0, 20, 45), ("dirichlet", 1.0, 75, 130), ("lognormal", 0.3, 20, 45)],
)
def test_quantities_follow_the_requested_spread(sizes, spread, low, high):
    partition = split(quantity, 500, CIFAR, sizes=sizes, spread=spread)
    assert sorted(partition.train.ids.tolist()) == list(range(50000))
    assert partition.train.sizes.min() >= 1 and low <= np.std(partition.train.sizes) <= high
    assert partition.label_mask.sum(1).max() == 10


def test_quantities_in_the_order_of_the_data_and_of_the_test_split():
    partition = split(quantity, 10, sizes="dirichlet", least=30, shuffled=False)
    assert partition.train.ids.tolist() == list(range(2000)) and partition.train.sizes.min() >= 30
    assert np.abs(partition.test.sizes - partition.train.sizes * 0.3).max() < 4
    other = quantity.split(TRAIN, TEST, 10, rng(), clients=10, sizes="dirichlet", shuffled=False, test="new")
    assert other.test.ids.tolist() == list(range(600))
    assert np.abs(other.test.sizes - other.train.sizes * 0.3).max() > 10
    # The least number of test examples is at most the mean.
    small = quantity.split(TRAIN, TEST[:250], 10, rng(), clients=10, sizes="dirichlet", least=30, test="new")
    assert small.test.sizes.tolist() == [25] * 10 and small.train.sizes.max() > 210


def test_clients_of_text_have_no_test_rows():
    rows = rng().integers(0, 9, (50, 8)).astype(np.int32)
    for test in ["own", "new", "equal", "contiguous"]:
        partition = quantity.split(rows, rows, 9, rng(), clients=6, test=test)
        assert sorted(partition.train.ids.tolist()) == list(range(50)) and partition.test.ids.size == 0
    partition = split_by_owner(4, train=rows[:8], test=rows[:5], test_owners=None)
    assert partition.train.sizes.tolist() == [2, 3, 2, 1] and partition.test.ids.size == 0


def test_natural_clients_are_the_owners():
    partition = split_by_owner(4)
    assert [sorted(ids) for ids in partition.train] == [[4, 7], [1, 2, 6], [0, 3], [5]]
    assert [ids.tolist() for ids in partition.test] == [[0], [1, 4], [3], []]
    np.testing.assert_array_equal(label_mask(TRAIN, partition.train, 10), partition.label_mask)
    assert [sorted(ids) for ids in split_by_owner(3, least=2).train] == [[4, 7], [1, 2, 6], [0, 3]]
    assert len({tuple(map(tuple, map(sorted, split_by_owner(2, seed=seed).train))) for seed in range(60)}) == 6


def test_recipe_passes_owners_to_the_partition():
    images = np.zeros((8, 4, 4, 1), np.uint8)
    train, test = Split(images, TRAIN[:8], OWNERS), Split(images[:5], TEST[:5], TEST_OWNERS)
    data = Dataset(train, test, (picture.field(images),), 10, "s")
    for overrides, sizes in (["partition.name=natural"], [2, 3, 2, 1]), ([], [2, 2, 2, 2]):
        partition = split_data(recipe.load("digits", ["partition.clients=4", "round.clients=2", *overrides]), data)
        assert partition.train.sizes.tolist() == sizes


@pytest.mark.parametrize(("alpha", "low", "high"), [(0.3, 130, 200), (1.0, 72, 105)])
def test_cap_gives_the_spread_of_the_papers(alpha, low, high):
    # CIFAR-10, 100 clients, a fifth held out: FeDepth prints standard deviations of 150.6 and 77.4, an independent
    # simulation of 12 draws gave 140..188 and 76..101, and about 232 for alpha 0.3 without the cap.
    options = {"alpha": alpha, "least": 50, "held_out": 0.2}
    partition = [split(dirichlet, 100, CIFAR, seed=seed, **options).summary()["train_examples"] for seed in range(8)]
    assert all(low < one["std"] < high and one["min"] >= 40 and 400 <= one["mean"] < 401 for one in partition)


@pytest.mark.parametrize("module", DIRICHLET)
def test_dirichlet_splits_use_examples_once_in_the_sizes_distances_and_labels(module):
    partition = split(module, 30, alpha=0.5)
    assert len(np.unique(partition.train.ids)) == len(partition.train.ids)
    if module is dirichlet_equal:
        assert partition.train.sizes.tolist() == [66] * 30
    elif module is dirichlet_turns:
        assert sorted(partition.train.sizes)[:29] == [66] * 29 and partition.train.sizes[0] == 86
    else:
        assert partition.train.sizes.sum() == 2000 and partition.train.sizes.min() >= 10
    far, near, same = (
        split(module, alpha=alpha).summary(TRAIN)["label_distance"]["mean"] for alpha in (0.05, 1.0, 1000.0)
    )
    assert far > 0.65 > 0.5 > near > 0.2 > 0.15 > same
    partition = split(module, alpha=0.1)
    np.testing.assert_array_equal(label_mask(TRAIN, partition.train, 10), partition.label_mask)
    assert (label_mask(TEST, partition.test, 10) <= partition.label_mask).all()
    assert len(partition.test.ids) >= 590


def test_labels_are_drawn_by_weight_times_remaining_examples():
    # Two of each label, weights 3 and 1: both of label 0 with chance 6/8 * 3/5, none with 2/8 * 1/7.
    draws = [dirichlet_equal._draw_label_counts(np.array([3.0, 1.0]), np.array([2, 2]), 2, rng(n)) for n in range(4000)]
    assert {int(counts.sum()) for counts in draws} == {2}
    expected = 4000 * np.array([2 / 56, 0.55 - 2 / 56, 0.45])
    assert np.abs(np.bincount([counts[0] for counts in draws]) - expected).max() < 4 * np.sqrt(4000 * 0.25)


def test_turns_follow_the_prior_until_a_label_is_exhausted():
    turns, priors = np.zeros(1000, int), np.array([[0.2, 0.0, 0.8]])
    drawn = dirichlet_turns._draw_labels(turns, priors, np.array([900, 900, 900]), rng())
    assert 150 < np.bincount(drawn)[0] < 250 and 1 not in drawn
    remaining = np.array([10, 985, 5])
    drawn = dirichlet_turns._draw_labels(turns, priors, remaining, rng())
    assert np.bincount(drawn).tolist() == [10, 985, 5] and remaining.tolist() == [0, 0, 0]
    # Label 1 has no chance as long as the others are there.
    assert sorted(drawn[:15].tolist()) == [0] * 10 + [2] * 5


def test_sizes_of_turns_are_lognormal():
    sizes = split(dirichlet_turns, 200, CIFAR, alpha=1.0, sigma=0.5).train.sizes
    assert sizes.sum() == 50000 and 0.4 < np.std(np.log(sizes)) < 0.6


def test_partitions_of_other_data_and_without_examples_are_rejected(tmp_path):
    stored, path = split(labels, 100), tmp_path / "p.npz"
    stored.save(path)
    assert file.split(TRAIN, TEST, 10, None, clients=100, path=str(path)).sha256 == stored.sha256
    for train, test, classes, clients, message in (
        (TRAIN, TEST, 10, 99, "`clients` must be 100, the number of clients in .*p.npz. Received: clients=99"),
        (TRAIN, TEST, 11, 100, "belongs to data with 10 labels. Received: 11 labels"),
        (TRAIN[:1900], TEST, 10, 100, r"other data: it refers to train example 19\d+. Received: 1900"),
        (TRAIN, TEST[:500], 10, 100, r"it refers to test example 5\d\d. Received: 500"),
        (TRAIN[::-1], TEST, 10, 100, "client 0 has examples with labels outside its `label_mask`"),
    ):
        with pytest.raises(InputError, match=message):
            file.split(train, test, classes, None, clients=clients, path=path)
    for train, validation, message in (
        (shares([3], [4]), shares([1999], []), "it refers to held-out example 1999. Received: 1999"),
        (shares([0], []), None, "every client must have a training example. Received: none for client 1"),
    ):
        Partition(train, shares([], []), np.ones((2, 10), bool), validation).save(path)
        with pytest.raises(InputError, match=message):
            file.split(TRAIN[:1999], TEST, 10, None, clients=2, path=path)
