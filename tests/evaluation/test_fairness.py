"""Accuracy of single clients, against plain NumPy and by hand."""

import math

import numpy as np
import pytest
import tensorflow as tf

from hetero_tf.evaluation.fairness import accuracies, client_tests, fairness
from hetero_tf.partitions.partition import Partition
from hetero_tf.partitions.shares import ClientExamples


def shared_out(sizes, levels=None, names=()):
    """The `ClientTests` of clients with so many test examples, of two classes."""
    sizes = np.asarray(sizes)
    test = ClientExamples.from_sizes(np.arange(sizes.sum(), dtype=np.int32), sizes)
    return client_tests(
        Partition(ClientExamples.empty(len(sizes)), test, np.ones((len(sizes), 2), bool)), levels, names
    )


def measured(shares, sizes, levels=None, names=(), dtype=np.float64):
    """`fairness` of clients of which so many examples are hit, with "accuracies"."""
    hits = np.concatenate([np.arange(size) < share for share, size in zip(shares, sizes)]).astype(dtype)
    hits, tests = tf.constant(hits), shared_out(sizes, levels, names)
    found = {"accuracies": accuracies(hits, tests)} | fairness(hits, tests)
    return {name: value.numpy() for name, value in found.items()}


def test_clients_without_test_examples_are_nobody_and_the_others_have_their_levels():
    found = shared_out([2, 0, 3, 0], np.array([1, 1, 0, 0]), ("a", "b"))
    assert (found.clients.tolist(), found.counts.tolist()) == ([0, 2], [2, 3])
    assert found.owners.tolist() == [0, 0, 1, 1, 1]
    assert {name: positions.tolist() for name, positions in found.levels.items()} == {"a": [1], "b": [0]}
    assert {found.clients.dtype, found.counts.dtype, found.owners.dtype} == {np.dtype(np.int32)}
    assert shared_out([2, 0, 3, 0]).levels == {}


def test_every_client_counts_once_however_many_examples_it_has():
    found = measured([1, 0, 6], [2, 0, 8])
    assert found["accuracies"].tolist() == [50, 75]
    assert found["local_mean"] == 62.5  # pooled over examples it would be 70
    assert found["local_std"] == 12.5
    assert {value.shape for name, value in found.items() if name != "accuracies"} == {()}


@pytest.mark.parametrize(("clients", "worst"), [(1, 1), (10, 1), (11, 2), (30, 3)])
def test_the_worst_decile_is_rounded_up_to_whole_clients(clients, worst):
    rng = np.random.default_rng(clients)
    sizes = rng.integers(5, 30, clients)
    hits = rng.integers(0, sizes + 1)
    found = measured(hits, sizes)
    lowest = np.sort(100 * hits / sizes)[:worst]
    assert found["local_worst_decile"] == pytest.approx(lowest.mean(), rel=1e-12)
    assert found["local_std"] == pytest.approx(np.std(100 * hits / sizes), abs=1e-12)


def test_a_worst_client_without_any_hit_has_plain_zero():
    found = measured([0, 5], [5, 5])["local_worst_decile"]
    assert found == 0 and not np.signbit(found)


def test_noise_floor_of_equal_clients():
    # Source: 100 test images each at 50 % give 0.05 in shares.
    assert measured([50] * 4, [100] * 4)["local_std_noise"] == pytest.approx(5)
    found = measured([1, 3], [2, 8])
    assert found["local_std_noise"] == pytest.approx(100 * math.sqrt(0.4 * 0.6 * (1 / 2 + 1 / 8) / 2))


def test_spread_of_equally_good_clients_is_the_noise_floor():
    rng = np.random.default_rng(0)
    sizes = rng.integers(10, 60, 3000)
    found = measured(rng.binomial(sizes, 0.7), sizes)
    assert found["local_std"] == pytest.approx(found["local_std_noise"], rel=0.05)
    unequal = measured(rng.binomial(sizes, rng.choice([0.5, 0.9], 3000)), sizes)
    assert unequal["local_std"] > 1.5 * unequal["local_std_noise"]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_perfect_clients_have_no_spread(dtype):
    found = measured([7, 3, 11], [7, 3, 11], dtype=dtype)
    assert found["local_worst_decile"] == found["local_mean"] == 100
    assert found["local_std"] == found["local_std_noise"] == 0
    assert {value.dtype for value in found.values()} == {np.dtype(dtype)}


def test_levels_are_means_over_their_clients():
    found = measured([1, 2, 0, 4, 0], [2, 2, 0, 8, 4], np.array([0, 1, 1, 1, 0]), ("a", "b", "c"))
    assert found["clients_accuracy_a"] == pytest.approx((50 + 0) / 2)
    assert found["clients_accuracy_b"] == pytest.approx((100 + 50) / 2)  # the third client has nothing to be tested on
    assert "clients_accuracy_c" not in found  # and nobody has this level


def test_nobody_is_no_error():
    found = measured([0, 0], [0, 0], np.array([0, 0]), ("a",))
    assert found.pop("accuracies").shape == (0,)
    assert sorted(found) == ["local_mean", "local_std", "local_std_noise", "local_worst_decile"]
    assert all(np.isnan(value) for value in found.values())
