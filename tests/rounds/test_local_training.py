"""Local training compared with NumPy, of one client and of several at once."""

import keras
import numpy as np
import pytest
import tensorflow as tf
import tiny

from hetero_tf.layers.dropout import Dropout
from hetero_tf.layers.stacked import keras_layer
from hetero_tf.process.build_round import local_optimizer
from hetero_tf.recipe.schema import Optimizer, Plugin
from hetero_tf.rounds.batches import Batches
from hetero_tf.rounds.local_training import clip_by_norm, train_locally

FEATURES = np.random.default_rng(0).normal(size=(6, 3))
TARGETS = np.random.default_rng(1).normal(size=(6, 2))


def settings_of(momentum=0.0, weight_decay=0.0, clip_norm=None):
    """The recipe's section of SGD."""
    options = {"momentum": momentum, "weight_decay": weight_decay, "nesterov": False}
    return Optimizer(learning_rate=0.1, clip_norm=clip_norm, method=Plugin("sgd", options))


PLAIN = settings_of()


def linear(many=1, dropout=0.0, bias=False):
    """A `ClientBlock` of a linear model in float64."""

    def build(many):
        inputs = keras.Input((3 * many,), dtype="float64")
        dense = keras_layer("Dense", many)(2, use_bias=bias, dtype="float64")
        return keras.Model(inputs, dense(Dropout(dropout, many, dtype="float64")(inputs)))

    build = tiny.stacks(build)
    return build(1) if many == 1 else tiny.stacked(build, many)


def squared(outputs, targets):
    (logits,) = outputs
    return tf.reduce_mean(tf.square(logits - targets), [1, 2])


def pair(tick):
    """Examples of a tick; the second client of a block has different ones."""
    rows = tf.range(2 * tick, 2 * tick + 2)
    return [tf.stack([tf.gather(values, rows), tf.gather(values[::-1].copy(), rows)]) for values in (FEATURES, TARGETS)]


KEYS = ((0, 1, 2), (0, 1, 5))


def train(block, optimizer, steps=3, key=KEYS, objective=squared, batch=pair, rate=0.1, active=None, max_ticks=None):
    """Weights, losses and gradient norms of training that starts at ones."""

    @tf.function
    def run(key):
        num_clients = block.clients
        batches = Batches(
            read=lambda tick, key, shape: [tf.convert_to_tensor(value)[:num_clients] for value in batch(tick)],
            shapes=(None,),
            shape_at=None,
            stage=None,
            buffered=None,
            end=None,
            active=None if active is None else lambda tick: tf.gather(active, tick),
            ticks=tf.constant(steps),
            max_ticks=tf.constant(steps if max_ticks is None else max_ticks),
        )
        ones, steps_of = tf.ones([num_clients, sum(block.sizes)], tf.float64), local_optimizer(optimizer)
        result = train_locally(block, objective, None, steps_of, batches, ones, tf.constant(rate, tf.float64), key)
        return result.weights, result.losses, result.gradient_norms

    return [value.numpy() for value in run(tf.constant(key)[: block.clients])]


def by_hand(settings, features, targets, ticks):
    """The same in NumPy for one client that is active in some of the ticks."""
    weights, velocity, losses, norms = np.ones((3, 2)), np.zeros((3, 2)), [], []
    for tick in ticks:
        x, y = features[2 * tick : 2 * tick + 2], targets[2 * tick : 2 * tick + 2]
        gap = x @ weights - y
        gradient = x.T @ gap * 2 / gap.size
        norm = np.sqrt((gradient**2).sum())
        losses.append((gap**2).mean())
        norms.append(norm)
        factor = 1 if settings.clip_norm is None else min(1, settings.clip_norm / (norm + 1e-6))
        options = settings.method.options
        velocity = options["momentum"] * velocity + gradient * factor + options["weight_decay"] * weights
        weights = weights - 0.1 * velocity
    return weights.ravel(), losses, norms


@pytest.mark.parametrize("clip", [None, 0.5, 100.0])
def test_three_steps_equal_numpy(clip):
    settings = settings_of(0.8, 0.01, clip)
    actual_weights, actual_losses, actual_norms = train(linear(), settings)
    weights, losses, norms = by_hand(settings, FEATURES, TARGETS, range(3))
    assert min(norms) < 0.5 < max(norms) < 100  # 0.5 clips some steps and not others
    np.testing.assert_allclose(actual_weights[0], weights, rtol=1e-12)
    np.testing.assert_allclose(actual_losses[:, 0], losses, rtol=1e-12)
    np.testing.assert_allclose(actual_norms[:, 0], norms, rtol=1e-12)


