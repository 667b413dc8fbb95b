"""Clients of equal size that draw from a Dirichlet distribution in sequence."""

import numpy as np
from splits import TEST, TRAIN, rng

from hetero_tf.data.partitions import dirichlet_equal


def test_labels_are_drawn_by_weight_times_remaining_examples():
    # Two of each label, weights 3 and 1: both of label 0 with chance 6/8 * 3/5, none with 2/8 * 1/7.
    generator, seen = rng(), np.zeros(3)
    for _ in range(4000):
        counts = dirichlet_equal._draw_label_counts(np.array([3.0, 1.0]), np.array([2, 2]), 2, generator)
        assert counts.sum() == 2
        seen[counts[0]] += 1
    expected = 4000 * np.array([2 / 56, 0.55 - 2 / 56, 0.45])
    assert np.abs(seen - expected).max() < 4 * np.sqrt(4000 * 0.25)


def test_label_of_zero_weight_is_used_last():
    weights = np.array([1.0, dirichlet_equal.SMALLEST, 1.0])
    assert dirichlet_equal._draw_label_counts(weights, np.array([2, 9, 1]), 5, rng()).tolist() == [2, 2, 1]
    partition = dirichlet_equal.split(TRAIN, TEST, 10, rng(), clients=20, alpha=1e-6)
    assert partition.train.sizes.tolist() == [100] * 20
