"""The losses compared with their plain formulas in extended precision of NumPy."""

import numpy as np
import pytest
import tensorflow as tf

from hetero_tf.methods.losses import batch_masked_cross_entropy, cross_entropy, masked_cross_entropy, softmax_twice

CLASSES, OUTSIDE = 7, 4
PRESENT = np.asarray([True, False, True, True, False, True, True])


def plain(logits, targets, present, outside):
    """Loss and gradient of the sum of losses, term by term."""
    z = np.where(present, np.asarray(logits, np.longdouble), 0)
    top = np.maximum(z.max(-1, keepdims=True), 0 if outside else -np.inf)
    shifted = np.exp(z - top)
    total = shifted.sum(-1, keepdims=True) + outside * np.exp(-top)
    chosen = np.eye(z.shape[-1])[targets]
    loss = (np.log(total) + top)[..., 0] - (z * chosen).sum(-1)
    return loss, (shifted / total - chosen) * present


def examples(scale, dtype="float64", shape=(9,)):
    rng = np.random.default_rng(0)
    logits = tf.constant(scale * rng.normal(size=(*shape, CLASSES)), dtype)
    return logits, tf.constant(rng.choice(np.flatnonzero(PRESENT), shape), tf.int32)


def both(logits, targets, present=PRESENT, outside=OUTSIDE):
    """Loss and gradient of the sum of losses, from the package."""
    with tf.GradientTape() as tape:
        tape.watch(logits)
        loss = masked_cross_entropy.loss(logits, targets, present, outside)
    return loss, tape.gradient(loss, logits)


@pytest.mark.parametrize("scale", [0.01, 1, 20])
@pytest.mark.parametrize("outside", [0, 1, OUTSIDE, 30_000])
@pytest.mark.parametrize("present", [PRESENT, np.ones(CLASSES, bool)], ids=["absent", "whole"])
def test_the_masked_loss_is_the_plain_form(scale, outside, present):
    logits, targets = examples(scale)
    loss, slope = both(logits, targets, present, outside)
    expected, rise = plain(logits, targets.numpy(), present, outside)
    np.testing.assert_allclose(loss, expected.astype(float), rtol=1e-14, atol=1e-15)
    np.testing.assert_allclose(slope, rise.astype(float), rtol=1e-13, atol=1e-15)
    assert (slope.numpy()[:, ~present] == 0).all()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("level", [-1e4, 1e4, 0.0])
@pytest.mark.parametrize("present", [PRESENT, np.ones(CLASSES, bool)], ids=["absent", "whole"])
@pytest.mark.parametrize("outside", [0, OUTSIDE])
def test_huge_logits_give_exact_losses(dtype, level, present, outside):
    # Absent labels with logits of 1e4 must not cause overflow or underflow of the others.
    logits, targets = examples(1.0, dtype)
    logits = tf.where(present, logits + level, 1e4)
    loss, slope = both(logits, targets, present, outside)
    expected, rise = plain(logits, targets.numpy(), present, outside)
    digits = 1e-6 if dtype == "float32" else 1e-14
    np.testing.assert_allclose(loss, expected.astype(float), rtol=digits, atol=digits)
    np.testing.assert_allclose(slope, rise.astype(float), atol=10 * digits)
    assert (slope.numpy()[:, ~present] == 0).all()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_non_finite_logits_give_nan_for_their_example_only(dtype, value):
    for index in range(CLASSES):
        logits, targets = examples(1.0, dtype)
        bad = logits.numpy()
        bad[3, index] = value
        loss, slope = both(tf.constant(bad), targets)
        assert np.isnan(loss[3]) and np.isnan(slope[3]).any()
        assert np.isfinite(np.delete(loss, 3)).all() and np.isfinite(np.delete(slope, 3, 0)).all()


def test_an_absent_target_counts_as_logit_0_and_has_no_gradient():
    logits, _ = examples(3.0)
    targets = tf.fill([len(logits)], 4)
    assert not PRESENT[4]
    loss, slope = both(logits, targets)
    expected, rise = plain(logits, targets.numpy(), PRESENT, OUTSIDE)
    np.testing.assert_allclose(loss, expected.astype(float), rtol=1e-14)
    np.testing.assert_allclose(slope, rise.astype(float), atol=1e-15)
    assert (slope.numpy()[:, 4] == 0).all()


