"""Couplings: each is compared with a loop over single examples."""

import math

import numpy as np
import pytest
import tensorflow as tf

from hetero_tf.base import registry
from hetero_tf.methods.losses import cross_entropy

CLASSES = 5


def draw(outputs, shape=(2, 3), seed=0, scale=2.0, dtype="float64"):
    rng = np.random.default_rng(seed)
    logits = [tf.constant(scale * rng.normal(size=(*shape, CLASSES)), dtype) for _ in range(outputs)]
    return logits, tf.constant(rng.integers(0, CLASSES, shape), tf.int32)


def couple(name, logits, targets, round=4, **options):
    """The coupled loss of every example, with cross-entropy as the objective."""
    module = registry.find("couplings", name)
    losses = [cross_entropy.loss(one, targets, None, 0) for one in logits]
    arguments = options
    return module.couple(losses, logits if module.READS_LOGITS else None, targets, tf.constant(round), **arguments)


def slopes(name, logits, targets, round=4, **options):
    with tf.GradientTape() as tape:
        tape.watch(logits)
        total = tf.reduce_sum(couple(name, logits, targets, round, **options))
    return [gradient.numpy() for gradient in tape.gradient(total, logits, unconnected_gradients="zero")]


def softmax(z):
    raised = np.exp(z - z.max())
    return raised / raised.sum()


def divergence(q, p):
    return sum(a * math.log(a / b) for a, b in zip(q, p, strict=True))


# The published formulas for one example: (losses, logits [outputs, classes], round) -> loss.
def plain_mutual(losses, z, round, weight=1.0, ramp=300, floor=0.0):
    w = weight if ramp is None else weight * math.exp(-5 * (1 - min(round, ramp) / ramp) ** 2)
    total = sum(losses)
    for student in range(len(z)):
        for other in range(len(z)):
            if student != other:
                total += w / (len(z) - 1) * divergence(softmax(z[other]) + floor, softmax(z[student]))
    return total


def plain_self_distillation(losses, z, round):
    full = softmax(z[-1])
    return losses[-1] - sum(full[c] * math.log(softmax(one)[c]) for one in z[:-1] for c in range(CLASSES))


def plain_weighted(losses, z, round, gamma=0.0, temperature=3.0, from_round=0):
    exits, total = len(z), 0.0
    for index in range(exits):
        exit_loss = losses[index]
        if index < exits - 1 and round >= from_round:
            exit_loss += (
                gamma * temperature**2 * divergence(softmax(z[-1] / temperature), softmax(z[index] / temperature))
            )
        total += (index + 1) * exit_loss / (exits * (exits + 1) / 2)
    return total


PLAIN = [
    ("sum", lambda losses, z, round: sum(losses), {}),
    ("last", lambda losses, z, round: losses[-1], {}),
    ("self_distillation", plain_self_distillation, {}),
    ("mutual", plain_mutual, {}),
    ("mutual", plain_mutual, {"floor": 1e-7}),
    ("mutual", plain_mutual, {"weight": 0.3, "ramp": 7}),
    ("mutual", plain_mutual, {"ramp": None}),
    ("mutual", plain_mutual, {"ramp": None, "weight": 2.0, "floor": 0.1}),
    ("weighted", plain_weighted, {}),
    ("weighted", plain_weighted, {"gamma": 0.7}),
    ("weighted", plain_weighted, {"gamma": 0.7, "temperature": 1.5, "from_round": 4}),
]


@pytest.mark.parametrize(("name", "plain", "options"), PLAIN, ids=lambda value: value if type(value) is str else None)
@pytest.mark.parametrize("outputs", [2, 4])
def test_the_loss_is_the_plain_formula(name, plain, options, outputs):
    logits, targets = draw(outputs, seed=outputs)
    for round in (0, 3, 4, 299, 1000):
        actual = couple(name, logits, targets, round, **options).numpy()
        for index in np.ndindex(actual.shape):
            z = np.stack([one.numpy()[index] for one in logits])
            losses = [-math.log(softmax(one)[targets.numpy()[index]]) for one in z]
            assert actual[index] == pytest.approx(plain(losses, z, round, **options), rel=1e-12)


def test_the_weight_of_mutual_distillation_starts_at_e_to_the_minus_5_and_ends_at_1():
    logits, targets = draw(2)
    labels = couple("sum", logits, targets)
    whole = couple("mutual", logits, targets, ramp=None) - labels
    for round, share in ((0, math.exp(-5)), (150, math.exp(-1.25)), (300, 1.0), (301, 1.0)):
        np.testing.assert_allclose(couple("mutual", logits, targets, round) - labels, share * whole, rtol=1e-11)


def test_divergences_of_equal_outputs_have_no_gradient():
    (one,), targets = draw(1)
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
    logits, targets = draw(2)
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


@pytest.mark.parametrize(
    ("name", "options"),
    [("mutual", {"ramp": None}), ("mutual", {"ramp": None, "floor": 0.01}), ("weighted", {"gamma": 1.0})],
)
def test_teachers_get_no_gradient(name, options):
    logits, targets = draw(2)
    first, main = (np.apply_along_axis(softmax, -1, one.numpy()) for one in logits)
    expected = main - np.eye(CLASSES)[targets.numpy()]
    if name == "weighted":
        expected *= 2 / 3
    else:  # the last learns from the first: sum(q) softmax(z) - q
        q = first + options.get("floor", 0.0)
        expected += q.sum(-1, keepdims=True) * main - q
    np.testing.assert_allclose(slopes(name, logits, targets, **options)[1], expected, atol=1e-14)


def test_the_last_exit_gets_a_gradient_unless_detached():
    logits, targets = draw(2)
    still, moving = (slopes("weighted", logits, targets, gamma=1.0, detached=value) for value in (True, False))
    np.testing.assert_array_equal(still[0], moving[0])
    assert np.abs(still[1] - moving[1]).max() > 0.01
    np.testing.assert_allclose(
        couple("weighted", logits, targets, gamma=1.0, detached=False),
        couple("weighted", logits, targets, gamma=1.0),
        rtol=1e-14,
    )


def test_self_distillation_gradients_are_those_of_labels_and_of_the_main_output():
    logits, targets = draw(3)
    full = np.apply_along_axis(softmax, -1, logits[-1].numpy())
    expected = [
        *(np.apply_along_axis(softmax, -1, one.numpy()) - full for one in logits[:-1]),
        full - np.eye(CLASSES)[targets.numpy()],
    ]
    for actual, slope in zip(slopes("self_distillation", logits, targets), expected, strict=True):
        np.testing.assert_allclose(actual, slope, atol=1e-14)


def test_outputs_without_a_loss_get_no_gradient():
    logits, targets = draw(3)
    gradients = slopes("last", logits, targets)
    assert not gradients[0].any() and not gradients[1].any() and gradients[2].any()


def test_float32_keeps_its_digits():
    logits, targets = draw(3, (1, 500), scale=4.0)
    rough = [tf.cast(one, tf.float32) for one in logits]
    exact = [tf.cast(one, tf.float64) for one in rough]
    for one, other in zip(slopes("mutual", rough, targets, ramp=None), slopes("mutual", exact, targets, ramp=None)):
        np.testing.assert_allclose(one, other, atol=1e-6)
