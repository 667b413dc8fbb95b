"""Contract of every layer in the package; a new layer is tested automatically."""

import numpy as np
import pytest
import tensorflow as tf
from contract_cases import shipped

from hetero_tf.layers.norm import Norm
from hetero_tf.layers.scaler import Scaler
from hetero_tf.layers.static_batch_normalization import StaticBatchNormalization, normalize
from hetero_tf.testing.layer_checks import PIXELS

RNG = np.random.default_rng(0)
VECTORS, WORDS = RNG.normal(size=(3, 5, 8)), RNG.integers(0, 9, (3, 5))
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
    "TransformerBlock": ({"heads": 2, "head_width": 3, "hidden": 7}, VECTORS),
    "UNet": ({"filters": 4}, PIXELS),
}


@shipped(
    "layers",
    {name: arguments for name, (arguments, _) in ARGUMENTS.items()},
    inputs={name: inputs for name, (_, inputs) in ARGUMENTS.items()},
)
def test_a_plugin_keeps_the_contract(check):
    check()


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


def test_the_scaler_divides_in_training_only_and_norm_none_is_the_identity():
    layer = Scaler(0.25)
    assert layer(PIXELS, training=True).numpy().tolist() == (PIXELS.astype(np.float32) * 4).tolist()
    assert layer(PIXELS, training=False).numpy().tolist() == PIXELS.astype(np.float32).tolist()
    assert (Scaler(0.25, enabled=False)(PIXELS, training=True).numpy() == PIXELS.astype(np.float32)).all()
    assert (Norm("none")(PIXELS).numpy() == PIXELS.astype(np.float32)).all()


@pytest.mark.parametrize(("kind", "axes"), [("in", (1, 2)), ("ln", (1, 2, 3)), ("gn", (1, 2, 4))])
def test_norms_have_mean_0_and_variance_1_over_their_groups(kind, axes):
    outputs = Norm(kind, dtype="float64")(PIXELS).numpy()
    outputs = outputs.reshape(4, 6, 6, 4, 2) if kind == "gn" else outputs
    np.testing.assert_allclose(outputs.mean(axes), 0, atol=1e-12)
    np.testing.assert_allclose(outputs.var(axes), 1, atol=1e-4)
