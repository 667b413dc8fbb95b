"""Functions that partitions share: sizes, groups, validation and test examples."""

import numpy as np
import pytest
from splits import TEST, TRAIN, rng, shares

from hetero_tf.base.errors import InputError
from hetero_tf.data.partitions import splitting


def test_cut_gives_the_least_and_then_the_parts():
    assert sorted(splitting.cut(17, 5, 2, None, rng())) in ([3, 3, 3, 3, 5], [3, 3, 3, 4, 4])
    assert splitting.cut(15, 5, 3, None, rng()).tolist() == [3] * 5
    sizes = splitting.cut(103, 3, 1, np.array([0.5, 0.25, 0.25]), rng())
    assert sizes.tolist() == [51, 26, 26]
    sizes = splitting.cut(12, 3, 0, np.array([0.99, 0.005, 0.005]), rng())
    assert sizes.sum() == 12 and sizes[0] >= 11


def test_shuffle_keeps_the_owners():
    examples, seen = shares([9, 4, 6], [], [1, 0, 7, 8]), set()
    for seed in range(40):
        shuffled = splitting.shuffle(examples, rng(seed))
        assert [sorted(ids) for ids in shuffled] == [[4, 6, 9], [], [0, 1, 7, 8]]
        seen.add(tuple(shuffled[0]))
    assert len(seen) == 6


def test_hold_out_selects_the_last_or_first_examples():
    examples = shares([9, 4, 6, 2], [], [1], [3, 5])
    train, validation = splitting.hold_out(examples, 0.5)
    assert [ids.tolist() for ids in train] == [[9, 4], [], [1], [3]]
    assert [ids.tolist() for ids in validation] == [[6, 2], [], [], [5]]
    train, validation = splitting.hold_out(examples, 0.5, first=True)
    assert [ids.tolist() for ids in train] == [[6, 2], [], [1], [5]]
    assert [ids.tolist() for ids in validation] == [[9, 4], [], [], [3]]
    assert splitting.hold_out(examples, 0.0)[0].ids.tolist() == examples.ids.tolist()
    message = "`held_out` must be 0, or large enough for one example .*, which has 4. Received: held_out=0.2"
    with pytest.raises(InputError, match=message):
        splitting.hold_out(examples, 0.2)


def test_test_examples_are_proportional_on_average():
    # Client 0 has 3 of 4 examples of label 0 and none of 1, client 2 has none: 10 test examples of 0, 4 of 1.
    train, test = np.array([0, 0, 0, 0, 1, 1], np.int32), np.repeat([0, 1, 2], [10, 4, 3]).astype(np.int32)
    examples, means = shares([0, 1, 2], [3, 4, 5], []), np.zeros((3, 3))
    for seed in range(200):
        assigned = splitting.split_test("own", train, test, 3, examples, rng(seed))
        means += [np.bincount(test[ids], minlength=3) / 200 for ids in assigned]
        assert len(set(assigned.ids.tolist())) == 14
    np.testing.assert_allclose(means, [[7.5, 0, 0], [2.5, 4, 0], [0, 0, 0]], atol=0.15)


def test_other_test_examples_are_equal_shares():
    train = shares(*[[client] for client in range(7)])
    contiguous = splitting.split_test("contiguous", TRAIN, TEST, 10, train, rng())
    assert contiguous.ids.tolist() == list(range(600))
    assert contiguous.sizes.min() == 85 and contiguous.sizes.sum() == 600
    equal = splitting.split_test("equal", TRAIN, TEST, 10, train, rng())
    assert sorted(equal.ids) == list(range(600)) and equal.ids.tolist() != contiguous.ids.tolist()
