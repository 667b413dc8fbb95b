"""Clients that draw labels from a Dirichlet distribution in turns."""

import numpy as np
import pytest
from splits import CIFAR, TEST, TRAIN, rng

from hetero_tf.base.errors import InputError
from hetero_tf.data.partitions import dirichlet_turns


def split(alpha, clients=20, train=TRAIN, **options):
    return dirichlet_turns.split(train, TEST, 10, rng(), clients=clients, alpha=alpha, **options)


def test_turns_follow_the_prior_until_a_label_is_exhausted():
    turns, priors = np.zeros(1000, int), np.array([[0.2, 0.0, 0.8]])
    labels = dirichlet_turns._draw_labels(turns, priors, np.array([900, 900, 900]), rng())
    assert 150 < np.bincount(labels)[0] < 250 and 1 not in labels
    remaining = np.array([10, 985, 5])
    labels = dirichlet_turns._draw_labels(turns, priors, remaining, rng())
    assert np.bincount(labels).tolist() == [10, 985, 5] and remaining.tolist() == [0, 0, 0]
    # Label 1 has no chance as long as the others are there.
    assert sorted(labels[:15].tolist()) == [0] * 10 + [2] * 5


def test_remaining_labels_keep_their_proportions():
    # Label 0 is used up at once; after it 1 and 2 are drawn 1 to 3, in whatever blocks.
    turns, priors = np.zeros(4000, int), np.array([[0.6, 0.1, 0.3]])
    labels = dirichlet_turns._draw_labels(turns, priors, np.array([20, 4000, 4000]), rng())
    counts = np.bincount(labels)
    assert counts[0] == 20 and abs(counts[1] - 3980 / 4) < 4 * np.sqrt(3980 * 3 / 16)


def test_long_splits_are_drawn_in_blocks(monkeypatch):
    monkeypatch.setattr(dirichlet_turns, "BLOCK", 7)
    partition = split(0.1)
    assert partition.train.sizes.tolist() == [100] * 20
    assert sorted(partition.train.ids.tolist()) == list(range(2000))


def test_lognormal_sizes_spread():
    sizes = split(1.0, clients=200, train=CIFAR, sigma=0.5).train.sizes
    assert sizes.sum() == 50000
    assert 0.4 < np.std(np.log(sizes)) < 0.6


def test_sizes_that_leave_clients_empty_are_rejected():
    message = (
        r"\d+ of 1000 clients have no training example, the first is client \d+; lower sigma or use fewer clients. "
        "Received: clients=1000, sigma=2.0"
    )
    with pytest.raises(InputError, match=message):
        split(1.0, clients=1000, sigma=2.0)
