"""Local training against NumPy, and the dropout of a client as a pure function of its key."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from hetero_tf import clients
from hetero_tf.recipe.schema import Optimizer

FEATURES = np.random.default_rng(0).normal(size=(6, 3))
TARGETS = np.random.default_rng(1).normal(size=(6, 2))


def linear(dropout=0.0):
    return keras.Sequential([keras.Input((3,), dtype="float64"), keras.layers.Dropout(dropout, dtype="float64"),
                             keras.layers.Dense(2, use_bias=False, dtype="float64")])


def squared(logits, targets):
    return tf.reduce_mean(tf.square(logits - targets))


def batch(step):
    rows = tf.range(2 * step, 2 * step + 2)
    return tf.gather(FEATURES, rows), tf.gather(TARGETS, rows)


def train(model, optimizer, steps=3, key=(0, 1, 2), objective=squared, start=((3, 2),), batch=batch, rate=0.1):
    """Weights, losses and gradient norms of training that starts from ones of the given shapes."""
    @tf.function
    def run(key):
        weights = [tf.ones(shape, tf.float64) for shape in start]
        found = clients.train_locally(model, objective, optimizer, batch, tf.constant(steps), weights,
                                      tf.constant(rate, tf.float64), key)
        return found.weights, found.losses, found.gradient_norms

    return [np.asarray(value) for value in tf.nest.flatten(run(tf.constant(key)))]


@pytest.mark.parametrize("clip", [None, 0.5, 100.0])
def test_three_steps_equal_numpy(clip):
    settings = Optimizer(learning_rate=0.1, momentum=0.8, weight_decay=0.01, clip_norm=clip)
    found_weights, found_losses, found_norms = train(linear(), settings)
    weights, velocity, losses, norms = np.ones((3, 2)), np.zeros((3, 2)), [], []
    for step in range(3):
        x, y = FEATURES[2 * step:2 * step + 2], TARGETS[2 * step:2 * step + 2]
        gap = x @ weights - y
        gradient = x.T @ gap * 2 / gap.size
        norm = np.sqrt((gradient**2).sum())
        losses.append((gap**2).mean())
        norms.append(norm)
        factor = 1 if clip is None else min(1, clip / (norm + 1e-6))
        velocity = 0.8 * velocity + gradient * factor + 0.01 * weights
        weights = weights - 0.1 * velocity
    assert min(norms) < 0.5 < max(norms) < 100  # 0.5 clips some steps and not others
    np.testing.assert_allclose(found_weights, weights, rtol=1e-12)
    np.testing.assert_allclose(found_losses, losses, rtol=1e-12)
    np.testing.assert_allclose(found_norms, norms, rtol=1e-12)


def test_the_norm_of_clipping_covers_all_variables():
    settings = Optimizer(learning_rate=1.0, momentum=0.0, weight_decay=0.0, clip_norm=1.0)
    gradients = [tf.constant([3.0], tf.float64), tf.constant([[0.0, 4.0]], tf.float64)]
    weights = [tf.zeros_like(value) for value in gradients]
    norm = tf.linalg.global_norm(gradients)
    moved, _ = clients.sgd(weights, weights, gradients, norm, 1.0, settings)
    np.testing.assert_allclose(moved[0], [-3 / (5 + 1e-6)], rtol=1e-15)
    np.testing.assert_allclose(moved[1], [[0, -4 / (5 + 1e-6)]], rtol=1e-15)


def test_no_step_leaves_the_weights_and_records_nothing():
    weights, losses, norms = train(linear(), Optimizer(learning_rate=0.1), steps=0)
    assert (weights == 1).all()
    assert losses.shape == norms.shape == (0,)


def test_momentum_starts_from_zero_at_every_call():
    settings = Optimizer(learning_rate=0.1, momentum=0.9, weight_decay=0.0, clip_norm=None)
    model = linear()
    first = train(model, settings, steps=1)
    again = train(model, settings, steps=1)
    assert first[0].tobytes() == again[0].tobytes()


def test_a_variable_without_gradient_only_decays():
    model = keras.Sequential([keras.Input((3,), dtype="float64"), keras.layers.Dense(2, dtype="float64")])
    settings = Optimizer(learning_rate=0.1, momentum=0.0, weight_decay=0.5, clip_norm=None)

    def constant(logits, targets):
        return tf.reduce_sum(targets) * 0

    _, bias, _, norms = train(model, settings, 2, objective=constant, start=((3, 2), (2,)))
    np.testing.assert_allclose(bias, [0.95**2] * 2)
    assert norms.tolist() == [0, 0]


def test_dropout_is_a_pure_function_of_seed_round_client_and_step():
    settings = Optimizer(learning_rate=0.1, momentum=0.0, weight_decay=0.0, clip_norm=None)
    model = linear(dropout=0.5)
    reference = train(model, settings)[0]
    assert train(model, settings)[0].tobytes() == reference.tobytes()
    for key in ((1, 1, 2), (0, 2, 2), (0, 1, 3)):
        assert np.abs(train(model, settings, key=key)[0] - reference).max() > 1e-3
    # With equal batches and a rate of 0, only another mask in each step can change the loss.
    losses = train(model, settings, steps=6, batch=lambda step: (FEATURES, TARGETS), rate=0.0)[1]
    assert len(set(losses.tolist())) == 6
    states = [clients._state(model, tf.constant([0, 1, 2, step]))[0].numpy().tolist() for step in range(20)]
    assert len({tuple(state) for state in states}) == 20


def test_training_changes_no_variable_of_the_model():
    model = linear(dropout=0.5)
    before = [variable.numpy() for variable in model.variables]
    train(model, Optimizer(learning_rate=0.1))
    assert all((old == new.numpy()).all() for old, new in zip(before, model.variables))
