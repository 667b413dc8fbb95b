"""A stored partition as the split of a recipe."""

import numpy as np
import pytest
from splits import TEST, TRAIN, rng, shares

from hetero_tf.base.errors import InputError
from hetero_tf.data.partitions import file, labels
from hetero_tf.data.partitions.partition import Partition


@pytest.mark.parametrize(
    ("train", "test", "classes", "clients", "message"),
    [
        (TRAIN, TEST, 10, 99, "`clients` must be 100, the number of clients in .*p.npz. Received: clients=99"),
        (TRAIN, TEST, 11, 100, "belongs to data with 10 labels. Received: 11 labels"),
        (TRAIN[:1900], TEST, 10, 100, r"other data: it refers to train example 19\d+. Received: 1900 examples"),
        (TRAIN, TEST[:500], 10, 100, r"it refers to test example 5\d\d. Received: 500 examples"),
        (TRAIN[::-1], TEST, 10, 100, "client 0 has examples with labels outside its `label_mask`"),
    ],
)
def test_partition_of_other_data_is_rejected(tmp_path, train, test, classes, clients, message):
    stored = labels.split(TRAIN, TEST, 10, rng(), clients=100)
    stored.save(tmp_path / "p.npz")
    assert file.split(TRAIN, TEST, 10, None, clients=100, path=str(tmp_path / "p.npz")).sha256 == stored.sha256
    with pytest.raises(InputError, match=message):
        file.split(train, test, classes, None, clients=clients, path=tmp_path / "p.npz")


def test_file_without_examples_or_of_larger_data_is_rejected(tmp_path):
    for train, validation, message in (
        (shares([3], [4]), shares([1999], []), "it refers to held-out example 1999. Received: 1999 examples"),
        (shares([0], []), None, "every client must have a training example. Received: none for client 1"),
    ):
        Partition(train, shares([], []), np.ones((2, 10), bool), validation).save(tmp_path / "p.npz")
        with pytest.raises(InputError, match=message):
            file.split(TRAIN[:1999], TEST, 10, None, clients=2, path=tmp_path / "p.npz")
