"""Contract of every layer in the package; a new layer is tested automatically."""

import inspect
from typing import get_args

import keras
import numpy as np
import pytest
import tensorflow as tf
from refusals import refusal

from hetero_tf.base import registry
from hetero_tf.layers.norm import Norm, NormKind
from hetero_tf.layers.padded_conv2d import PaddedConv2D
from hetero_tf.layers.pre_activation_block import PreActivationBlock
from hetero_tf.layers.scaler import Scaler
from hetero_tf.layers.static_batch_normalization import StaticBatchNormalization, normalize
from hetero_tf.models.build_model import layer_class

RNG = np.random.default_rng(0)
PIXELS, VECTORS, WORDS = RNG.normal(size=(4, 6, 6, 8)), RNG.normal(size=(3, 5, 8)), RNG.integers(0, 9, (3, 5))
# Arguments without a default, and inputs other than images; a new layer with such needs an entry.
ARGUMENTS = {
    "Dropout": ({"rate": 0.3}, VECTORS),
    "Embedding": ({"words": 9, "width": 8, "padding": 0}, WORDS),
    "GRU": ({"units": 6}, VECTORS),
    "LSTM": ({"units": 6, "return_sequences": True}, VECTORS),
    "Link": ({"rows": 2, "channels": 11}, PIXELS),
    "LoraDense": ({"units": 6, "lora_rank": 2}, VECTORS),
    "MaskedTokenEmbedding": ({"classes": 9, "positions": 7, "width": 8}, WORDS),
    "ClassTokenReadout": ({}, VECTORS),
    "PaddedConv2D": ({"filters": 6, "stride": 2}, PIXELS),
    "PaddedDepthwiseConv2D": ({"stride": 2}, PIXELS),
    "PatchEmbedding": ({"patch": 3, "width": 5}, PIXELS),
    "PositionEmbedding": ({}, VECTORS),
    "PostActivationBlock": ({"filters": 6, "stride": 2}, PIXELS),
    "PreActivationBlock": ({"filters": 6, "stride": 2}, PIXELS),
    "SelfAttention": ({"heads": 2, "head_width": 3}, VECTORS),
    "SeparableBlock": ({"filters": 6}, PIXELS),
    "SpatialDropout2D": ({"rate": 0.3}, PIXELS),
    "TransformerBlock": ({"heads": 2, "head_width": 3, "hidden": 7}, VECTORS),
    "UNet": ({"filters": 4}, PIXELS),
}


@pytest.fixture(params=registry.names("layers"))
def made(request):
    """`(dtype=...) -> a fresh layer`, and its inputs."""
    arguments, inputs = ARGUMENTS.get(request.param, ({}, PIXELS))
    return lambda **more: layer_class(request.param)(**{**arguments, **more}), inputs


def called(layer, inputs, training=False):
    layer(inputs)
    return layer(inputs, training=training).numpy() if _has_training(layer) else layer(inputs).numpy()


def _has_training(layer):
    return "training" in inspect.signature(layer.call).parameters


def test_constructor_arguments_are_attributes_and_documented(made):
    layer = made[0]()
    names = [name for name in inspect.signature(type(layer).__init__).parameters if name not in ("self", "kwargs")]
    if type(layer).__init__ is not keras.layers.Layer.__init__:
        for name in names:
            assert hasattr(layer, name)
            assert name in registry.argument_docs(inspect.getdoc(type(layer)))
    assert "shape" in type(layer).__doc__


def test_the_config_records_every_argument_that_is_passed(made):
    layer = made[0]()
    if type(layer).__init__ is keras.layers.Layer.__init__:
        return
    names = [name for name in inspect.signature(type(layer).__init__).parameters if name not in ("self", "kwargs")]
    arguments = {name: getattr(layer, name) for name in names}
    layer = made[0](**arguments)
    assert arguments.items() <= layer.get_config().items()
    assert type(layer).from_config(layer.get_config()).get_config() == layer.get_config()


def test_a_layer_from_its_config_gives_equal_outputs(made):
    make, inputs = made
    layer = make(name="one")
    outputs = called(layer, inputs)
    again = type(layer).from_config(layer.get_config())
    again(inputs)
    again.set_weights(layer.get_weights())
    assert again.name == "one"
    assert again.get_config() == layer.get_config()
    assert called(again, inputs).tobytes() == outputs.tobytes()
    assert [v.path for v in again.variables] == [v.path for v in layer.variables]


def test_a_model_with_the_layer_can_be_saved_and_loaded(made, tmp_path):
    make, inputs = made
    symbol = keras.Input(inputs.shape[1:], dtype="int32" if inputs.dtype.kind == "i" else "float32")
    model = keras.Model(symbol, make()(symbol))
    model.save(tmp_path / "layer.keras")
    again = keras.models.load_model(tmp_path / "layer.keras")
    assert again(inputs).numpy().tobytes() == model(inputs).numpy().tobytes()


