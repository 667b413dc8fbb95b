"""Losses: formulas of Keras, smoothing and weights."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from hetero_tf.base import registry
from hetero_tf.testing.loss_checks import CLASSES, PRESENT, draw_examples
from hetero_tf.testing.subject import Subject


def gradient(loss, logits):
    with tf.GradientTape() as tape:
        tape.watch(logits)
        value = loss(logits)
    return value, tape.gradient(value, logits).numpy()


KERAS = {
    "mean_squared_error": keras.losses.MeanSquaredError(reduction=None, dtype="float64"),
    "mean_absolute_error": keras.losses.MeanAbsoluteError(reduction=None, dtype="float64"),
    "huber": keras.losses.Huber(reduction=None, dtype="float64"),
    "sigmoid_cross_entropy": keras.losses.BinaryCrossentropy(from_logits=True, reduction=None, dtype="float64"),
}


@pytest.mark.parametrize("name", KERAS)
def test_losses_of_other_tasks_equal_those_of_keras(name):
    module, reference = registry.find("losses", name), KERAS[name]
    outputs, targets = draw_examples(Subject("losses", name), (5,), seed=3)
    np.testing.assert_allclose(module.loss(outputs, targets, None, 0), reference(targets, outputs), rtol=1e-12)


def test_the_slope_of_huber_for_large_errors_is_its_delta():
    errors = tf.constant([[1.0], [5.0], [6.0]])
    loss = registry.find("losses", "huber").loss(errors, tf.zeros([3, 1]), None, 0, delta=2.0)
    assert loss.numpy().tolist() == [0.5, 8.0, 10.0]


@pytest.mark.parametrize("name", ["cross_entropy", "masked_cross_entropy"])
def test_smoothed_and_weighted_losses_equal_keras(name):
    module = registry.find("losses", name)
    logits, targets = draw_examples(Subject("losses", name), (40,), seed=4)
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


@pytest.mark.parametrize("smoothing", [0.0, 0.3])
def test_labels_that_are_left_out_are_not_in_the_sum(smoothing):
    name, options = "masked_cross_entropy", {"absent": "left_out", "label_smoothing": smoothing}
    module, plain = registry.find("losses", name), registry.find("losses", "cross_entropy")
    logits, targets = draw_examples(Subject("losses", name), (7,), seed=5)
    value, slope = gradient(lambda z: module.loss(z, targets, PRESENT, 4, **options), logits)
    positions = tf.constant(np.cumsum(PRESENT) - 1)
    cut = tf.boolean_mask(logits, PRESENT, axis=1)
    expected, cut_slope = gradient(
        lambda z: plain.loss(z, tf.gather(positions, targets), None, 0, label_smoothing=smoothing), cut
    )
    np.testing.assert_allclose(value, expected, rtol=1e-12)
    np.testing.assert_allclose(slope[:, PRESENT], cut_slope, rtol=1e-12, atol=1e-15)
    assert (slope[:, ~PRESENT] == 0).all()
    # A target of padding may be absent.
    assert np.isfinite(module.loss(logits, tf.fill([7], np.flatnonzero(~PRESENT)[0]), PRESENT, 4, **options)).all()


def test_smoothing_of_a_masked_loss_is_over_the_labels_of_the_client():
    name = "masked_cross_entropy"
    module = registry.find("losses", name)
    logits, targets = draw_examples(Subject("losses", name), (7,), seed=5)
    _, slope = gradient(lambda z: module.loss(z, targets, PRESENT, 0, label_smoothing=0.3), logits)
    assert (slope[:, ~PRESENT] == 0).all() and (slope[:, PRESENT] != 0).all()
