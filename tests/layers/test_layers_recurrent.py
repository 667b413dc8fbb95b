"""LSTM and GRU compared with Keras layers of the same weights; nested widths, padding and batched clients."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from hetero_tf.layers.embedding import Embedding
from hetero_tf.layers.gru import GRU
from hetero_tf.layers.lstm import LSTM

RNG = np.random.default_rng(0)
BATCH, POSITIONS, CHANNELS, UNITS = 4, 7, 6, 8
INPUTS = RNG.normal(size=(BATCH, POSITIONS, CHANNELS)).astype(np.float32)
MASK = np.arange(POSITIONS) < np.array([[7], [3], [1], [0]])


@pytest.fixture(params=[LSTM, GRU])
def kind(request):
    return request.param


def filled(layer, inputs=INPUTS):
    layer(inputs)
    layer.set_weights([RNG.normal(0, 0.5, value.shape) for value in layer.get_weights()])
    return layer


def flat(weights):
    """Our weights in the shapes of Keras: gates and units on one axis, the two biases of a GRU on one more."""
    kernel, recurrent, *biases = (value.reshape(*value.shape[:-2], -1) for value in weights)
    return [kernel, recurrent, biases[0] if len(biases) == 1 else np.stack(biases)]


def of_keras(layer):
    theirs = getattr(keras.layers, type(layer).__name__)(layer.units, return_sequences=layer.return_sequences)
    theirs.build((None, None, CHANNELS))
    theirs.set_weights(flat(layer.get_weights()))
    return theirs


@pytest.mark.parametrize("sequences", [False, True])
@pytest.mark.parametrize("mask", [None, MASK])
def test_equal_to_keras_with_the_same_weights(kind, sequences, mask):
    layer = filled(kind(UNITS, return_sequences=sequences))
    mask_tensor = None if mask is None else tf.constant(mask)
    np.testing.assert_allclose(layer(INPUTS, mask=mask_tensor), of_keras(layer)(INPUTS, mask=mask_tensor), atol=1e-6)


def test_gradients_are_those_of_keras(kind):
    layer = filled(kind(UNITS, return_sequences=True))
    theirs, gradients = of_keras(layer), []
    for one in (layer, theirs):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(one(INPUTS, mask=tf.constant(MASK)) ** 2)
        gradients.append([value.numpy() for value in tape.gradient(loss, [v.value for v in one.trainable_variables])])
    for mine, expected in zip(flat(gradients[0]), gradients[1], strict=True):
        np.testing.assert_allclose(mine, expected, atol=1e-4)


def test_initial_values_are_those_of_keras(kind):
    keras.utils.set_random_seed(3)
    mine = kind(UNITS)
    mine(INPUTS)
    keras.utils.set_random_seed(3)
    theirs = getattr(keras.layers, kind.__name__)(UNITS)
    theirs(INPUTS)
    recurrent = flat(mine.get_weights())[1]
    np.testing.assert_allclose(recurrent @ recurrent.T, np.eye(UNITS), atol=1e-5)
    limit = np.sqrt(6 / (CHANNELS + len(kind.BIAS) * UNITS))
    kernels = [
        abs(flat(layer.get_weights())[0]) if layer is mine else abs(layer.get_weights()[0]) for layer in (mine, theirs)
    ]
    assert all(0.9 * limit < kernel.max() <= limit for kernel in kernels)
    np.testing.assert_array_equal(flat(mine.get_weights())[2], theirs.get_weights()[2])


def test_half_the_width_is_the_first_units_of_every_gate(kind):
    """If the second half of the units does not affect the first one, the first half equals the narrow layer."""
    whole, half = filled(kind(UNITS)), UNITS // 2
    weights = whole.get_weights()
    weights[1][half:, :, :half] = 0
    whole.set_weights(weights)
    narrow = kind(half)
    narrow(INPUTS)
    narrow.set_weights(
        [value[tuple(slice(size) for size in shape.shape)] for value, shape in zip(weights, narrow.get_weights())]
    )
    np.testing.assert_allclose(whole(INPUTS)[:, :half], narrow(INPUTS), atol=1e-6)


def test_padding_does_not_change_the_output(kind):
    words = RNG.integers(1, 9, (3, 4)).astype(np.int32)
    symbol = keras.Input((None,), dtype="int32")
    model = keras.Model(symbol, kind(UNITS)(Embedding(9, CHANNELS, padding=0)(symbol)))
    padded = np.pad(words, [(0, 0), (0, 5)])
    assert model(words).numpy().tobytes() == model(padded).numpy().tobytes()
    without = keras.Model(symbol, kind(UNITS)(Embedding(9, CHANNELS)(symbol)))
    without.set_weights(model.get_weights())
    assert np.abs(without(padded) - model(words)).max() > 1e-3


def test_no_operation_of_the_loop_has_state(kind):
    """A stateful operation would serialise the clients of a round."""
    layer = filled(kind(UNITS))

    @tf.function(autograph=False)
    def gradient(inputs, weights):
        with tf.GradientTape() as tape:
            tape.watch(weights)
            outputs, _ = layer.stateless_call(weights, [], inputs)
            loss = tf.reduce_sum(outputs)
        return tape.gradient(loss, weights)

    weights = [tf.constant(value) for value in layer.get_weights()]
    graph = gradient.get_concrete_function(tf.TensorSpec((None, None, CHANNELS)), weights).graph
    assert not [operation.name for operation in graph.get_operations() if operation.op_def.is_stateful]
