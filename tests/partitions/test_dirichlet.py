"""Numbers and properties of the Dirichlet splits."""

import numpy as np
import pytest
from splits import CIFAR, TEST, TRAIN

from hetero_tf.base.errors import InputError
from hetero_tf.partitions import dirichlet, dirichlet_equal, dirichlet_turns
from hetero_tf.partitions.statistics import label_distances

MODULES = [dirichlet, dirichlet_equal, dirichlet_turns]


def split(module, alpha, seed=0, clients=20, train=TRAIN, test=TEST, **options):
    return module.split(train, test, 10, np.random.default_rng(seed), clients=clients, alpha=alpha, **options)


@pytest.mark.parametrize(("alpha", "low", "high"), [(0.3, 130, 200), (1.0, 72, 105)])
def test_cap_gives_the_spread_of_the_papers(alpha, low, high):
    # CIFAR-10, 100 clients, a fifth held out: FeDepth prints standard deviations of 150.6 and 77.4, an independent
    # simulation of 12 draws gave 140..188 and 76..101, and about 232 for alpha 0.3 without the cap.
    partition = [
        split(dirichlet, alpha, seed, 100, CIFAR, least=50, held_out=0.2).summary()["train_examples"]
        for seed in range(8)
    ]
    assert all(low < one["std"] < high and one["min"] >= 40 and 400 <= one["mean"] < 401 for one in partition)


class Draws:
    """A generator with fixed proportions that does not shuffle."""

    def __init__(self, *proportions):
        self.proportions = iter(proportions)
        self.permutation = np.asarray

    def dirichlet(self, alpha):
        return np.array(next(self.proportions))


def test_a_client_at_the_cap_gets_no_more_examples():
    # The cap is 12 / 2: client 0 has 6 of the first label and none of the second; then both are full.
    ids_by_label = np.split(np.arange(16), [8, 12])
    assigned = dirichlet._draw(ids_by_label, 12, 2, 1.0, Draws([0.75, 0.25], [0.5, 0.5], [0.75, 0.25]))
    assert [ids.tolist() for ids in assigned] == [[0, 1, 2, 3, 4, 5, 12, 13], [6, 7, 8, 9, 10, 11, 14, 15]]


@pytest.mark.parametrize("module", MODULES)
def test_examples_are_used_once_and_sizes_match_the_options(module):
    partition = split(module, 0.5, clients=30)
    assert len(np.unique(partition.train.ids)) == len(partition.train.ids)
    if module is dirichlet_equal:
        assert partition.train.sizes.tolist() == [66] * 30
    elif module is dirichlet_turns:
        assert sorted(partition.train.sizes)[:29] == [66] * 29 and partition.train.sizes[0] == 86
    else:
        assert partition.train.sizes.sum() == 2000 and partition.train.sizes.min() >= 10


@pytest.mark.parametrize("module", MODULES)
def test_alpha_decides_how_far_clients_are_from_each_other(module):
    far, near, same = (label_distances(TRAIN, split(module, alpha).train, 10).mean() for alpha in (0.05, 1.0, 1000.0))
    assert far > 0.65 > 0.5 > near > 0.2 > 0.15 > same


@pytest.mark.parametrize("module", MODULES)
def test_test_examples_have_the_labels_of_the_client(module):
    partition = split(module, 0.1)
    for client, (ids, tests) in enumerate(zip(partition.train, partition.test)):
        assert partition.label_mask[client].nonzero()[0].tolist() == sorted(set(TRAIN[ids]))
        assert set(TEST[tests]) <= set(TRAIN[ids])
    assert len(partition.test.ids) >= 590


def test_labels_are_drawn_by_weight_times_remaining_examples():
    # Two of each label, weights 3 and 1: both of label 0 with chance 6/8 * 3/5, none with 2/8 * 1/7.
    rng, seen = np.random.default_rng(0), np.zeros(3)
    for _ in range(4000):
        counts = dirichlet_equal._draw_label_counts(np.array([3.0, 1.0]), np.array([2, 2]), 2, rng)
        assert counts.sum() == 2
        seen[counts[0]] += 1
    expected = 4000 * np.array([2 / 56, 0.55 - 2 / 56, 0.45])
    assert np.abs(seen - expected).max() < 4 * np.sqrt(4000 * 0.25)


