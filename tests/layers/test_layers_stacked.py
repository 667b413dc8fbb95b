"""K clients in one layer or model equal K single ones: outputs, gradients, dropout draws."""

import keras
import numpy as np
import pytest
import tensorflow as tf
import tiny

from hetero_tf import recipe
from hetero_tf.base import errors, registry
from hetero_tf.layers import padded_conv2d
from hetero_tf.layers.stacked.forms import leading_shape
from hetero_tf.models.build_model import build_model, layer_class
from hetero_tf.models.variables import is_seed

K = 3
IMAGE, VECTOR, ROWS, TOKENS = (5, 6, 6, 8), (5, 8), (4, 5, 8), (4, 5)
ANY = [(IMAGE, False), (IMAGE, True), (VECTOR, False), (VECTOR, True), (ROWS, True)]
BEHIND = {"residual": "activated", "scaler_at": "products"}
# (layer, arguments, shape of one client's input, whether clients are on a leading axis).
CASES = [
    *[("Norm", {"kind": kind}, IMAGE, False) for kind in ("sbn", "bn", "wbn", "in", "gn", "ln", "none")],
    *[
        ("PaddedConv2D", {"filters": 6, "kernel_size": size, "stride": stride, "use_bias": size == 3}, IMAGE, False)
        for size in (1, 3)
        for stride in (1, 2)
    ],
    *[
        ("PreActivationBlock", {"filters": filters, "stride": stride, "norm": norm, "scale": 0.5}, IMAGE, False)
        for filters, stride, norm in ((8, 1, "sbn"), (6, 1, "in"), (8, 2, "gn"))
    ],
    *[("PreActivationBlock", {"filters": filters, **BEHIND, "scale": 0.5}, IMAGE, False) for filters in (6, 8)],
    ("PreActivationBlock", {"filters": 6, "step": True, "scale": 0.5}, IMAGE, False),
    *[
        ("PostActivationBlock", {"filters": filters, "stride": stride, "norm": norm, "scale": 0.5}, IMAGE, False)
        for filters, stride, norm in ((8, 1, "bn"), (8, 2, "gn"))
    ],
    *[("PaddedDepthwiseConv2D", {"stride": stride}, IMAGE, False) for stride in (1, 2)],
    ("SeparableBlock", {"filters": 6, "norm": "bn", "scale": 0.5}, IMAGE, False),
    ("AttentionGate", {"norm": "in", "scale": 0.5}, IMAGE, False),
    *[("UNet", {"filters": 4, "depth": depth, "scale": 0.5}, IMAGE, False) for depth in (1, 2)],
    ("PatchEmbedding", {"patch": 3, "width": 7, "scale": 0.5}, IMAGE, False),
    ("ClassTokenReadout", {}, ROWS, True),
    ("GroupNormalization", {"groups": 2}, IMAGE, False),
    ("GroupNormalization", {"groups": -1, "center": False}, IMAGE, False),
    ("GroupNormalization", {"groups": 1, "scale": False}, IMAGE, False),
    *[("Dropout", {"rate": 0.4}, *form) for form in (*ANY, ((4, 5, 7), True), ((4, 5, 5, 7), False))],
    *[("Flatten", {}, *form) for form in ANY],
    *[("LayerNormalization", {}, *form) for form in ANY],
    *[
        ("Conv1D", {"filters": 6, "kernel_size": 3, "padding": padding, **more}, ROWS, leads)
        for padding, more, leads in (
            ("valid", {"strides": 2}, False),
            ("same", {"strides": 2, "activation": "tanh"}, True),
            ("same", {"dilation_rate": 2, "use_bias": False}, False),
            ("causal", {}, False),
            ("causal", {"strides": 3}, True),
            ("causal", {"dilation_rate": 2}, False),
        )
    ],
    *[(kind, {"pool_size": 2}, ROWS, leads) for kind in ("AveragePooling1D", "MaxPooling1D") for leads in (True, False)],
    *[(kind, {}, ROWS, leads) for kind in ("GlobalAveragePooling1D", "GlobalMaxPooling1D") for leads in (True, False)],
    *[(kind, {"units": 6, "return_sequences": True}, ROWS, leads) for kind in ("GRU", "LSTM") for leads in (True, False)],
    *[("PositionEmbedding", {}, ROWS, leads) for leads in (True, False)],
    ("LayerNormalization", {"center": False, "epsilon": 0.1}, ROWS, True),
    ("LayerNormalization", {"scale": False}, IMAGE, False),
    *[("Dense", {"units": 7, "activation": "tanh"}, *form) for form in ANY],
    ("Dense", {"units": 7, "use_bias": False}, ROWS, True),
    ("SelfAttention", {"heads": 2, "head_width": 3, "scale": 0.5}, ROWS, True),
    ("TransformerBlock", {"heads": 2, "head_width": 3, "hidden": 7, "dropout": 0.3, "scale": 0.5}, ROWS, True),
    ("TransformerBlock", {"heads": 2, "head_width": 3, "hidden": 7, "norm_first": True, "epsilon": 0.1}, ROWS, True),
    *[("LoraDense", {"units": 7, "lora_rank": 2, "lora_scale": 3.0}, *form) for form in ANY],
    ("SelfAttention", {"heads": 2, "head_width": 3, "lora_rank": 2}, ROWS, True),
    ("TransformerBlock", {"heads": 2, "head_width": 3, "hidden": 7, "dropout": 0.3, "lora_rank": 2}, ROWS, True),
    ("MaskedTokenEmbedding", {"classes": 9, "positions": 7, "width": 6, "dropout": 0.3, "scale": 0.5}, TOKENS, True),
]  # fmt: skip


