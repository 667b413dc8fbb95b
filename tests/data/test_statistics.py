"""Label statistics against loops."""

import numpy as np
from splits import TRAIN, rng

from hetero_tf.data.partitions.shares import ClientExamples, label_counts, label_distances


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
