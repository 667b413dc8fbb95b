"""The clients' examples in two arrays: a sequence of arrays to read, and its checks."""

import numpy as np
import pytest
from splits import TRAIN, rng, shares

from hetero_tf.base.errors import InputError
from hetero_tf.data.partitions.partition import ClientExamples, label_counts, label_distances

LISTS = [[4, 1], [], [7], [0, 9, 2]]


def test_sequence_behaves_like_a_tuple_of_arrays():
    examples = shares(*LISTS)
    assert len(examples) == 4
    assert [ids.tolist() for ids in examples] == LISTS
    assert [examples[client].tolist() for client in range(4)] == LISTS
    assert [examples[client].tolist() for client in range(-4, 0)] == LISTS
    assert examples[np.int32(3)].tolist() == LISTS[3]
    assert {ids.dtype for ids in examples} == {examples[0].dtype} == {np.dtype(np.int32)}
    assert np.concatenate(examples).tolist() == examples.ids.tolist() == [4, 1, 7, 0, 9, 2]


@pytest.mark.parametrize("client", [4, -5, 10**9])
def test_client_out_of_range_is_rejected(client):
    with pytest.raises(IndexError, match=f"`client` must be in 0..3. Received: client={client}"):
        shares(*LISTS)[client]


def test_sizes_and_owners():
    examples = shares(*LISTS)
    assert examples.sizes.tolist() == [2, 0, 1, 3]
    assert examples.owners.tolist() == [0, 0, 2, 3, 3, 3]
    assert examples.owners.dtype == np.int32
    again = ClientExamples.from_sizes(examples.ids, examples.sizes)
    assert again.starts.tolist() == examples.starts.tolist() == [0, 2, 2, 3, 6]


def test_clients_may_have_no_examples():
    for examples in (
        ClientExamples.empty(3),
        shares([], [], []),
        ClientExamples.from_sizes(np.zeros(0, np.int32), [0] * 3),
    ):
        assert [ids.tolist() for ids in examples] == [[], [], []]
        assert examples.owners.size == 0
    assert (
        len(ClientExamples.empty(0))
        == len(ClientExamples.from_lists([]))
        == len(ClientExamples.from_sizes(np.zeros(0, np.int32), []))
        == 0
    )


IDS = np.arange(4, dtype=np.int32)


@pytest.mark.parametrize(
    ("ids", "starts", "message"),
    [
        (IDS.astype(np.int64), [0, 4], r"`ids` must be int32 with one axis. Received: int64 \(4,\)"),
        (IDS, [[0, 4]], r"`starts` must be int64 with one axis. Received: int64 \(1, 2\)"),
        (IDS, [0, 3], "the sizes of the clients must add up to 4, the number of ids"),
        (IDS, [1, 4], "the sizes of the clients must add up to 4"),
        (IDS, [0, 3, 2, 4], "the sizes of the clients must add up to 4"),
        (IDS, np.zeros(0, np.int64), "the sizes of the clients must add up to 4"),
        (IDS - 2, [0, 0, 1, 4], "`ids` must be example ids from 0. Received: -2"),
    ],
)
def test_invalid_arrays_are_rejected(ids, starts, message):
    with pytest.raises(InputError, match=message):
        ClientExamples(ids, np.asarray(starts))


def test_sizes_do_not_overflow():
    # In int32 these would add up to 4.
    with pytest.raises(InputError, match="must add up to 4"):
        ClientExamples.from_sizes(IDS, np.array([2**30] * 4 + [4], np.int32))


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
