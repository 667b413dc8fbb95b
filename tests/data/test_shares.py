"""The clients' examples in two arrays: a sequence of arrays to read, and its checks."""

import numpy as np
import pytest
from splits import shares

from hetero_tf.base.errors import InputError
from hetero_tf.data.partitions.shares import ClientExamples

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


def test_views_share_the_memory():
    examples = shares(*LISTS)
    assert all(np.shares_memory(ids, examples.ids) for ids in examples if ids.size)


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
        (IDS.reshape(2, 2), [0, 2], r"`ids` must be int32 with one axis. Received: int32 \(2, 2\)"),
        (IDS, [[0, 4]], r"`starts` must be int64 with one axis. Received: int64 \(1, 2\)"),
        (IDS, [0.0, 4.0], r"`starts` must be int64 with one axis. Received: float64 \(2,\)"),
        (IDS, [0, 3], r"`starts` must ascend from 0 to the number of ids, 4. Received: \[0, 3\] to \[3\]"),
        (IDS, [1, 4], r"`starts` must ascend from 0 .* Received: \[1, 4\] to \[4\]"),
        (IDS, [0, 3, 2, 4], r"`starts` must ascend from 0 .* Received: \[0, 3, 2\] to \[4\]"),
        (IDS, np.zeros(0, np.int64), r"`starts` must ascend from 0 .* Received: \[\] to \[\]"),
        (IDS - 2, [0, 0, 1, 4], "`ids` must be example ids from 0. Received: -2 of client 1"),
        (IDS[::-1] - 2, [0, 1, 1, 4], "`ids` must be example ids from 0. Received: -1 of client 2"),
    ],
)
def test_invalid_arrays_are_rejected(ids, starts, message):
    with pytest.raises(InputError, match=message):
        ClientExamples(ids, np.asarray(starts))


@pytest.mark.parametrize(
    ("lists", "message"),
    [
        (
            (IDS, np.array([1])),
            r"`lists` must have an int32 \[examples\] array for each client. Received: int64 \(1,\) of client 1",
        ),
        ((IDS.reshape(2, 2),), r"Received: int32 \(2, 2\) of client 0"),
        ((IDS, IDS - 1), "`ids` must be example ids from 0. Received: -1 of client 1"),
    ],
)
def test_lists_of_other_arrays_are_rejected(lists, message):
    with pytest.raises(InputError, match=message):
        ClientExamples.from_lists(lists)


def test_sizes_that_do_not_fit_the_ids_are_rejected():
    with pytest.raises(InputError, match="to the number of ids, 4. Received: .* to .5."):
        ClientExamples.from_sizes(IDS, [2, 3])
    with pytest.raises(InputError, match="`starts` must ascend from 0"):
        ClientExamples.from_sizes(IDS, [6, -2])
    # In int32 these would add up to 4.
    with pytest.raises(InputError, match="to the number of ids, 4. Received: .* to .4294967300."):
        ClientExamples.from_sizes(IDS, np.array([2**30] * 4 + [4], np.int32))
