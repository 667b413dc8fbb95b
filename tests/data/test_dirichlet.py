"""The cap of the Dirichlet split, and properties of all three Dirichlet splits."""

from types import SimpleNamespace

import numpy as np
import pytest
from splits import CIFAR, TEST, TRAIN

from hetero_tf.base.errors import InputError
from hetero_tf.data.partitions import dirichlet, dirichlet_equal, dirichlet_turns
from hetero_tf.data.partitions.partition import label_distances

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


def test_a_client_at_the_cap_gets_no_more_examples():
    # The cap is 12 / 2: client 0 has 6 of the first label and none of the second; then both are full.
    proportions = iter([[0.75, 0.25], [0.5, 0.5], [0.75, 0.25]])
    draws = SimpleNamespace(permutation=np.asarray, dirichlet=lambda alpha: np.array(next(proportions)))
    assigned = dirichlet._draw(np.split(np.arange(16), [8, 12]), 12, 2, 1.0, draws)
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


@pytest.mark.parametrize("module", MODULES)
def test_impossible_requests_are_rejected(module):
    name = module.__name__.rpartition(".")[2]
    message = f"the partition `{name}` needs one label per example, which text does not have"
    with pytest.raises(InputError, match=message):
        module.split(np.zeros((4, 9), np.int32), np.zeros((1, 9), np.int32), 5, None, clients=2, alpha=1.0)
    with pytest.raises(InputError, match="`clients` must be in 1..2000, .* Received: clients=2001"):
        split(module, 1.0, clients=2001)


def test_impossible_draw_is_rejected(monkeypatch):
    message = "`least` must be in 0..100: 2000 training examples are split into 20 shares. Received: least=101"
    with pytest.raises(InputError, match=message):
        split(dirichlet, 1.0, least=101)
    monkeypatch.setattr(dirichlet, "ATTEMPTS", 5)
    message = (
        r"none of 5 Dirichlet draws gave every client 99 training examples, at best \d+; use a larger alpha, fewer "
        "clients or a smaller least. Received: clients=20, alpha=0.1, least=99"
    )
    with pytest.raises(InputError, match=message):
        split(dirichlet, 0.1, least=99)
