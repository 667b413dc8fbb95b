"""Equal random parts."""

import numpy as np
from splits import rng

from hetero_tf.data.partitions import iid


def test_iid_assigns_equal_parts_and_drops_the_rest():
    train, test = np.arange(103, dtype=np.int32) % 5, np.arange(27, dtype=np.int32) % 5
    partition = iid.split(train, test, 5, rng(), clients=10)
    for ids, each in ((partition.train, 10), (partition.test, 2)):
        assert [len(ids) for ids in ids] == [each] * 10
        assert len(set(np.concatenate(ids).tolist())) == 10 * each
    for client, ids in enumerate(partition.train):
        assert set(np.flatnonzero(partition.label_mask[client])) == set(train[ids])


def test_iid_draws_from_all_of_the_data():
    # Any example is drawn with chance 100/103: over 300 seeds each is left out about 9 times, hardly ever 0 times.
    left = np.zeros(103)
    for seed in range(300):
        partition = iid.split(np.zeros(103, np.int32), np.zeros(3, np.int32), 1, rng(seed), clients=50)
        left += ~np.isin(np.arange(103), np.concatenate(partition.train))
        assert all(ids.size == 0 for ids in partition.test)
    assert left.sum() == 300 * 3
    assert left.max() < 30
