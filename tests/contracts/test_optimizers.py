"""Optimizers of local steps: formulas in NumPy."""

import math

import numpy as np
import oracle_terms
import pytest
import tensorflow as tf

from hetero_tf.base import registry
from hetero_tf.recipe.schema import Plugin
from hetero_tf.testing.step_checks import KEYS, RATE, SHAPE, STEPS, draw, optimizer_values
from hetero_tf.testing.subject import Subject

# Several forms of each optimizer: options other than the defaults.
FORMS = [
    ("sgd", {}),
    ("sgd", {"nesterov": True, "momentum": 0.5, "weight_decay": 0.1}),
    ("adam", {"weight_decay": 0.1}),
    ("adam", {"beta1": 0.5, "beta2": 0.9, "epsilon": 0.01}),
    ("adamw", {"weight_decay": 0.1}),
    ("adamw", {"beta1": 0.0, "epsilon": 1e-3}),
]


@pytest.mark.parametrize(("name", "options"), FORMS)
def test_several_steps_equal_numpy(name, options):
    subject, rate = Subject("optimizers", name, options), tf.constant(RATE, tf.float64)
    weights, slots = optimizer_values(subject)
    slots, value, expected_slots = tuple(map(tf.zeros_like, slots)), weights.numpy(), (np.zeros(SHAPE),) * 2
    defaults = {option.name: option.default for option in registry.options("optimizers", name).values()}
    for count, gradient in enumerate(draw(6, seed=1)):
        weights, slots = subject.call("step", weights, gradient, slots, rate, tf.constant([count] * 3))
        value, expected_slots = oracle_terms.moved(
            Plugin(name, defaults | options), value, gradient.numpy(), expected_slots, RATE, count
        )
        np.testing.assert_allclose(weights, value, rtol=1e-12, atol=1e-14)


def moved():
    """Weights and start; the first client moves less than the others."""
    start, change = np.random.default_rng(0).normal(size=(2, *SHAPE))
    return tf.constant(start + change * [[0.1], [1.0], [3.0]]), tf.constant(start)


def clip(weights, start, norm):
    module = registry.find("updates", "clip")
    return module.update(weights, start, tf.constant(STEPS), tf.constant(KEYS), norm=norm).numpy()


def test_clip_limits_each_clients_distance_and_keeps_its_direction():
    weights, start = moved()
    clipped = clip(weights, start, norm=1.0)
    clipped_change, change = clipped - start, (weights - start).numpy()
    lengths = np.linalg.norm(change, axis=1)
    assert lengths[0] < 1 < lengths[1] < lengths[2]
    assert clipped[0].tobytes() == weights[0].numpy().tobytes(), "who moves less stays bit-equal"
    np.testing.assert_allclose(np.linalg.norm(clipped_change[1:], axis=1), 1.0, rtol=1e-12)
    np.testing.assert_allclose(clipped_change[1:], change[1:] / lengths[1:, None], rtol=1e-12)


def test_clip_leaves_unchanged_clients_and_keeps_nan_visible():
    start = tf.zeros(SHAPE, tf.float64)
    assert not clip(start, start, norm=2.0).any()
    broken = tf.tensor_scatter_nd_update(start, [[1, 2]], tf.constant([np.nan], tf.float64))
    clipped = clip(broken, start, norm=2.0)
    assert np.isnan(clipped[1]).any() and np.isfinite(clipped[[0, 2]]).all()


def test_steps_fall_after_the_listed_rounds_and_cosine_to_zero_at_the_end():
    # MNIST of HeteroFL: rounds 1 to 100 at the full rate, the 101st at a tenth (round 100 when counted from 0).
    steps = registry.find("schedules", "steps").multiplier
    assert [steps(round, at=(100,)) for round in (0, 99, 100, 101)] == [1, 1, 0.1, 0.1]
    assert [steps(round, at=(150, 250), factor=0.5) for round in (149, 150, 249, 250)] == [1, 0.5, 0.5, 0.25]
    assert steps(5, at=()) == 1
    cosine = registry.find("schedules", "cosine").multiplier
    assert cosine(10, rounds=20) == pytest.approx(0.5)
    assert cosine(5, rounds=20) == pytest.approx((1 + math.sqrt(0.5)) / 2)
    assert cosine(20, rounds=20) == cosine(25, rounds=20) == 0
