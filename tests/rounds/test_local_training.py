"""Local training compared with NumPy, of one client and of several at once."""

from dataclasses import replace

import keras
import numpy as np
import pytest
import tensorflow as tf
import tiny

from hetero_tf.data.inputs import Input
from hetero_tf.data.inputs.examples import Examples
from hetero_tf.layers.dropout import Dropout
from hetero_tf.layers.stacked import keras_layer
from hetero_tf.planning.packing import BlockPlan
from hetero_tf.recipe.schema import Optimizer, Plugin
from hetero_tf.rounds.batches import Batches
from hetero_tf.rounds.local_training import LocalTraining, clip_by_norm
from hetero_tf.run.federation import local_optimizer

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


def array_batches(clients, features, targets, active, num_rows=2):
    """The `Batches` of clients that read `num_rows` examples in each tick; the second client reads from the end.

    Args:
        active: bool [ticks, clients].
    """
    ticks, examples = len(active), len(features)
    rows = np.arange(ticks * num_rows).reshape(1, ticks, num_rows) % examples
    rows = np.concatenate([rows, examples - 1 - rows])[:clients]
    plan = BlockPlan(
        tf.range(clients),
        tf.zeros([clients], tf.int32),
        tf.constant(ticks),
        tf.constant(np.where(active.T[..., None], rows, -1), tf.int32),
        tf.zeros([ticks], tf.int32),
        tf.zeros([ticks], tf.int32),
    )

    def read(x, y, rows, start, key, labels, training, length):
        return tf.gather(x, rows), tf.gather(y, rows)

    source = Input(read, None, None, None, None, False, False)
    examples = Examples(source, tf.constant(features), tf.constant(targets), 0, None, None, None, (None,), None, None)
    return Batches(examples, plan, plan.clients, None, plan.ticks)


KEYS = ((0, 1, 2), (0, 1, 5))


def train(block, optimizer, steps=3, key=KEYS, objective=squared, rate=0.1, active=None, change=None, **data):
    """Weights, losses and gradient norms of training that starts at ones; `change` edits the `Batches`."""
    active = np.ones((steps, block.clients), bool) if active is None else active

    @tf.function
    def run(key):
        batches = array_batches(block.clients, **{"features": FEATURES, "targets": TARGETS, "active": active} | data)
        batches = batches if change is None else change(batches)
        training = LocalTraining(
            block, objective, batches, local_optimizer(optimizer), tf.constant(rate, tf.float64), key
        )
        result = training.run(tf.ones([block.clients, sum(block.sizes)], tf.float64))
        return result.rows, result.losses, result.gradient_norms

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


def test_non_finite_step_of_an_idle_client_is_ignored(eager):
    class Broken(Batches):
        def read(self, tick, key, shape):
            inputs, targets = super().read(tick, key, shape)
            return tf.where(tf.constant([[[False]], [[True]]]) & (tick == 1), np.float64(np.nan), inputs), targets

    active = np.asarray([[True, True], [True, False], [True, True]])
    actual = train(linear(2), PLAIN, active=active, change=lambda batches: Broken(**vars(batches)))
    for one, other in zip(actual, train(linear(2), PLAIN, active=active)):
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


def test_records_have_the_requested_length_and_end_in_zeros(eager):
    _, short, _ = train(linear(2), PLAIN, steps=2)
    idle = np.arange(5)[:, None] < [2, 2]
    _, long, norms = train(linear(2), PLAIN, active=idle, change=lambda batches: replace(batches, ticks=tf.constant(2)))
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


def test_dropout_is_a_pure_function_of_seed_round_client_and_step(eager):
    block = linear(dropout=0.5)
    reference = train(block, PLAIN)[0]
    assert train(block, PLAIN)[0].tobytes() == reference.tobytes()
    for key in ((1, 1, 2), (0, 2, 2), (0, 1, 3)):
        assert np.abs(train(block, PLAIN, key=(key,))[0] - reference).max() > 1e-3
    # With equal batches and a rate of 0, only another mask in each step can change the loss.
    losses = train(block, PLAIN, steps=6, num_rows=6, rate=0.0)[1]
    assert len(set(losses.ravel().tolist())) == 6


def test_idle_client_draws_the_dropout_of_its_next_step(eager):
    same = {"features": np.tile(FEATURES[:1], (6, 1)), "targets": np.tile(TARGETS[:1], (6, 1))}
    active = np.asarray([[True, True], [True, False], [True, True]])
    both = train(linear(2, dropout=0.5), PLAIN, **same, active=active)
    single = train(linear(dropout=0.5), PLAIN, steps=2, **same, key=((0, 1, 5),))
    np.testing.assert_allclose(both[0][1], single[0][0], rtol=1e-12)
    np.testing.assert_allclose(both[1][[0, 2], 1], single[1][:, 0], rtol=1e-12)


def test_training_changes_no_variable_of_the_model():
    block = linear(dropout=0.5)
    model = block.stages[0].joint.models[0].model
    before = [variable.numpy() for variable in model.variables]
    train(block, settings_of(0.9, 5e-4, 1.0))
    assert all((old == new.numpy()).all() for old, new in zip(before, model.variables))
