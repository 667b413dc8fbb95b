"""Accuracy of single clients, against plain NumPy and by hand."""

import math

import numpy as np
import pytest
import tensorflow as tf

from hetero_tf.data.partitions.partition import ClientExamples
from hetero_tf.evaluation.fairness import accuracies, client_tests, client_values, fairness, spread
from hetero_tf.methods.metrics import mae


def build_client_tests(sizes, levels=None, names=()):
    """The `ClientTests` of clients with these numbers of test examples, of two classes."""
    sizes = np.asarray(sizes)
    test = ClientExamples.from_sizes(np.arange(sizes.sum(), dtype=np.int32), sizes)
    return client_tests(test, np.ones((len(sizes), 2), bool), levels, names)


def measure_fairness(shares, sizes, levels=None, names=(), dtype=np.float64):
    """`fairness` of clients with these numbers of correct predictions, and "accuracies"."""
    hits = np.concatenate([np.arange(size) < share for share, size in zip(shares, sizes)]).astype(dtype)
    hits, tests = tf.constant(hits), build_client_tests(sizes, levels, names)
    metrics = {"accuracies": accuracies(hits, tests)} | fairness(hits, tests)
    return {name: value.numpy() for name, value in metrics.items()}


def test_clients_without_test_examples_are_left_out_and_others_have_levels():
    tests = build_client_tests([2, 0, 3, 0], np.array([1, 1, 0, 0]), ("a", "b"))
    assert (tests.clients.tolist(), tests.counts.tolist()) == ([0, 2], [2, 3])
    assert tests.owners.tolist() == [0, 0, 1, 1, 1]
    assert {name: positions.tolist() for name, positions in tests.levels.items()} == {"a": [1], "b": [0]}
    assert {tests.clients.dtype, tests.counts.dtype, tests.owners.dtype} == {np.dtype(np.int32)}
    assert build_client_tests([2, 0, 3, 0]).levels == {} and tests.examples.tolist() == list(range(5))


@pytest.mark.parametrize(("clients", "worst"), [(1, 1), (10, 1), (11, 2), (30, 3)])
def test_worst_decile_is_rounded_up_to_full_clients(clients, worst):
    rng = np.random.default_rng(clients)
    sizes = rng.integers(5, 30, clients)
    hits = rng.integers(0, sizes + 1)
    metrics = measure_fairness(hits, sizes)
    assert metrics["local_worst_decile"] == pytest.approx(np.sort(100 * hits / sizes)[:worst].mean(), rel=1e-12)
    assert metrics["local_std"] == pytest.approx(np.std(100 * hits / sizes), abs=1e-12)


def test_worst_client_and_noise_floor_of_equal_clients():
    worst_decile = measure_fairness([0, 5], [5, 5])["local_worst_decile"]
    assert worst_decile == 0 and not np.signbit(worst_decile)
    # Source: 100 test images each at 50 % give 0.05 in shares.
    assert measure_fairness([50] * 4, [100] * 4)["local_std_noise"] == pytest.approx(5)
    metrics = measure_fairness([1, 3], [2, 8])
    assert metrics["local_std_noise"] == pytest.approx(100 * math.sqrt(0.4 * 0.6 * (1 / 2 + 1 / 8) / 2))


def test_spread_of_a_metric_leaves_out_clients_without_a_value():
    scores, targets = tf.constant([[1.0], [2], [5], [0], [0], [0]]), tf.constant([[1.0], [1], [1], [0], [3], [0]])
    values = client_values(
        lambda scores, targets, _: mae.metric(scores, targets), scores, targets, build_client_tests([1, 0, 2, 3])
    )
    np.testing.assert_allclose(values, [0, 2.5, 1])
    values = tf.concat([values, [np.nan]], 0)
    measured = spread("mae", values, "lower")
    np.testing.assert_allclose(measured["local_mae_worst_decile"], 2.5)
    np.testing.assert_allclose(measured["local_mae_std"], np.std([0, 2.5, 1]))
    assert float(spread("mae", values, "higher")["local_mae_worst_decile"]) == 0
    assert np.isnan(spread("mae", values[3:], "lower")["local_mae_std"])


def test_levels_are_means_over_their_clients():
    metrics = measure_fairness([1, 2, 0, 4, 0], [2, 2, 0, 8, 4], np.array([0, 1, 1, 1, 0]), ("a", "b", "c"))
    assert metrics["clients_accuracy_a"] == pytest.approx((50 + 0) / 2)
    assert metrics["clients_accuracy_b"] == pytest.approx((100 + 50) / 2)  # the third client has no test examples
    assert "clients_accuracy_c" not in metrics  # no client has this level


def test_no_tested_client_is_not_an_error():
    metrics = measure_fairness([0, 0], [0, 0], np.array([0, 0]), ("a",))
    assert metrics.pop("accuracies").shape == (0,)
    assert {"local_mean", "local_std", "local_std_noise", "local_worst_decile"} <= set(metrics)
    assert all(name.startswith("local_") for name in metrics)
    assert all(np.isnan(value) for value in metrics.values())
