"""Labels from shuffled decks."""

import numpy as np
import pytest
from splits import FEW, TEST, TRAIN, rng

from hetero_tf.base.errors import InputError
from hetero_tf.data.partitions import class_deck
from hetero_tf.data.partitions.partition import label_mask


@pytest.mark.parametrize("sizes", ["equal", "dirichlet"])
@pytest.mark.parametrize(("clients", "per_client"), [(11, 1), (7, 3), (40, 4), (3, 10)])
def test_deck_uses_every_label_equally_often(sizes, clients, per_client):
    partition = class_deck.split(TRAIN, TEST, 10, rng(), clients=clients, per_client=per_client, sizes=sizes)
    assert sorted(partition.train.ids) == list(range(2000)) and sorted(partition.test.ids) == list(range(600))
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


LABELS = "must exceed the number of labels, 10, so that each label is used. Received: clients=5, per_client=2"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"clients": 5}, f"`per_client` must be in 1..10, and `clients` times `per_client` {LABELS}"),
        ({"clients": 5, "per_client": 11}, "`per_client` must be in 1..10.* Received: .*per_client=11"),
        ({"least": 2}, "`least` must be in 0..1: 2 examples of label 0 are split into 2 shares. Received: least=2"),
        ({"test_least": 2}, "`test_least` must be in 0..1: 2 examples of label 0"),
        (
            {"clients": 20, "per_client": 1, "least": 0, "sizes": "dirichlet"},
            r"\d of 20 clients have no training example, the first is client \d+; use fewer clients or a larger least",
        ),
    ],
)
def test_impossible_splits_are_rejected(options, message):
    with pytest.raises(InputError, match=message):
        class_deck.split(FEW, FEW, 10, rng(), **{"clients": 10, **options})
