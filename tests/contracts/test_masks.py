"""Masks: numbers of FIARSE computed by hand."""

import numpy as np
import pytest
import tensorflow as tf

from hetero_tf.base import registry

SHAPE = (3, 41)
MASKABLE = np.arange(SHAPE[1]) % 5 != 0
KEYS = tf.constant([[0, 1, 2], [0, 1, 5], [0, 1, 7]])


def drawn(dtype="float64", seed=0):
    return tf.constant(np.random.default_rng(seed).normal(size=SHAPE), dtype)


def masked(name, start, share, weights=None, clients=slice(None), **options):
    """The mask of weights after `prepare` with the start, and its state."""
    module, number = registry.find("masks", name), int(share * MASKABLE.sum())
    state = tf.stop_gradient(module.prepare(start, KEYS[clients], tf.constant(MASKABLE), number, **options))
    return module.mask(start if weights is None else weights, state, **options), state


def test_fiarse_keeps_its_threshold_in_a_round_and_masks_the_current_weights():
    start = tf.constant([[0.0, 4.0, -3.0, 2.0, -1.0]], tf.float64)
    module = registry.find("masks", "fiarse")
    state = module.prepare(start, KEYS[:1], tf.constant([False, True, True, True, True]), 2)
    assert state.numpy().tolist() == [[0, 3, 3, 3, 3]]
    later = tf.constant([[0.0, 2.9, -3.0, 3.5, -1.0]], tf.float64)
    assert module.mask(later, state).numpy().tolist() == [[1, 0, 1, 1, 0]]
    assert module.counts(later, start, state).numpy().tolist() == [[False, True, False, True, False]]


@pytest.mark.parametrize("surrogate", [True, False])
def test_the_gradient_of_fiarse_is_the_published_one(surrogate):
    weights, slope = drawn(), drawn(seed=3)
    with tf.GradientTape() as tape:
        tape.watch(weights)
        mask, state = masked("fiarse", weights, 0.5, surrogate=surrogate)
        value = tf.reduce_sum(weights * mask * slope)
    size, threshold = np.abs(weights), np.broadcast_to(state, SHAPE)
    factor = 1 + 2 * threshold * size / (size + threshold) ** 2 if surrogate else 1
    np.testing.assert_allclose(tape.gradient(value, weights), slope * mask * factor, rtol=1e-12)
