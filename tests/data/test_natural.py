"""Owners of examples as clients."""

import numpy as np
import pytest
from splits import TEST, TRAIN, rng

from hetero_tf import recipe
from hetero_tf.base.errors import InputError
from hetero_tf.data.codecs import picture
from hetero_tf.data.dataset import Dataset, Split
from hetero_tf.data.partitions import natural
from hetero_tf.data.partitions.partition import label_mask
from hetero_tf.run.data import split

OWNERS = np.array([40, 7, 7, 40, 3, 900000000, 7, 3], np.int32)
TEST_OWNERS = np.array([3, 7, 5, 40, 7], np.int32)


def split_by_owner(clients, train=TRAIN[:8], test=TEST[:5], seed=0, **options):
    options = {"train_owners": OWNERS, "test_owners": TEST_OWNERS, **options}
    return natural.split(train, test, 10, rng(seed), clients=clients, **options)


def test_natural_clients_are_the_owners():
    partition = split_by_owner(4)
    assert [sorted(ids) for ids in partition.train] == [[4, 7], [1, 2, 6], [0, 3], [5]]
    assert [ids.tolist() for ids in partition.test] == [[0], [1, 4], [3], []]
    np.testing.assert_array_equal(label_mask(TRAIN, partition.train, 10), partition.label_mask)
    assert [sorted(ids) for ids in split_by_owner(3, least=2).train] == [[4, 7], [1, 2, 6], [0, 3]]


def test_some_of_many_owners_are_drawn():
    seen = {tuple(map(tuple, map(sorted, split_by_owner(2, seed=seed).train))) for seed in range(60)}
    assert len(seen) == 6


def test_natural_clients_of_text_have_no_test_rows():
    rows = rng().integers(0, 9, (8, 4)).astype(np.int32)
    partition = split_by_owner(4, train=rows, test=rows[:5], test_owners=None)
    assert [ids.size for ids in partition.train] == [2, 3, 2, 1] and partition.test.ids.size == 0


def test_recipe_passes_owners_to_the_partition():
    images = np.zeros((8, 4, 4, 1), np.uint8)
    data = Dataset(
        Split(images, TRAIN[:8], OWNERS), Split(images[:5], TEST[:5], TEST_OWNERS), (picture.field(images),), 10, "s"
    )
    for overrides, sizes in (["partition.name=natural"], [2, 3, 2, 1]), ([], [2, 2, 2, 2]):
        partition = split(recipe.load("digits", ["partition.clients=4", "round.clients=2", *overrides]), data)
        assert partition.train.sizes.tolist() == sizes


OWNER_COUNT = "the number of owners with at least"


@pytest.mark.parametrize(
    ("clients", "options", "message"),
    [
        (5, {}, f"`clients` must be in 1..4, {OWNER_COUNT} 1 training examples. Received: clients=5"),
        (2, {"least": 3}, f"in 1..1, {OWNER_COUNT} 3 training examples. Received: clients=2"),
        (2, {"train_owners": None}, "the partition `natural` needs data with an owner for each example"),
        (2, {"test_owners": None}, "`test` must be equal or contiguous: the data have no owners .* test='own'"),
    ],
)
def test_impossible_splits_are_rejected(clients, options, message):
    with pytest.raises(InputError, match=message):
        split_by_owner(clients, **options)
