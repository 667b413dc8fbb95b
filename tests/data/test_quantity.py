"""Parts of unequal size."""

import numpy as np
import pytest
from splits import CIFAR, FEW, TEST, TRAIN, rng

from hetero_tf.base.errors import InputError
from hetero_tf.data.partitions import quantity


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


@pytest.mark.parametrize(
    ("clients", "least", "message"),
    [
        (4, 6, "`least` must be in 0..5: 20 training examples are split into 4 shares. Received: least=6"),
        (
            19,
            0,
            r"\d+ of 19 clients have no training example, the first is client \d+; use a larger least or fewer "
            "clients. Received: clients=19, least=0",
        ),
    ],
)
def test_impossible_splits_are_rejected(clients, least, message):
    with pytest.raises(InputError, match=message):
        quantity.split(FEW, FEW, 10, rng(), clients=clients, least=least)