def join_clients(values, rank):
    """Combine arrays of K clients into an array of this rank: concatenated channels, or a leading axis of clients."""
    values = np.stack(values)
    if rank == values.ndim - 1:
        return np.moveaxis(values, 0, -2).reshape(*values.shape[1:-1], -1)
    return values.reshape(K, *[1] * (rank - values.ndim), *values.shape[1:])


def run(model, values, state, inputs, factors):
    """Outputs of a training step, and the gradients of sum(outputs * factors) for trainable values and inputs."""
    inputs, values = tf.constant(inputs), [tf.constant(value) for value in values]
    state = [tf.constant(value, variable.dtype) for value, variable in zip(state, model.non_trainable_variables)]
    watched = [*values, inputs] if inputs.dtype.is_floating else values
    with tf.GradientTape() as tape:
        tape.watch(watched)
        outputs, _ = model.stateless_call(values, state, inputs, training=True)
        loss = tf.reduce_sum(outputs * factors)
    return outputs.numpy(), [tf.convert_to_tensor(gradient).numpy() for gradient in tape.gradient(loss, watched)]


def assert_equals_single_clients(one, twin, inputs):
    """Runs `one` for every client and `twin` once, on random values and keys; all outputs and gradients must agree."""
    rng = np.random.default_rng(0)
    values = [[rng.normal(size=v.shape) for v in one.trainable_variables] for _ in range(K)]
    states = [
        [
            rng.integers(0, 2**31, v.shape) if is_seed(v) else rng.normal(size=v.shape)
            for v in one.non_trainable_variables
        ]
        for _ in range(K)
    ]
    factors = rng.normal(size=(K, *one.compute_output_shape(inputs[0].shape)))
    single_results = [run(one, *arguments) for arguments in zip(values, states, inputs, factors)]

    def joined(parts, variables):
        return [join_clients([part[index] for part in parts], len(v.shape)) for index, v in enumerate(variables)]

    outputs, gradients = run(
        twin,
        joined(values, twin.trainable_variables),
        joined(states, twin.non_trainable_variables),
        join_clients(inputs, len(twin.input_shape)),
        join_clients(factors, len(twin.output_shape)),
    )
    np.testing.assert_allclose(
        outputs, join_clients([result for result, _ in single_results], outputs.ndim), atol=1e-10
    )
    for index, gradient in enumerate(gradients):
        expected = join_clients([result[index] for _, result in single_results], gradient.ndim)
        np.testing.assert_allclose(gradient, expected, atol=1e-10, err_msg=str(index))
    assert len(gradients) == len(single_results[0][1])


def model_of(kind, arguments, shape, clients=1):
    inputs = keras.Input(batch_shape=shape, dtype="int32" if kind == "MaskedTokenEmbedding" else "float64")
    level_arguments = {"clients": clients} if clients > 1 and "clients" in registry.level_arguments(kind) else {}
    return keras.Model(inputs, layer_class(kind, clients)(**arguments, **level_arguments, dtype="float64")(inputs))