@pytest.mark.parametrize("jit", [False, True], ids=["graph", "xla"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_graph_loop_with_unknown_sizes_equals_numpy(jit, dtype):
    shape = (2, 3)
    logits, targets = examples(2.0, dtype, shape)
    present = np.stack([PRESENT, ~PRESENT])[:, None]
    unknown = [tf.TensorSpec([2, None, CLASSES], dtype), tf.TensorSpec([2, None], tf.int32)]

    @tf.function(input_signature=unknown, jit_compile=jit)
    def descend(logits, targets):
        def step(index, logits):
            return index + 1, logits - 0.5 * both(logits, targets, present)[1]

        return tf.while_loop(lambda index, _: index < 3, step, (0, logits), maximum_iterations=3)[1]

    actual, expected = descend(logits, targets), logits.numpy()
    for _ in range(3):
        expected = expected - 0.5 * plain(expected, targets.numpy(), present, OUTSIDE)[1].astype(dtype)
    np.testing.assert_allclose(actual, expected, rtol=1e-5 if dtype == "float32" else 1e-13)


@pytest.mark.parametrize("shape", [(5,), (2, 3)])
def test_cross_entropy_is_the_log_of_the_softmax(shape):
    logits, targets = examples(4.0, shape=shape)
    loss = cross_entropy.loss(logits, targets, None, 0)
    np.testing.assert_allclose(loss, plain(logits, targets.numpy(), True, 0)[0].astype(float), rtol=1e-14)


@pytest.mark.parametrize("positions", [(), (3,)], ids=["images", "text"])
def test_labels_absent_from_the_batch_count_as_logit_0(positions):
    logits, targets = examples(2.0, shape=(4, 2, *positions))
    present = np.broadcast_to(PRESENT, (4, *[1] * (1 + len(positions)), CLASSES))
    with tf.GradientTape() as tape:
        tape.watch(logits)
        loss = batch_masked_cross_entropy.loss(logits, targets, present, OUTSIDE)
    slope = tape.gradient(loss, logits).numpy()
    absent = 0
    for client in range(4):
        seen = np.isin(np.arange(CLASSES), targets[client])
        expected, rise = plain(logits[client], targets[client].numpy(), seen, OUTSIDE)
        np.testing.assert_allclose(loss[client], expected.astype(float), rtol=1e-14)
        np.testing.assert_allclose(slope[client], rise.astype(float), atol=1e-15)
        assert (slope[client][..., ~seen] == 0).all()
        single_loss = batch_masked_cross_entropy.loss(logits[client], targets[client], PRESENT, OUTSIDE)
        np.testing.assert_allclose(single_loss, loss[client], rtol=1e-14)
        absent += (PRESENT & ~seen).sum()
    assert absent > 0, "no batch lacked a label of its client"


def test_a_batch_with_all_labels_of_the_client_has_the_masked_loss():
    logits, _ = examples(2.0, shape=(6,))
    targets = tf.constant([0, 2, 3, 5, 6, 0])
    both_losses = [
        module.loss(logits, targets, PRESENT, OUTSIDE).numpy()
        for module in (batch_masked_cross_entropy, masked_cross_entropy)
    ]
    assert both_losses[0].tobytes() == both_losses[1].tobytes()


def test_the_softmax_applied_twice_is_the_plain_form_and_its_gradient_flows_through_both():
    logits, targets = examples(1.0)
    probabilities = tf.nn.softmax(logits)
    with tf.GradientTape() as tape:
        tape.watch(logits)
        loss = softmax_twice.loss(logits, targets, PRESENT, 0)
    inner = plain(probabilities, targets.numpy(), True, 0)
    np.testing.assert_allclose(loss, inner[0].astype(float), rtol=1e-13)
    # The Jacobian of a softmax: p_i (delta_ij - p_j).
    p, outer = probabilities.numpy(), inner[1].astype(float)
    slope = p * (outer - (p * outer).sum(-1, keepdims=True))
    np.testing.assert_allclose(tape.gradient(loss, logits), slope, rtol=1e-12)
    least = np.log(np.e + CLASSES - 1) - 1
    sure = softmax_twice.loss(1e3 * tf.one_hot(targets, CLASSES, dtype=tf.float64), targets, PRESENT, 0)
    np.testing.assert_allclose(sure, np.full(9, least), rtol=1e-13)