def test_symbolic_and_eager_shapes_agree(made):
    make, inputs = made
    layer = make()
    symbol = layer(keras.Input(batch_shape=inputs.shape, dtype="int32" if inputs.dtype.kind == "i" else "float32"))
    assert tuple(symbol.shape) == tuple(layer.compute_output_shape(inputs.shape)) == called(layer, inputs).shape


def test_float64_layers_compute_in_float64(made):
    make, inputs = made
    layer = make(dtype="float64")
    for training in (False, True):
        assert called(layer, inputs, training).dtype == np.float64
    assert {v.dtype for v in layer.trainable_variables} <= {"float64"}
    rough = make(dtype="float32")
    rough(inputs)
    layer.set_weights(rough.get_weights())
    # A part in float32 would cause a large difference.
    assert np.abs(called(layer, inputs) - called(rough, inputs)).max() < 1e-4


def test_gradients_reach_every_trainable_value_and_are_finite(made):
    make, inputs = made
    layer = make(dtype="float64")
    layer(inputs)
    with tf.GradientTape() as tape:
        outputs = layer(inputs, training=True) if _has_training(layer) else layer(inputs)
        loss = tf.reduce_sum(outputs**2 * RNG.random(outputs.shape))
    for gradient in tape.gradient(loss, [v.value for v in layer.trainable_variables]):
        assert gradient is not None
        assert np.isfinite(tf.convert_to_tensor(gradient)).all()


@pytest.mark.parametrize("rank", [2, 3, 4])
def test_the_written_out_gradient_equals_automatic_differentiation(rank):
    rng = np.random.default_rng(rank)
    x = tf.constant(rng.normal(2, 3, (5, 4, 3, 6)[4 - rank :]))
    gamma, beta = tf.constant(rng.normal(size=6)), tf.constant(rng.normal(size=6))
    upstream = tf.constant(rng.normal(size=x.shape))

    def gradients(function):
        with tf.GradientTape() as tape:
            tape.watch([x, gamma, beta])
            outputs = function()
        return outputs, tape.gradient(outputs, [x, gamma, beta], upstream)

    def plain():
        mean = tf.reduce_mean(x, range(rank - 1))
        variance = tf.reduce_mean((x - mean) ** 2, range(rank - 1))
        return (x - mean) / tf.sqrt(variance + 1e-5) * gamma + beta

    actual, expected = gradients(lambda: normalize(x, gamma, beta, 1e-5)[0]), gradients(plain)
    np.testing.assert_allclose(actual[0], expected[0], atol=1e-13)
    for mine, theirs in zip(actual[1], expected[1]):
        np.testing.assert_allclose(mine, theirs, atol=1e-12)


def test_static_batch_normalisation_stores_the_unbiased_moments_of_its_batch():
    layer = StaticBatchNormalization(dtype="float64")
    layer(PIXELS)
    outputs = layer(PIXELS, training=True).numpy()
    flat = PIXELS.reshape(-1, 8)
    np.testing.assert_allclose(layer.mean, flat.mean(0), atol=1e-14)
    np.testing.assert_allclose(layer.variance, flat.var(0, ddof=1), rtol=1e-13)
    np.testing.assert_allclose(outputs.reshape(-1, 8), (flat - flat.mean(0)) / np.sqrt(flat.var(0) + 1e-5), atol=1e-12)
    layer.gamma.assign(np.arange(8.0))
    layer.beta.assign(np.ones(8))
    still = (flat - layer.mean.numpy()) / np.sqrt(layer.variance.numpy() + 1e-5) * np.arange(8) + 1
    np.testing.assert_allclose(layer(PIXELS).numpy().reshape(-1, 8), still, atol=1e-12)


def test_groups_are_normalised_separately():
    whole, grouped = StaticBatchNormalization(dtype="float64"), StaticBatchNormalization(dtype="float64")
    whole(PIXELS)
    grouped(PIXELS)
    grouped.group_size = 2
    parts = []
    for first in (0, 2):
        outputs = whole(PIXELS[first : first + 2], training=True).numpy()
        parts.append((outputs, whole.mean.numpy(), whole.variance.numpy()))
    outputs = grouped(PIXELS, training=True)
    np.testing.assert_allclose(outputs, np.concatenate([part[0] for part in parts]), atol=1e-13)
    np.testing.assert_allclose(grouped.mean, np.mean([part[1] for part in parts], 0), atol=1e-14)
    np.testing.assert_allclose(grouped.variance, np.mean([part[2] for part in parts], 0), atol=1e-14)