@pytest.mark.parametrize(("kind", "arguments", "shape", "leads"), CASES)
def test_a_layer_of_several_clients_equals_single_layers(kind, arguments, shape, leads):
    rng = np.random.default_rng(2)
    inputs = rng.integers(0, 10, (K, *shape)) if shape == TOKENS else rng.normal(size=(K, *shape))
    stacked = (K, None, *shape[1:]) if leads else (None, *shape[1:-1], K * shape[-1])
    one, twin = model_of(kind, arguments, (None, *shape[1:])), model_of(kind, arguments, stacked, K)
    assert [v.path.split("/")[-1] for v in one.variables] == [v.path.split("/")[-1] for v in twin.variables]
    assert_equals_single_clients(one, twin, list(inputs.astype(np.int32) if shape == TOKENS else inputs))


MODELS = {
    "mnist": ([], (8, 8, 1), 0.0625, 10),
    "cifar10": (["model.settings.blocks=[1,1,1,2]"], (8, 8, 3), 0.0625, 10),
    "wikitext2": ([], (None,), 0.0625, 30),
}


@pytest.mark.parametrize("name", MODELS)
def test_a_model_of_several_clients_equals_single_models(name):
    overrides, shape, width, classes = MODELS[name]
    model, rng = recipe.load(name, overrides).model, np.random.default_rng(3)
    one, twin = (build_model(model, shape, width, width, classes, "float64", clients=clients) for clients in (1, K))
    assert [v.path for v in one.variables] == [v.path for v in twin.variables]
    if shape == (None,):
        assert twin.input_shape == (K, None, None)
        inputs = rng.integers(0, classes + 1, (K, 2, 20)).astype(np.int32)
    else:
        assert twin.input_shape == (None, 8, 8, K * shape[-1])
        inputs = rng.normal(size=(K, 4, *shape))
    assert_equals_single_clients(one, twin, list(inputs))


def test_a_batch_as_large_as_the_number_of_clients_is_not_the_leading_form():
    one, twin = (
        build_model(recipe.loads(tiny.IMAGES).model, (5, 5, 2), 0.5, 0.5, 9, "float64", clients=clients)
        for clients in (1, K)
    )
    assert_equals_single_clients(one, twin, list(np.random.default_rng(4).normal(size=(K, K, 5, 5, 2))))


def test_without_the_gradient_of_groups_convolutions_run_client_by_client(monkeypatch):
    rng = np.random.default_rng(5)
    x, kernel = (tf.constant(rng.normal(size=size), tf.float32) for size in ((2, 5, 5, 6), (3, 3, 2, 12)))
    outputs = {}
    for works in (False, True):
        monkeypatch.setattr(padded_conv2d, "groups_work", lambda dtype: works)
        outputs[works] = padded_conv2d.grouped_conv2d(x, kernel, 1, "SAME", 3)
    np.testing.assert_allclose(outputs[True], outputs[False], atol=1e-5)


def test_channels_not_divisible_by_the_clients_are_refused():
    assert leading_shape((None, 4, 6), 3) == (3, None, 4, 2)
    assert leading_shape((3, None, 8), 3) == (3, None, 8)
    message = r"the last axis must be divisible by 3 clients. Received: shape=\(None, 8\)"
    with pytest.raises(ValueError, match=message):
        layer_class("Dense", K)(4).build((None, 8))
    with pytest.raises(ValueError, match=message):
        leading_shape((None, 8), 3)


def test_stacked_layers_can_be_built_from_their_config():
    for kind, arguments, shape in (
        ("Dense", {"units": 4, "activation": "relu"}, (K, 2, 8)),
        ("Flatten", {}, (K, 2, 8)),
        ("LayerNormalization", {"epsilon": 0.1, "center": False}, (K, 2, 8)),
        ("GroupNormalization", {"groups": 2}, (2, 8 * K)),
        ("GroupNormalization", {"groups": -1}, (2, 8 * K)),
    ):
        layer = layer_class(kind, K)(**arguments)
        again = type(layer).from_config(layer.get_config())
        assert again.get_config() == layer.get_config()
        assert tuple(again.compute_output_shape(shape)) == tuple(again(np.ones(shape)).shape)


def test_no_recipe_can_set_the_number_of_clients():
    for layer in ("Dropout: {rate: 0.1, clients: 2}", "Dense: {units: 4, clients: 2}"):
        text = tiny.DENSE.replace("Scaler, ReLU", f"{layer}, ReLU")
        assert text != tiny.DENSE
        with pytest.raises(errors.InputError, match="unknown key 'clients'"):
            recipe.loads(text)
