"""Contract of every mask in the package; numbers of FIARSE computed by hand."""

import numpy as np
import pytest
import tensorflow as tf

from hetero_tf.base import registry

SHAPE = (3, 41)
MASKABLE = np.arange(SHAPE[1]) % 5 != 0
KEYS = tf.constant([[0, 1, 2], [0, 1, 5], [0, 1, 7]])


@pytest.fixture(params=registry.names("masks"))
def name(request):
    return request.param


def drawn(dtype="float64", seed=0):
    return tf.constant(np.random.default_rng(seed).normal(size=SHAPE), dtype)


def masked(name, start, share, weights=None, clients=slice(None), **options):
    """The mask of weights after `prepare` with the start, and its state."""
    module, number = registry.find("masks", name), int(share * MASKABLE.sum())
    state = tf.stop_gradient(module.prepare(start, KEYS[clients], tf.constant(MASKABLE), number, **options))
    return module.mask(start if weights is None else weights, state, **options), state


@pytest.mark.parametrize("share", [1.0, 0.25, 1 / 16])
def test_a_mask_selects_the_share_of_maskable_entries_and_all_others(name, share):
    mask = masked(name, drawn(), share)[0].numpy()
    assert set(np.unique(mask)) <= {0.0, 1.0}
    assert (mask[:, ~MASKABLE] == 1).all()
    assert mask[:, MASKABLE].sum(1).tolist() == [int(share * MASKABLE.sum())] * 3


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_batched_clients_get_the_masks_of_single_clients(name, dtype):
    start, weights = drawn(dtype), drawn(dtype, 1)
    whole, state = masked(name, start, 0.25, weights)
    assert whole.shape == SHAPE and whole.dtype == dtype
    counts = registry.find("masks", name).counts(weights, start, state)
    assert counts.shape == SHAPE and counts.dtype == tf.bool
    for client in range(3):
        row = slice(client, client + 1)
        np.testing.assert_array_equal(whole[row], masked(name, start[row], 0.25, weights[row], row)[0])


def test_masked_entries_get_no_gradient_and_others_a_finite_one(name):
    # Zeros among the weights: a threshold of 0 must divide nothing by 0.
    weights = drawn() * tf.constant(np.arange(SHAPE[1]) % 3 != 0, tf.float64)
    for share in (1.0, 0.25):
        with tf.GradientTape() as tape:
            tape.watch(weights)
            mask = masked(name, weights, share)[0]
            value = tf.reduce_sum(weights * mask * drawn(seed=2))
        gradient = tape.gradient(value, weights).numpy()
        assert np.isfinite(gradient).all()
        assert ((gradient != 0) == (mask.numpy() != 0)).all()


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