def test_the_scaler_divides_in_training_only():
    layer = Scaler(0.25)
    assert layer(PIXELS, training=True).numpy().tolist() == (PIXELS.astype(np.float32) * 4).tolist()
    assert layer(PIXELS, training=False).numpy().tolist() == PIXELS.astype(np.float32).tolist()
    assert (Scaler(0.25, enabled=False)(PIXELS, training=True).numpy() == PIXELS.astype(np.float32)).all()


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("size", [1, 3, 5])
def test_convolutions_pad_equally_on_both_sides(size, stride):
    layer = PaddedConv2D(2, size, stride, dtype="float64")
    outputs = layer(PIXELS).numpy()
    side = size // 2
    padded = np.pad(PIXELS, ((0, 0), (side, side), (side, side), (0, 0)))
    for row in range(outputs.shape[1]):
        for column in range(outputs.shape[2]):
            window = padded[:, row * stride : row * stride + size, column * stride : column * stride + size]
            expected = np.tensordot(window, layer.kernel.numpy(), 3) + layer.bias.numpy()
            np.testing.assert_allclose(outputs[:, row, column], expected, atol=1e-12)


@pytest.mark.parametrize(("kind", "axes"), [("in", (1, 2)), ("ln", (1, 2, 3)), ("gn", (1, 2, 4))])
def test_norms_have_mean_0_and_variance_1_over_their_groups(kind, axes):
    outputs = Norm(kind, dtype="float64")(PIXELS).numpy()
    outputs = outputs.reshape(4, 6, 6, 4, 2) if kind == "gn" else outputs
    np.testing.assert_allclose(outputs.mean(axes), 0, atol=1e-12)
    np.testing.assert_allclose(outputs.var(axes), 1, atol=1e-4)


def test_norm_none_is_the_identity():
    assert (Norm("none")(PIXELS).numpy() == PIXELS.astype(np.float32)).all()
    assert get_args(NormKind) == ("sbn", "bn", "wbn", "in", "gn", "ln", "none")


@pytest.mark.parametrize(
    ("name", "arguments", "expected"),
    [
        ("StaticBatchNormalization", {"epsilon": 0}, "`epsilon` must be positive. Received: epsilon=0"),
        ("TrackedBatchNormalization", {"epsilon": 0}, "`epsilon` must be positive. Received: epsilon=0"),
        ("TrackedBatchNormalization", {"momentum": 0}, "`momentum` must be in (0, 1]. Received: momentum=0"),
        ("TrackedBatchNormalization", {"momentum": 1.5}, "`momentum` must be in (0, 1]. Received: momentum=1.5"),
        ("Scaler", {"scale": 0}, "`scale` must be in (0, 1]. Received: scale=0"),
        ("Scaler", {"scale": 1.5}, "`scale` must be in (0, 1]. Received: scale=1.5"),
        ("Dropout", {"rate": -0.1}, "`rate` must be in [0, 1). Received: rate=-0.1"),
        ("Dropout", {"rate": 1}, "`rate` must be in [0, 1). Received: rate=1"),
        ("PaddedConv2D", {"kernel_size": 2}, "`kernel_size` must be odd. Received: kernel_size=2"),
        ("PaddedDepthwiseConv2D", {"kernel_size": 2}, "`kernel_size` must be odd. Received: kernel_size=2"),
        ("PreActivationBlock", {"residual": "x"}, "`residual` must be one of input, activated. Received: residual='x'"),
        (
            "PreActivationBlock",
            {"scaler_at": "x"},
            "`scaler_at` must be one of norms, products. Received: scaler_at='x'",
        ),
        ("Norm", {"kind": "x"}, "`kind` must be one of sbn, bn, wbn, in, gn, ln, none. Received: kind='x'"),
    ],
)
def test_impossible_arguments_are_refused(name, arguments, expected):
    defaults, _ = ARGUMENTS.get(name, ({}, None))
    assert refusal(lambda: layer_class(name)(**{**defaults, **arguments}), kind=ValueError) == expected


def test_a_block_keeps_its_input_as_shortcut_unless_shape_changes():
    for filters, stride, projected in ((8, 1, False), (6, 1, True), (8, 2, True)):
        block = PreActivationBlock(filters, stride, norm="none", dtype="float64")
        block(PIXELS)
        assert (block.shortcut is not None) == projected
        block.conv2.kernel.assign(np.zeros(block.conv2.kernel.shape))
        expected = block.shortcut(np.maximum(PIXELS, 0)) if projected else PIXELS
        np.testing.assert_allclose(block(PIXELS), expected, atol=1e-14)
