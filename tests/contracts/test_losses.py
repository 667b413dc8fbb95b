"""Contract of every loss in the package."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from hetero_tf.base import registry

CLASSES = 6
PRESENT = np.asarray([True, False, True, True, False, False])


@pytest.fixture(params=registry.names("losses"))
def module(request):
    return registry.find("losses", request.param)


def has_one_label(module):
    return "label" in getattr(module, "TARGETS", ("label",))


def draw(module, shape, seed=0):
    """Outputs and targets: one label, or a number or flag for each class; absent labels have no positive example."""
    rng = np.random.default_rng(seed)
    outputs = tf.constant(rng.normal(0, 2, (*shape, CLASSES)))
    if has_one_label(module):
        return outputs, tf.constant(rng.choice(np.flatnonzero(PRESENT), shape), tf.int32)
    numbers = rng.normal(size=(*shape, CLASSES)).astype(np.float32)
    return outputs, tf.constant((numbers > 0) & PRESENT if module.TARGETS == ("label_set",) else numbers, tf.float32)


def gradient(loss, logits):
    with tf.GradientTape() as tape:
        tape.watch(logits)
        value = loss(logits)
    return value, tape.gradient(value, logits).numpy()


@pytest.mark.parametrize("shape", [(4,), (3, 5), (2, 3, 5)])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_loss_is_finite_for_every_example_in_the_type_of_the_logits(module, shape, dtype):
    logits, targets = draw(module, shape)
    value = module.loss(tf.cast(logits, dtype), targets, PRESENT, 0)
    assert value.shape == shape
    assert value.dtype == dtype
    assert np.isfinite(value).all()
    assert np.isfinite(module.loss(tf.cast(logits * 1e4, dtype), targets, PRESENT, 0)).all()


def test_gradients_point_to_larger_losses(module):
    logits, targets = draw(module, (4,))
    upstream = tf.constant([1.0, -2.0, 0.0, 3.0], tf.float64)

    def summed(z):
        return tf.reduce_sum(upstream * module.loss(z, targets, PRESENT, 0))

    value, slope = gradient(summed, logits)
    assert (slope[2] == 0).all()
    rng = np.random.default_rng(1)
    for _ in range(5):
        step = 1e-6 * rng.normal(size=slope.shape)
        np.testing.assert_allclose(summed(logits + step) - value, (slope * step).sum(), atol=1e-10)


def test_batched_clients_get_the_loss_and_gradient_of_single_clients(module):
    logits, targets = draw(module, (3, 4), seed=2)
    present = np.stack([PRESENT, np.ones(CLASSES, bool), np.arange(CLASSES) < 4])
    whole, slope = gradient(lambda z: module.loss(z, targets, present[:, None], 0), logits)
    for client in range(3):
        single_loss, single_slope = gradient(
            lambda z, c=client: module.loss(z, targets[c], present[c], 0), logits[client]
        )
        np.testing.assert_allclose(whole[client], single_loss, rtol=1e-14)
        np.testing.assert_allclose(slope[client], single_slope, atol=1e-16)


def test_a_masking_loss_gives_absent_labels_no_gradient_and_can_be_cut(module):
    logits, targets = draw(module, (7,))
    whole, slope = gradient(lambda z: module.loss(z, targets, PRESENT, 0), logits)
    assert (slope[:, ~PRESENT] == 0).all() == module.MASKS_LABELS
    if not (module.MASKS_LABELS and has_one_label(module)):
        return
    labels = np.flatnonzero(PRESENT)
    cut_targets = tf.constant(np.searchsorted(labels, targets), tf.int32)
    for padding in (0, 1, 3):  # a client with fewer labels than the axis has room
        room = tf.pad(tf.gather(logits, labels, axis=1), [[0, 0], [0, padding]], constant_values=9.0)
        present = np.arange(len(labels) + padding) < len(labels)
        cut, cut_slope = gradient(lambda z: module.loss(z, cut_targets, present, CLASSES - len(labels) - padding), room)
        np.testing.assert_allclose(cut, whole, rtol=1e-14)
        np.testing.assert_allclose(cut_slope[:, : len(labels)], slope[:, labels], atol=1e-16)
        assert (cut_slope[:, len(labels) :] == 0).all()


KERAS = {
    "mean_squared_error": keras.losses.MeanSquaredError(reduction=None, dtype="float64"),
    "mean_absolute_error": keras.losses.MeanAbsoluteError(reduction=None, dtype="float64"),
    "huber": keras.losses.Huber(reduction=None, dtype="float64"),
    "sigmoid_cross_entropy": keras.losses.BinaryCrossentropy(from_logits=True, reduction=None, dtype="float64"),
}


@pytest.mark.parametrize("name", KERAS)
def test_losses_of_other_tasks_equal_those_of_keras(name):
    module, reference = registry.find("losses", name), KERAS[name]
    outputs, targets = draw(module, (5,), seed=3)
    np.testing.assert_allclose(module.loss(outputs, targets, None, 0), reference(targets, outputs), rtol=1e-12)


@pytest.mark.parametrize("name", ["cross_entropy", "masked_cross_entropy"])
def test_smoothed_and_weighted_losses_equal_keras(name):
    module = registry.find("losses", name)
    logits, targets = draw(module, (40,), seed=4)
    shares = np.bincount(targets, minlength=CLASSES) / 40
    every = np.ones(CLASSES, bool)
    smoothing = keras.losses.CategoricalCrossentropy(
        from_logits=True, label_smoothing=0.2, reduction=None, dtype="float64"
    )
    one_hot = tf.one_hot(targets, CLASSES, dtype=tf.float64)
    smoothed = module.loss(logits, targets, every, 0, label_smoothing=0.2)
    np.testing.assert_allclose(smoothed, smoothing(one_hot, logits), rtol=1e-12)
    weighted = module.loss(logits, targets, every, 0, class_weights="balanced", class_shares=shares)
    weights = 1 / (CLASSES * shares[targets.numpy()])
    np.testing.assert_allclose(weighted, weights * module.loss(logits, targets, every, 0).numpy(), rtol=1e-12)


def test_smoothing_of_a_masked_loss_is_over_the_labels_of_the_client():
    module = registry.find("losses", "masked_cross_entropy")
    logits, targets = draw(module, (7,), seed=5)
    _, slope = gradient(lambda z: module.loss(z, targets, PRESENT, 0, label_smoothing=0.3), logits)
    assert (slope[:, ~PRESENT] == 0).all() and (slope[:, PRESENT] != 0).all()
