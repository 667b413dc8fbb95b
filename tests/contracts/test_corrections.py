"""Corrections: formulas checked by finite differences and at common minima."""

import numpy as np
import tensorflow as tf

from hetero_tf.base import registry
from hetero_tf.methods.policies import SynchronousPolicy


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


def test_rules_of_the_shipped_policies_and_cohorts_are_rounded_up():
    policies = {name: registry.find("policies", name).policy for name in ("wait", "deadline", "over_selection")}
    assert policies["wait"]() == SynchronousPolicy(deadline=None, partial=False, factor=1.0)
    assert policies["deadline"](seconds=9.0, late="partial") == SynchronousPolicy(deadline=9.0, partial=True)
    assert not policies["deadline"](seconds=9.0).partial
    assert policies["over_selection"]() == SynchronousPolicy(factor=1.3)
    # 1.1 * 10 is 11.000000000000002.
    sizes = {
        factor: [SynchronousPolicy(factor=factor).cohort_size(n) for n in (1, 9, 10)] for factor in (1.0, 1.1, 1.3)
    }
    assert sizes == {1.0: [1, 9, 10], 1.1: [2, 10, 11], 1.3: [2, 12, 13]}
