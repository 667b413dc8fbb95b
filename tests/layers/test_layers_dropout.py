"""Dropout: its distribution, its key, and equal draws natively, under XLA and for any batch."""

import random

import keras
import numpy as np
import pytest
import tensorflow as tf

from hetero_tf.layers.dropout import Dropout
from hetero_tf.models.variables import is_seed


def masks(rate, keys, shape=(40, 8, 16)):
    """Outputs of dropout for ones, for each key."""
    layer = Dropout(rate)
    layer.build(shape)
    outputs = []
    for key in keys:
        layer.key.assign(key)
        outputs.append(layer(tf.ones(shape), training=True).numpy())
    return np.stack(outputs)


@pytest.mark.parametrize("rate", [0.1, 0.2, 0.5, 0.9])
def test_mean_and_variance_are_those_of_independent_draws(rate):
    outputs = masks(rate, [(7, step) for step in range(20)])
    assert set(np.unique(outputs)) == {0, np.float32(2**16 / (2**16 - round(rate * 2**16)))}
    np.testing.assert_allclose(outputs.max(), 1 / (1 - rate), rtol=2**-16 / (1 - rate))
    deviation = (rate / (1 - rate) / outputs.size) ** 0.5
    assert abs(outputs.mean() - 1) < 5 * deviation
    sums = outputs.reshape(20 * 40, -1).sum(1)
    assert abs(sums.var() / (128 * rate / (1 - rate)) - 1) < 5 * (2 / 800) ** 0.5 + 0.03


def test_draws_of_neighbours_and_consecutive_keys_are_uncorrelated():
    mask = masks(0.3, [(start, step) for start in (0, 1) for step in range(20)]) > 0
    centred = (mask - 0.7) / 0.21**0.5
    for axis in range(4):
        ahead, behind = (
            np.take(centred, range(*ends), axis) for ends in ((1, mask.shape[axis]), (0, mask.shape[axis] - 1))
        )
        assert abs((ahead * behind).mean()) < 5 * ahead.size**-0.5
    assert abs((centred[:20] * centred[20:]).mean()) < 5 * centred[:20].size ** -0.5


def test_nothing_is_drawn_without_training_or_rate():
    values = tf.random.normal((2, 3))
    assert Dropout(0.4)(values, training=False) is values
    layer = Dropout(0.0)
    assert layer(values, training=True) is values
    assert layer.variables == []


def test_the_key_is_a_seed_that_the_layer_never_changes():
    for clients, shape in ((1, (2,)), (3, (3, 2))):
        layer = Dropout(0.4, clients)
        layer.build((None, 6))
        (key,) = layer.non_trainable_variables
        assert is_seed(key)
        assert (key.dtype, tuple(key.shape)) == ("int32", shape)
        before = key.numpy().tolist()
        one, two = (layer(tf.ones((4, 6)), training=True).numpy() for _ in range(2))
        assert (one == two).all()
        assert key.numpy().tolist() == before
    assert layer.trainable_variables == []


def test_initial_weights_are_those_of_a_model_with_keras_dropout():
    kernels = []
    for kind in (Dropout, keras.layers.Dropout):
        random.seed(5)
        layers = [keras.layers.Dense(4), kind(0.5), kind(0.0), keras.layers.Dense(3)]
        kernels.append(keras.Sequential([keras.Input((2,)), *layers]).get_layer(index=-1).kernel.numpy())
    assert (kernels[0] == kernels[1]).all()


@pytest.mark.parametrize("channels", [8, 5])
def test_native_and_xla_draw_the_same_and_gradients_pass_the_mask(channels):
    layer = Dropout(0.4)
    layer.build((None, channels))
    values, results = tf.random.normal((6, channels)), []
    for compiled in (False, True):

        @tf.function(jit_compile=compiled)
        def graph(values):
            with tf.GradientTape() as tape:
                tape.watch(values)
                outputs = layer(values, training=True)
            return outputs, tape.gradient(outputs, values)

        results.append(graph(values))
    for native, xla in zip(*results):
        assert native.numpy().tobytes() == xla.numpy().tobytes()
    outputs, gradient = results[0]
    np.testing.assert_allclose(outputs, values * gradient, rtol=1e-6)
    # A shorter batch draws the first rows of a longer one: the number of examples changes no draw.
    assert layer(values[:2], training=True).numpy().tobytes() == outputs[:2].numpy().tobytes()
