"""Corrections: formulas checked by finite differences and at common minima."""

import numpy as np
import pytest
import tensorflow as tf

from hetero_tf.base import registry

SHAPE, STEPS, RATE = (3, 7), (2, 1, 5), 0.1


def draw(name, dtype="float64", seed=0):
    """Weights, start, memory (None if the correction has none) and the slots that it reads."""
    module, rng = registry.find("corrections", name), np.random.default_rng(seed)
    weights, start, memory, *slots = tf.constant(rng.normal(size=(3 + len(module.READS), *SHAPE)), dtype)
    return weights, start, memory if module.REMEMBERS else None, tuple(slots)


def terms(name, weights, start, memory):
    """The penalty whose gradient is the correction."""
    spring = tf.reduce_sum((weights - start) ** 2) / 2
    return 0.3 * spring if name == "proximal" else 0.2 * spring - tf.reduce_sum(memory * weights)


@pytest.mark.parametrize(("name", "options"), [("proximal", {"mu": 0.3}), ("dynamic", {"alpha": 0.2})])
def test_a_correction_is_the_gradient_of_its_terms(name, options):
    weights, start, memory, _ = draw(name)
    with tf.GradientTape() as tape:
        tape.watch(weights)
        value = terms(name, weights, start, memory)
    actual = registry.find("corrections", name).correct(weights, start, memory, (), **options)
    np.testing.assert_allclose(actual, tape.gradient(value, weights), rtol=1e-12, atol=1e-14)


def test_dynamic_stores_the_gradient_of_the_loss_at_the_local_minimum():
    # Clients with the losses |w - c|^2 / 2: FedDyn's local minimum is (c + memory + alpha start) / (1 + alpha).
    module = registry.find("corrections", "dynamic")
    centre, start, memory, _ = draw("dynamic")
    weights = (centre + memory + 0.2 * start) / 1.2
    pulled = module.correct(weights, start, memory, (), alpha=0.2)
    np.testing.assert_allclose(weights - centre + pulled, np.zeros(SHAPE), atol=1e-14)
    np.testing.assert_allclose(
        module.remember(memory, weights, start, (), None, None, alpha=0.2), weights - centre, atol=1e-14
    )


def test_dynamic_reaches_the_common_minimum_and_plain_averaging_does_not():
    # Losses curvature * (w - c)^2 / 2, each minimised exactly; the minimum of their sum is 34 / 13 for three clients.
    curvature, centre = tf.constant([[1.0], [2.0], [10.0]], tf.float64), tf.constant([[4.0], [5.0], [2.0]], tf.float64)
    client, server = registry.find("corrections", "dynamic"), registry.find("servers", "dynamic")
    memory, weights, drift = tf.zeros([3, 1], tf.float64), tf.zeros([1], tf.float64), (tf.zeros([1], tf.float64),)
    for _ in range(300):
        start = tf.tile(weights[None], [3, 1])
        trained = (curvature * centre + memory + 0.5 * start) / (curvature + 0.5)
        memory = client.remember(memory, trained, start, (), None, None, alpha=0.5)
        weights, drift = server.apply(
            weights, tf.reduce_mean(trained, 0), tf.constant([3.0], tf.float64), drift, registered=3, alpha=0.5
        )
    np.testing.assert_allclose(weights, [34 / 13], rtol=1e-9)
    assert abs(float(tf.reduce_mean(centre)) - 34 / 13) > 1


def test_scaffold_remembers_the_mean_gradient_of_its_steps():
    module, rng = registry.find("corrections", "scaffold"), np.random.default_rng(1)
    gradients = rng.normal(size=(5, *SHAPE))
    start, memory, control = (tf.constant(rng.normal(size=SHAPE)) for _ in range(3))
    weights = start
    for gradient in gradients:
        weights -= RATE * (gradient + module.correct(weights, start, memory, (control,)))
    control_update = module.remember(memory, weights, start, (control,), tf.constant([5, 5, 5]), RATE)
    np.testing.assert_allclose(control_update, gradients.mean(0), rtol=1e-12)


def test_scaffold_reaches_the_common_minimum_and_plain_averaging_does_not():
    # Losses curvature * (w - c)^2 / 2, each followed for ten steps; the minimum of their sum is 34 / 13.
    curvature, centre = tf.constant([[1.0], [2.0], [10.0]], tf.float64), tf.constant([[4.0], [5.0], [2.0]], tf.float64)
    client, server = registry.find("corrections", "scaffold"), registry.find("servers", "scaffold")
    minima = {}
    for corrected in (True, False):
        memory, weights, control = tf.zeros([3, 1], tf.float64), tf.zeros([1], tf.float64), tf.zeros([1], tf.float64)
        for _ in range(400):
            start = trained = tf.tile(weights[None], [3, 1])
            slots = (tf.tile(control[None], [3, 1]),)
            for _ in range(10):
                pull = client.correct(trained, start, memory, slots) if corrected else 0
                trained -= 0.05 * (curvature * (trained - centre) + pull)
            after = client.remember(memory, trained, start, slots, tf.constant([10, 10, 10]), 0.05)
            change, memory = tf.reduce_sum(after - memory, 0), after
            mean, count = tf.reduce_mean(trained, 0), tf.constant([3.0], tf.float64)
            weights, (control,) = server.apply(weights, mean, count, (control,), registered=3, memory_change=change)
        minima[corrected] = float(weights[0])
        np.testing.assert_allclose(control, tf.reduce_mean(memory, 0), atol=1e-12)
    np.testing.assert_allclose(minima[True], 34 / 13, rtol=1e-9)
    assert abs(minima[False] - 34 / 13) > 0.3
