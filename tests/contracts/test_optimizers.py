"""Optimizers of local steps: formulas in NumPy."""

import numpy as np
import oracle_terms
import pytest
import tensorflow as tf

from hetero_tf.base import registry
from hetero_tf.recipe.schema import Plugin

SHAPE, RATE = (3, 7), 0.1
# Several forms of each optimizer: options other than the defaults.
FORMS = [
    ("sgd", {}),
    ("sgd", {"nesterov": True, "momentum": 0.5, "weight_decay": 0.1}),
    ("adam", {"weight_decay": 0.1}),
    ("adam", {"beta1": 0.5, "beta2": 0.9, "epsilon": 0.01}),
    ("adamw", {"weight_decay": 0.1}),
    ("adamw", {"beta1": 0.0, "epsilon": 1e-3}),
]


def start(name, dtype="float64", seed=0):
    """Weights and slots of a client after some steps: squares are not negative."""
    rng, num_slots = np.random.default_rng(seed), len(registry.find("optimizers", name).SLOTS)
    weights = tf.constant(rng.normal(size=SHAPE), dtype)
    return weights, tuple(tf.constant(rng.random(SHAPE), dtype) for _ in range(num_slots))


def stepped(name, gradients, weights, slots, first=(0, 0, 0), **options):
    """The weights after each of some steps, and the last slots."""
    module, weights_by_step = registry.find("optimizers", name), []
    rate = tf.constant(RATE, weights.dtype)
    for number, gradient in enumerate(gradients):
        count = tf.constant(first) + number
        weights, slots = module.step(weights, gradient, slots, rate, count, **options)
        weights_by_step.append(weights.numpy())
    return weights_by_step, slots


def drawn(count, dtype="float64"):
    return tf.constant(np.random.default_rng(1).normal(size=(count, *SHAPE)), dtype)


@pytest.mark.parametrize(("name", "options"), FORMS)
def test_several_steps_equal_numpy(name, options):
    weights, slots = start(name)
    slots = tuple(map(tf.zeros_like, slots))
    defaults = {option.name: option.default for option in registry.options("optimizers", name).values()}
    actual, _ = stepped(name, drawn(6), weights, slots, **options)
    value, expected_slots = weights.numpy(), (np.zeros(SHAPE),) * 2
    for count, gradient in enumerate(drawn(6).numpy()):
        value, expected_slots = oracle_terms.moved(
            Plugin(name, defaults | options), value, gradient, expected_slots, RATE, count
        )
        np.testing.assert_allclose(actual[count], value, rtol=1e-12, atol=1e-14)


def test_adam_is_invariant_to_the_scale_of_gradients_and_sgd_is_not():
    zeros, options = tf.zeros(SHAPE, tf.float64), {"weight_decay": 0.0}
    for name, num_slots in (("adam", 2), ("adamw", 2), ("sgd", 1)):
        small, large = (
            stepped(name, drawn(3) * scale, zeros, (zeros,) * num_slots, **options)[0][-1] for scale in (1, 100)
        )
        assert np.allclose(small, large, rtol=1e-5) == (name != "sgd")


def test_decay_of_adamw_is_not_scaled_by_the_squares():
    ones, zeros, gradients = tf.ones(SHAPE, tf.float64), tf.zeros(SHAPE, tf.float64), drawn(1) * 1e-6
    plain, decayed = (stepped("adamw", gradients, ones, (zeros,) * 2, weight_decay=decay)[0][0] for decay in (0.0, 0.2))
    np.testing.assert_allclose(plain - decayed, RATE * 0.2, rtol=1e-9)


def test_nesterov_adds_the_next_momentum_step():
    zeros = tf.zeros(SHAPE, tf.float64)
    plain, ahead = (
        stepped("sgd", drawn(1), zeros, (zeros,), momentum=0.5, weight_decay=0.0, nesterov=nesterov)[0][0]
        for nesterov in (False, True)
    )
    np.testing.assert_allclose(ahead, 1.5 * plain, rtol=1e-14)
