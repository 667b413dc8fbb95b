"""What every loss keeps, found by listing the package."""

import numpy as np
import pytest
import tensorflow as tf

from hetero_tf import registry
from hetero_tf.objectives.masked_cross_entropy import masked

CLASSES = 6
PRESENT = np.asarray([True, False, True, True, False, False])


@pytest.fixture(params=registry.names("objectives"))
def module(request):
    return registry.find("objectives", request.param)


def draw(shape, seed=0):
    rng = np.random.default_rng(seed)
    logits = tf.constant(rng.normal(0, 2, (*shape, CLASSES)))
    return logits, tf.constant(rng.choice(np.flatnonzero(PRESENT), shape), tf.int32)


def gradient(loss, logits):
    with tf.GradientTape() as tape:
        tape.watch(logits)
        value = loss(logits)
    return value, tape.gradient(value, logits).numpy()


@pytest.mark.parametrize("shape", [(4,), (3, 5)])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_loss_is_a_finite_scalar_in_the_type_of_the_logits(module, shape, dtype):
    logits, targets = draw(shape)
    value = module.loss(tf.cast(logits, dtype), targets, PRESENT, 0)
    assert value.shape == ()
    assert value.dtype == dtype
    assert np.isfinite(value)
    assert np.isfinite(module.loss(tf.cast(logits * 1e4, dtype), targets, PRESENT, 0))


def test_gradients_point_up_the_loss(module):
    logits, targets = draw((4,))
    value, slope = gradient(lambda z: module.loss(z, targets, PRESENT, 0), logits)
    rng = np.random.default_rng(1)
    for _ in range(5):
        step = 1e-6 * rng.normal(size=slope.shape)
        moved = module.loss(logits + step, targets, PRESENT, 0)
        np.testing.assert_allclose(moved - value, (slope * step).sum(), atol=1e-11)


def test_a_loss_that_says_it_masks_gives_absent_labels_no_gradient_and_can_be_cut(module):
    logits, targets = draw((7,))
    whole, slope = gradient(lambda z: module.loss(z, targets, PRESENT, 0), logits)
    assert (slope[:, ~PRESENT] == 0).all() == module.MASKS_LABELS
    if not module.MASKS_LABELS:
        return
    own = np.flatnonzero(PRESENT)
    places = tf.constant(np.searchsorted(own, targets), tf.int32)
    for padding in (0, 1, 3):  # a client with fewer labels than the axis has room
        room = tf.pad(tf.gather(logits, own, axis=1), [[0, 0], [0, padding]], constant_values=9.0)
        present = np.arange(len(own) + padding) < len(own)
        cut, cut_slope = gradient(lambda z: module.loss(z, places, present, CLASSES - len(own) - padding), room)
        np.testing.assert_allclose(cut, whole, rtol=1e-14)
        np.testing.assert_allclose(cut_slope[:, :len(own)], slope[:, own], atol=1e-16)
        assert (cut_slope[:, len(own):] == 0).all()


def test_masked_cross_entropy_counts_an_absent_label_as_logit_0():
    loss = registry.find("objectives", "masked_cross_entropy").loss
    logits = tf.constant([[2.0, 50.0, -1.0, 0.5, -70.0, 3.0]], tf.float64)
    expected = -0.5 + np.log(np.exp(2) + np.exp(-1) + np.exp(0.5) + 3)  # three absent labels, exp(0) each
    np.testing.assert_allclose(loss(logits, tf.constant([3]), PRESENT, 0), expected, rtol=1e-14)
    assert masked(logits, PRESENT).numpy().tolist() == [[2, 0, -1, 0.5, 0, 0]]


def test_cross_entropy_is_the_log_of_the_softmax():
    loss = registry.find("objectives", "cross_entropy").loss
    logits, targets = draw((5,))
    share = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    np.testing.assert_allclose(loss(logits, targets, None, 0), -np.log(share[range(5), targets]).mean(), rtol=1e-13)
