"""Couplings: each is compared with a loop over single examples."""

import math
from types import SimpleNamespace

import numpy as np
import oracle_terms
import pytest
import tensorflow as tf

from hetero_tf.base import registry
from hetero_tf.methods.losses import cross_entropy
from hetero_tf.testing import loss_checks
from hetero_tf.testing.loss_checks import CLASSES, draw_logits
from hetero_tf.testing.subject import Subject


def couple(name, logits, targets, round=4, **options):
    """The coupled loss of every example, with cross-entropy as the objective."""
    return loss_checks.couple(Subject("couplings", name, options), logits, targets, tf.constant(round))


def slopes(name, logits, targets, round=4, **options):
    with tf.GradientTape() as tape:
        tape.watch(logits)
        total = tf.reduce_sum(couple(name, logits, targets, round, **options))
    return [gradient.numpy() for gradient in tape.gradient(total, logits, unconnected_gradients="zero")]


def softmax(z):
    raised = np.exp(z - z.max())
    return raised / raised.sum()


FORMS = [
    ("sum", {}),
    ("last", {}),
    ("self_distillation", {}),
    ("mutual", {}),
    ("mutual", {"floor": 1e-7}),
    ("mutual", {"weight": 0.3, "ramp": 7}),
    ("mutual", {"ramp": None}),
    ("mutual", {"ramp": None, "weight": 2.0, "floor": 0.1}),
    ("weighted", {}),
    ("weighted", {"gamma": 0.7}),
    ("weighted", {"gamma": 0.7, "temperature": 1.5, "from_round": 4}),
]


@pytest.mark.parametrize(("name", "options"), FORMS)
@pytest.mark.parametrize("outputs", [2, 4])
def test_losses_and_gradients_are_those_of_the_published_formulas(name, options, outputs):
    """Teachers get no gradient in the formulas of the oracle."""
    logits, targets = draw_logits(outputs, seed=outputs)
    options = {option.name: option.default for option in registry.options("couplings", name).values()} | options
    coupling = SimpleNamespace(name=name, options=options)
    process = SimpleNamespace(recipe=SimpleNamespace(client=SimpleNamespace(coupling=coupling)))
    for round in (0, 3, 4, 299, 1000):
        with tf.GradientTape() as tape:
            tape.watch(logits)
            losses = [-tf.gather(oracle_terms.logs(one), targets, batch_dims=2) for one in logits]
            expected = oracle_terms.couple(process, losses, logits, round)
        gradients = tape.gradient(expected, logits, unconnected_gradients="zero")
        np.testing.assert_allclose(couple(name, logits, targets, round, **options), expected, rtol=1e-12)
        for actual, gradient in zip(slopes(name, logits, targets, round, **options), gradients, strict=True):
            np.testing.assert_allclose(actual, gradient, atol=1e-12)


def test_the_weight_of_mutual_distillation_starts_at_e_to_the_minus_5_and_ends_at_1():
    logits, targets = draw_logits(2)
    labels = couple("sum", logits, targets)
    whole = couple("mutual", logits, targets, ramp=None) - labels
    for round, share in ((0, math.exp(-5)), (150, math.exp(-1.25)), (300, 1.0), (301, 1.0)):
        np.testing.assert_allclose(couple("mutual", logits, targets, round) - labels, share * whole, rtol=1e-11)


def test_divergences_of_equal_outputs_have_no_gradient():
    (one,), targets = draw_logits(1)
    for name in ("mutual", "weighted"):
        options = {"gamma": 1.0} if name == "weighted" else {"ramp": None}
        np.testing.assert_allclose(
            couple(name, [one] * 3, targets, **options),
            (3 if name == "mutual" else 1) * cross_entropy.loss(one, targets, None, 0),
        )
    # With the published floor it is zero only about 1e-7 a class.
    extra = couple("mutual", [one] * 2, targets, ramp=None, floor=1e-7) - 2 * cross_entropy.loss(one, targets, None, 0)
    assert (np.abs(extra) < 2.1e-7 * CLASSES).all() and (extra.numpy() > 0).all()


def test_exits_learn_from_the_last_exit_only_after_from_round():
    logits, targets = draw_logits(2)
    options = {"gamma": 0.5, "from_round": 126}
    without, before, after = (
        slopes("weighted", logits, targets, **options_of_round)
        for options_of_round in ({}, {**options, "round": 125}, {**options, "round": 126})
    )
    for one, other in zip(before, without, strict=True):
        np.testing.assert_array_equal(one, other)
    # The first exit's gradient grows by share * gamma * T * (its softmax - the last one's), both at temperature T = 3.
    first, last = (np.apply_along_axis(softmax, -1, one.numpy() / 3) for one in logits)
    np.testing.assert_allclose(after[0] - without[0], 0.5 * 3 / 3 * (first - last), atol=1e-12)
    np.testing.assert_array_equal(after[1], without[1])


def test_the_last_exit_gets_a_gradient_unless_detached():
    logits, targets = draw_logits(2)
    still, moving = (slopes("weighted", logits, targets, gamma=1.0, detached=value) for value in (True, False))
    np.testing.assert_array_equal(still[0], moving[0])
    assert np.abs(still[1] - moving[1]).max() > 0.01
    np.testing.assert_allclose(
        couple("weighted", logits, targets, gamma=1.0, detached=False),
        couple("weighted", logits, targets, gamma=1.0),
        rtol=1e-14,
    )


def test_float32_keeps_its_digits():
    logits, targets = draw_logits(3, (1, 500), scale=4.0)
    rough = [tf.cast(one, tf.float32) for one in logits]
    exact = [tf.cast(one, tf.float64) for one in rough]
    for one, other in zip(slopes("mutual", rough, targets, ramp=None), slopes("mutual", exact, targets, ramp=None)):
        np.testing.assert_allclose(one, other, atol=1e-6)