def test_label_of_zero_weight_is_used_last():
    counts = dirichlet_equal._draw_label_counts(
        np.array([1.0, dirichlet_equal.SMALLEST, 1.0]), np.array([2, 9, 1]), 5, np.random.default_rng(0)
    )
    assert counts.tolist() == [2, 2, 1]
    partition = split(dirichlet_equal, 1e-6)
    assert partition.train.sizes.tolist() == [100] * 20


def test_turns_follow_the_prior_until_a_label_is_exhausted():
    turns, priors = np.zeros(1000, int), np.array([[0.2, 0.0, 0.8]])
    labels = dirichlet_turns._draw_labels(turns, priors, np.array([900, 900, 900]), np.random.default_rng(0))
    assert 150 < np.bincount(labels)[0] < 250 and 1 not in labels
    remaining = np.array([10, 985, 5])
    labels = dirichlet_turns._draw_labels(turns, priors, remaining, np.random.default_rng(0))
    assert np.bincount(labels).tolist() == [10, 985, 5] and remaining.tolist() == [0, 0, 0]
    # Label 1 has no chance as long as the others are there.
    assert sorted(labels[:15].tolist()) == [0] * 10 + [2] * 5


def test_remaining_labels_keep_their_proportions():
    # Label 0 is used up at once; after it 1 and 2 are drawn 1 to 3, in whatever blocks.
    turns, priors = np.zeros(4000, int), np.array([[0.6, 0.1, 0.3]])
    labels = dirichlet_turns._draw_labels(turns, priors, np.array([20, 4000, 4000]), np.random.default_rng(0))
    counts = np.bincount(labels)
    assert counts[0] == 20 and abs(counts[1] - 3980 / 4) < 4 * np.sqrt(3980 * 3 / 16)


def test_long_splits_are_drawn_in_blocks(monkeypatch):
    monkeypatch.setattr(dirichlet_turns, "BLOCK", 7)
    partition = split(dirichlet_turns, 0.1)
    assert partition.train.sizes.tolist() == [100] * 20
    assert sorted(partition.train.ids.tolist()) == list(range(2000))


def test_lognormal_sizes_spread():
    sizes = split(dirichlet_turns, 1.0, clients=200, train=CIFAR, sigma=0.5).train.sizes
    assert sizes.sum() == 50000
    assert 0.4 < np.std(np.log(sizes)) < 0.6


@pytest.mark.parametrize("module", MODULES)
def test_impossible_requests_are_rejected(module):
    name = module.__name__.rpartition(".")[2]
    with pytest.raises(
        InputError, match=f"the partition `{name}` needs one label per example, which text does not have"
    ):
        module.split(np.zeros((4, 9), np.int32), np.zeros((1, 9), np.int32), 5, None, clients=2, alpha=1.0)
    with pytest.raises(InputError, match="`clients` must be in 1..2000, .* Received: clients=2001"):
        split(module, 1.0, clients=2001)


def test_impossible_draw_is_rejected(monkeypatch):
    message = "`least` must be in 0..100: 2000 training examples are split into 20 shares. Received: least=101"
    with pytest.raises(InputError, match=message):
        split(dirichlet, 1.0, least=101)
    monkeypatch.setattr(dirichlet, "ATTEMPTS", 5)
    with pytest.raises(
        InputError,
        match=r"none of 5 Dirichlet draws gave every client 99 training examples, at best "
        r"\d+; use a larger alpha, fewer clients or a smaller least. Received: "
        r"clients=20, alpha=0.1, least=99",
    ):
        split(dirichlet, 0.1, least=99)


def test_sizes_that_leave_clients_empty_are_rejected():
    with pytest.raises(
        InputError,
        match=r"\d+ of 1000 clients have no training example, the first is client \d+; "
        "lower sigma or use fewer clients. Received: clients=1000, sigma=2.0",
    ):
        split(dirichlet_turns, 1.0, clients=1000, sigma=2.0)
