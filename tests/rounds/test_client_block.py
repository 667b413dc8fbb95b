"""Blocks: models of several clients computed at once equal single models, or are refused."""

import keras
import numpy as np
import pytest
import tensorflow as tf
import tiny

from hetero_tf.layers.padded_conv2d import PaddedConv2D
from hetero_tf.layers.stacked import keras_layer
from hetero_tf.rounds.engine import check_block, first_line


def sequential(*make, shape=(6, 6, 4)):
    """`clients -> model` of the layers that `make` returns for this number of clients."""

    def build(clients):
        inputs = outputs = keras.Input((*shape[:-1], clients * shape[-1]))
        for one in make:
            outputs = one(clients)(outputs)
        return keras.Model(inputs, outputs)

    return tiny.stacks(build)


def conv(clients):
    return PaddedConv2D(8, clients=clients, name="conv")


def pool(clients):
    return keras.layers.GlobalAveragePooling2D()


def head(clients):
    return keras_layer("Dense", clients)(5)


def test_model_of_known_layers_is_batched():
    build = sequential(conv, lambda clients: keras.layers.ReLU(), pool, head)
    assert tiny.stacked(build, 4).clients == 4


PLAIN, DEPTHWISE = (keras.layers.Conv2D, 8, 3), (keras.layers.DepthwiseConv2D, 3)


@pytest.mark.parametrize(
    ("layer", "reason"),
    [
        (PLAIN, "a layer has no form for several clients at once"),
        (DEPTHWISE, "several clients at once give other numbers than one by one"),
    ],
)
def test_layer_without_batched_form_is_refused(layer, reason):
    build = sequential(lambda clients: layer[0](*layer[1:]), pool, head)
    with pytest.raises(ValueError, match=f"^{reason}$"):
        tiny.stacked(build, 2)


class Centred(keras.layers.Layer):
    """Mixes the channels and has no variables, so its shapes do not reveal it."""

    def call(self, inputs):
        return inputs - tf.reduce_mean(inputs, -1, keepdims=True)


class Reversed(keras.layers.Layer):
    """Returns the right values, and a gradient for the wrong client."""

    def call(self, inputs):
        return inputs + (tf.reverse(inputs, [-1]) - tf.stop_gradient(tf.reverse(inputs, [-1])))


@pytest.mark.parametrize("layer", [Centred, Reversed])
def test_layer_that_mixes_clients_is_refused_by_the_probe(layer):
    build = sequential(conv, lambda clients: layer(), pool, head)
    with pytest.raises(ValueError, match="^several clients at once give other numbers than one by one$"):
        tiny.stacked(build, 2)


def test_model_with_another_number_of_variables_is_refused():
    build = sequential(conv, pool, head)
    more = sequential(conv, pool, head, lambda clients: keras.layers.Dense(5))
    with pytest.raises(ValueError, match="^a layer has no form for several clients at once$"):
        check_block(more(2), build(1), set())


def test_error_of_a_layer_is_the_reason():
    def odd(clients):
        if clients > 1:
            raise ValueError("`clients` must be odd. Received: clients=2\nand more")
        return keras.layers.ReLU()

    build = sequential(conv, odd, pool, head)
    with pytest.raises(ValueError, match="^`clients` must be odd. Received: clients=2") as problem:
        tiny.stacked(build, 2)
    assert first_line(problem.value) == "`clients` must be odd. Received: clients=2"
    assert first_line(KeyError()) == "KeyError()"


def test_model_that_ends_in_channels_returns_logits_of_each_client():
    build = sequential(conv, pool)
    block = tiny.stacked(build, 3)
    inputs = tf.constant(np.random.default_rng(0).normal(size=(3, 2, 6, 6, 4)), "float32")
    assert block.stages[0].joint.call(tf.zeros([3, sum(block.sizes)]), [], inputs)[0][0].shape == (3, 2, 8)
