"""Blocks: models of several clients computed at once equal single models, or are refused."""

import keras
import numpy as np
import oracle
import pytest
import tensorflow as tf
import tiny

from hetero_tf.layers.padded_conv2d import PaddedConv2D
from hetero_tf.layers.stacked import keras_layer
from hetero_tf.models.state import concat_values
from hetero_tf.rounds import layout
from hetero_tf.rounds.engine import check_block, first_line

KEY = ((5, 0, 1, 2), (5, 0, 3, 2), (5, 0, 7, 1))


@pytest.fixture(scope="module", params=["DROPOUT_IMAGES", "DROPOUT_TEXT"])
def single_and_block(request):
    """A level as a block of one client and of three."""
    process = tiny.shared(getattr(tiny, request.param), "round.submodel=prefix", "precision=float64", idle=True)

    def build(clients):
        return layout.build_client_block(process.family, "a", clients, 7)

    model = build(1)
    return model, tiny.stacked(build, 3)


def first_model(block):
    return block.stages[0].joint.models[0]


def random_inputs(block, examples=4):
    spec, rng = first_model(block).model.inputs[0], np.random.default_rng(1)
    if spec.dtype.startswith("int"):
        return tf.constant(rng.integers(0, 7, (3, examples, 3)), spec.dtype)
    return tf.constant(rng.normal(size=(3, examples, *spec.shape[1:])), spec.dtype)


def test_row_has_client_values_in_model_order(single_and_block):
    single, block = single_and_block
    assert block.shapes == single.shapes == tuple(tuple(v.shape) for v in first_model(single).model.trainable_variables)
    assert block.sizes == [int(np.prod(shape)) for shape in block.shapes]
    rng = np.random.default_rng(0)
    clients = [[tf.constant(rng.normal(size=shape)) for shape in block.shapes] for _ in range(3)]
    matrix = block.join_networks([tf.stack([concat_values(values) for values in clients])])
    assert matrix.shape == (3, sum(block.sizes))
    for row, values in zip(matrix, clients):
        for actual, value in zip(block.values_of(row), values, strict=True):
            assert (actual.numpy() == value.numpy()).all() and actual.shape == value.shape


def test_block_computes_logits_and_gradients_of_each_client(single_and_block):
    single, block = single_and_block
    inputs, key = random_inputs(single), tf.constant(KEY)
    matrix = tf.constant(np.random.default_rng(2).normal(0, 0.2, (3, sum(block.sizes))))
    weight = tf.constant(
        np.random.default_rng(3).normal(size=block.stages[0].joint.call(matrix, key, inputs)[0][0].shape)
    )

    def slope(block, chosen):
        chosen = tf.constant(chosen)
        matrix_, weight_, inputs_, key_ = (tf.gather(value, chosen) for value in (matrix, weight, inputs, key))
        with tf.GradientTape() as tape:
            tape.watch(matrix_)
            (logits,), running = block.stages[0].joint.call(matrix_, key_, inputs_)
            assert running is None
            total = tf.reduce_sum(weight_ * tf.tanh(logits))
        return logits.numpy(), tape.gradient(total, matrix_).numpy()

    logits, gradients = slope(block, [0, 1, 2])
    for client in range(3):
        single_result = slope(single, [client])
        np.testing.assert_allclose(logits[client], single_result[0][0], atol=1e-12)
        np.testing.assert_allclose(gradients[client], single_result[1][0], atol=1e-12)
        assert np.abs(single_result[1]).max() > 1e-3


def test_dropout_seeds_depend_on_key_and_layer_and_other_state_is_zero(single_and_block):
    single, block = single_and_block
    state = [value.numpy() for value in first_model(block).build_state(tf.constant(KEY))]
    paths = [variable.path for variable in first_model(block).model.non_trainable_variables]
    seeds = [position for position, path in enumerate(paths) if path.endswith("seed_generator_state")]
    assert seeds
    for position, value in enumerate(state):
        assert value.shape == first_model(block).model.non_trainable_variables[position].shape
        if position not in seeds:
            assert not value.any()
    for client, key in enumerate(KEY):
        single_state = first_model(single).build_state(tf.constant([key]))
        for position in seeds:
            expected = (oracle.hashed([*key, position], 2) >> np.uint32(1)).tolist()
            assert state[position][client].tolist() == single_state[position].numpy().tolist() == expected
    assert len({tuple(state[position][client]) for position in seeds for client in range(3)}) == 3 * len(seeds)


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


@pytest.mark.parametrize(("name", "layer", "last"), [("plain", PLAIN, 8), ("depthwise", DEPTHWISE, 1)])
def test_layer_without_batched_form_is_refused_by_its_shapes(name, layer, last):
    build = sequential(lambda clients: layer[0](*layer[1:], name=name), pool, head)
    shapes = rf"\(3, 3, 8, {last}\), which is not that of 2 clients with \(3, 3, 4, {last}\) each"
    with pytest.raises(ValueError, match=f"^the variable {name}/kernel has shape {shapes}$"):
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
    with pytest.raises(ValueError, match=r"shorter|longer"):
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