def test_block_trains_clients_like_single_ones_and_idles_without_a_step():
    settings = settings_of(0.8, 0.01, 0.5)
    active = np.asarray([[True, True], [True, False], [False, True]])
    weights, losses, norms = train(linear(2), settings, active=active)
    for client, order in enumerate((1, -1)):
        ticks = np.flatnonzero(active[:, client])
        expected = by_hand(settings, FEATURES[::order], TARGETS[::order], ticks)
        np.testing.assert_allclose(weights[client], expected[0], rtol=1e-12)
        np.testing.assert_allclose(losses[ticks, client], expected[1], rtol=1e-12)
        np.testing.assert_allclose(norms[ticks, client], expected[2], rtol=1e-12)
    assert losses[~active].tolist() == norms[~active].tolist() == [0, 0]


def test_non_finite_step_of_an_idle_client_is_ignored():
    def broken(tick):
        inputs, targets = pair(tick)
        return tf.where(tf.constant([[[False]], [[True]]]) & (tick == 1), np.float64(np.nan), inputs), targets

    active = np.asarray([[True, True], [True, False], [True, True]])
    actual, expected = (train(linear(2), PLAIN, active=active, batch=batch) for batch in (broken, pair))
    for one, other in zip(actual, expected):
        assert one.tobytes() == other.tobytes() and np.isfinite(one).all()


def test_the_norm_of_clipping_covers_all_values_of_a_client_and_no_others():
    gradients = tf.constant([[3.0, 0.0, 4.0], [0.3, 0.0, 0.4]], tf.float64)
    clipped = clip_by_norm(gradients, tf.norm(gradients, axis=1), 1.0)
    np.testing.assert_allclose(clipped, [[3 / (5 + 1e-6), 0, 4 / (5 + 1e-6)], [0.3, 0, 0.4]], rtol=1e-15)
    assert clip_by_norm(gradients, None, None) is gradients


def test_no_step_leaves_the_weights_and_records_nothing():
    weights, losses, norms = train(linear(), settings_of(), steps=0)
    assert (weights == 1).all()
    assert losses.shape == norms.shape == (0, 1)


def test_records_have_the_requested_length_and_end_in_zeros():
    _, short, _ = train(linear(2), PLAIN, steps=2)
    _, long, norms = train(linear(2), PLAIN, steps=2, max_ticks=5)
    assert long.shape == norms.shape == (5, 2)
    assert long[:2].tobytes() == short.tobytes()
    assert not long[2:].any() and not norms[2:].any() and norms[:2].all()


def test_momentum_starts_from_zero_at_every_call():
    settings = settings_of(0.9, 0.0, None)
    block = linear()
    first = train(block, settings, steps=1)
    again = train(block, settings, steps=1)
    assert first[0].tobytes() == again[0].tobytes()


def test_values_without_gradient_only_decay():
    settings = settings_of(0.0, 0.5, None)
    weights, _, norms = train(linear(bias=True), settings, 2, objective=lambda logits, targets: targets[:, 0, 0] * 0)
    np.testing.assert_allclose(weights, [[0.95**2] * 8])
    assert norms.tolist() == [[0], [0]]


def test_dropout_is_a_pure_function_of_seed_round_client_and_step():
    block = linear(dropout=0.5)
    reference = train(block, PLAIN)[0]
    assert train(block, PLAIN)[0].tobytes() == reference.tobytes()
    for key in ((1, 1, 2), (0, 2, 2), (0, 1, 3)):
        assert np.abs(train(block, PLAIN, key=(key,))[0] - reference).max() > 1e-3
    # With equal batches and a rate of 0, only another mask in each step can change the loss.
    same = [values[None, :6] for values in (FEATURES, TARGETS)]
    losses = train(block, PLAIN, steps=6, batch=lambda tick: same, rate=0.0)[1]
    assert len(set(losses.ravel().tolist())) == 6


def test_idle_client_draws_the_dropout_of_its_next_step():
    same = [np.stack([values, values]) for values in (FEATURES, TARGETS)]
    active = np.asarray([[True, True], [True, False], [True, True]])
    both = train(linear(2, dropout=0.5), PLAIN, batch=lambda tick: same, active=active)
    single = train(linear(dropout=0.5), PLAIN, steps=2, batch=lambda tick: same, key=((0, 1, 5),))
    np.testing.assert_allclose(both[0][1], single[0][0], rtol=1e-12)
    np.testing.assert_allclose(both[1][[0, 2], 1], single[1][:, 0], rtol=1e-12)


def test_training_changes_no_variable_of_the_model():
    block = linear(dropout=0.5)
    before = [variable.numpy() for variable in block.stages[0].models[0].model.variables]
    train(block, settings_of(0.9, 5e-4, 1.0))
    assert all((old == new.numpy()).all() for old, new in zip(before, block.stages[0].models[0].model.variables))
