"""Merges: each is the mean where it should be, and otherwise differs in the direction of its paper."""

import numpy as np
import pytest
import tensorflow as tf

from hetero_tf.base import registry
from hetero_tf.testing.step_checks import aggregate_clients
from hetero_tf.testing.subject import Subject

MINIMA = np.array([0.0, 1.0, 5.0])


def aggregate(name, old, rows, options=None, **arguments):
    """The result of a merge of clients with equal weights and full coverage."""
    count = len(rows)
    defaults = {"steps": np.ones(count, np.int32), "loss": np.ones(count), "rate": np.float64(0.1)}
    values = {"rows": rows, "covered": np.ones(rows.shape, bool), "weight": np.ones(count), **defaults, **arguments}
    others = {"momentum": 0.0, "mu": 0.0, "blocks": values.pop("blocks", ())}
    tensors = {each: tf.constant(value) for each, value in values.items()} | others
    return aggregate_clients(Subject("merges", name, options or {}), tf.constant(old), tensors).numpy()


# Without deeper blocks momentum distillation is the mean.
NO_BLOCKS = {"submodel": np.zeros(4, np.int32), "blocks": ()}


@pytest.mark.parametrize("name", registry.names("merges"))
def test_clients_with_equal_steps_around_their_mean_are_averaged(name):
    old, mean, first, second = np.array([[2.0, 1, 0, 0], [5.0, 4, 4, 4], [0.0, 0, 3, 1], [0.0, 0, 1, -3]])
    # The updates have equal norms, and the middle of each coordinate is the mean.
    mean[2:] = old[2:]
    rows = np.stack([mean + first, mean - first, mean + second, mean - second])
    actual = aggregate(name, old, rows, {"qfedavg": {"q": 0.0}}.get(name), steps=np.full(4, 3, np.int32), **NO_BLOCKS)
    np.testing.assert_allclose(actual, mean, rtol=1e-12)


def converge(name, local_steps, options=None, rate=0.1):
    """The point to which rounds of gradient steps on `(w - minimum)^2 / 2` converge, one client for each minimum."""
    point, steps = np.zeros(1), np.array(local_steps, np.int32)
    for _ in range(150):
        rows = MINIMA + (point - MINIMA) * (1 - rate) ** steps
        losses = (point - MINIMA) ** 2 / 2
        point = aggregate(name, point, rows[:, None], options, steps=steps, loss=losses, rate=np.float64(rate))
    return float(point[0])


def test_fednova_reaches_the_minimum_of_the_mean_loss_with_unequal_steps():
    """The mean prefers the minimum of the client with most steps: the objective inconsistency of the paper."""
    assert converge("mean", (1, 1, 20), rate=0.01) > MINIMA.mean() + 2
    assert converge("fednova", (1, 1, 20), rate=0.01) == pytest.approx(MINIMA.mean(), abs=0.1)
    for name in ("mean", "fednova"):
        assert converge(name, (3, 3, 3)) == pytest.approx(MINIMA.mean())


def test_qfedavg_lowers_the_variance_of_the_clients_losses():
    variances = []
    for q in (0.0, 1.0, 5.0):
        variances.append(np.var((converge("qfedavg", (1, 1, 1), {"q": q}) - MINIMA) ** 2 / 2))
    assert variances[0] > 1.2 * variances[1] > 1.2 * variances[2]


@pytest.mark.parametrize("name", ["median", "trimmed_mean", "geometric_median", "bounded"])
def test_a_narrow_client_is_not_preferred_and_a_poisoned_one_does_not_matter(name):
    rows, old = 1 + 0.1 * np.random.default_rng(0).normal(size=(9, 40)), np.zeros(40)
    covered = np.ones(rows.shape, bool)
    covered[:3, 20:] = False
    rows[~covered] = 0
    options = {"trimmed_mean": {"share": 0.2}}.get(name)
    expected = aggregate(name, old, rows, options, covered=covered)
    np.testing.assert_allclose(expected, 1, atol=0.15)
    for poison in (-20.0, 1e6, 1e30):
        poisoned = rows.copy()
        poisoned[8] = poison
        actual = aggregate(name, old, poisoned, options, covered=covered)
        # A shortened update of the wrong sign still counts for its share.
        assert np.abs(actual - expected).max() < (0.5 if name == "bounded" else 0.1)
    assert np.abs(aggregate("mean", old, poisoned) - 1).max() > 1e20
