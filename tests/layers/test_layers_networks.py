"""Residual blocks, parts of exits, ViT layers and tracked batch normalisation compared with their formulas."""

import numpy as np
import pytest
import tensorflow as tf

from hetero_tf.base.errors import InputError
from hetero_tf.layers.attention_gate import AttentionGate, doubling
from hetero_tf.layers.class_token_readout import ClassTokenReadout
from hetero_tf.layers.norm import Norm
from hetero_tf.layers.padded_conv2d import PaddedConv2D
from hetero_tf.layers.padded_depthwise_conv2d import PaddedDepthwiseConv2D
from hetero_tf.layers.patch_embedding import PatchEmbedding
from hetero_tf.layers.post_activation_block import PostActivationBlock
from hetero_tf.layers.pre_activation_block import PreActivationBlock
from hetero_tf.layers.separable_block import SeparableBlock
from hetero_tf.layers.static_batch_normalization import StaticBatchNormalization
from hetero_tf.layers.tracked_batch_normalization import TrackedBatchNormalization
from hetero_tf.layers.transformer_block import TransformerBlock
from hetero_tf.layers.u_net import UNet

RNG = np.random.default_rng(0)
PIXELS, TOKENS = RNG.normal(size=(4, 6, 6, 5)), RNG.normal(size=(3, 5, 8))
F64 = {"dtype": "float64"}


def conv(x, layer, stride=1):
    """A convolution with symmetric padding; depthwise kernels become diagonal ones."""
    kernel = np.asarray(layer.kernel)
    if kernel.ndim == 3:
        kernel = kernel[..., None] * np.eye(kernel.shape[-1])
    side = kernel.shape[0] // 2
    return tf.nn.conv2d(np.pad(x, [(0, 0), (side, side), (side, side), (0, 0)]), kernel, stride, "VALID").numpy()


def normed(x):
    return (x - x.mean((0, 1, 2))) / np.sqrt(x.var((0, 1, 2)) + 1e-5)


def relu(x):
    return np.maximum(x, 0)


@pytest.mark.parametrize(("filters", "stride"), [(5, 1), (7, 1), (5, 2)])
def test_a_post_activation_block_equals_its_formula(filters, stride):
    for norm, function, scale in (("sbn", normed, 1.0), ("none", lambda x: x, 0.25)):
        block = PostActivationBlock(filters, stride, norm, scale=scale, **F64)
        outputs = block(PIXELS, training=True).numpy()
        shortcut = PIXELS
        if (filters, stride) != (5, 1):
            shortcut = function(conv(PIXELS, block.shortcut, stride) / scale)
        hidden = relu(function(conv(PIXELS, block.conv1, stride) / scale))
        np.testing.assert_allclose(outputs, relu(function(conv(hidden, block.conv2) / scale) + shortcut), atol=1e-12)
        assert (block.shortcut is None) == ((filters, stride) == (5, 1))


@pytest.mark.parametrize(("filters", "stride"), [(5, 1), (7, 2)])
@pytest.mark.parametrize("residual", ["input", "activated"])
def test_a_pre_activation_block_adds_its_residual_and_scales_products(filters, stride, residual):
    block = PreActivationBlock(filters, stride, "none", residual=residual, scaler_at="products", scale=0.5, **F64)
    outputs, active = block(PIXELS, training=True).numpy(), relu(PIXELS)
    shortcut = PIXELS if residual == "input" else active
    if stride == 2:
        shortcut = conv(active, block.shortcut, 2) * 2
    expected = conv(relu(conv(active, block.conv1, stride) * 2), block.conv2) * 2
    np.testing.assert_allclose(outputs, expected + shortcut, atol=1e-12)
    options = {"residual": residual, "scaler_at": "products", "scale": 0.5, "step": True}
    stepped = PreActivationBlock(filters, stride, "none", **options, **F64)
    stepped.build(PIXELS.shape)
    assert stepped.step_size.numpy().tolist() == [1]
    stepped.set_weights([np.full(1, 0.3), *block.get_weights()])
    np.testing.assert_allclose(stepped(PIXELS, training=True), 0.3 * expected + shortcut, atol=1e-12)


@pytest.mark.parametrize("shape", [(6, 9), (6, 8), (3, 3)])
def test_a_strided_1x1_convolution_reads_every_third_position(shape):
    inputs = tf.constant(np.random.default_rng(0).normal(size=(2, *shape, 4)))
    layer = PaddedConv2D(5, 1, 3, use_bias=False, **F64)
    with tf.GradientTape() as tape:
        tape.watch(inputs)
        outputs = layer(inputs, training=True)
    np.testing.assert_allclose(outputs, conv(inputs, layer, 3), atol=1e-13)
    expected = np.zeros(inputs.shape)
    expected[:, ::3, ::3] = tf.reduce_sum(layer.kernel, [0, 1, 3])
    np.testing.assert_allclose(tape.gradient(outputs, inputs), expected, atol=1e-13)


@pytest.mark.parametrize(("size", "stride"), [(1, 1), (3, 1), (3, 2), (5, 2)])
def test_convolutions_pad_equally_on_both_sides(size, stride):
    for layer in (PaddedConv2D(2, size, stride, use_bias=False, **F64), PaddedDepthwiseConv2D(size, stride, **F64)):
        np.testing.assert_allclose(layer(PIXELS), conv(PIXELS, layer, stride), atol=1e-13)


@pytest.mark.parametrize("scale", [1.0, 0.5])
def test_a_separable_block_equals_its_formula(scale):
    for norm, function in (("sbn", normed), ("none", lambda x: x)):
        block = SeparableBlock(7, 2, norm, scale=scale, **F64)
        outputs = block(PIXELS, training=True).numpy()
        hidden = relu(function(conv(conv(PIXELS, block.deep1, 2), block.mix1) / scale))
        expected = relu(function(conv(conv(hidden, block.deep2), block.mix2) / scale))
        np.testing.assert_allclose(outputs, expected, atol=1e-12)
        assert hidden.shape[1:] == (3, 3, 5) and outputs.shape == (4, 3, 3, 7)


def test_a_u_net_equals_convolutions_of_concatenated_maps():
    """Odd sizes: 6 x 5 pixels become 3 x 3 and 2 x 2."""
    unet = UNet(4, scale=0.5, **F64)
    outputs = unet(PIXELS[:, :, :5], training=True).numpy()

    def pair(value, layers):
        kernel = np.concatenate([layer.kernel for layer in layers.conv1], 2)
        padded = np.pad(value, [(0, 0), (1, 1), (1, 1), (0, 0)])
        hidden = relu(normed(tf.nn.conv2d(padded, kernel, 1, "VALID").numpy() / 0.5))
        return relu(normed(conv(hidden, layers.conv2) / 0.5))

    def pooled(value):
        padded = np.pad(value, [(0, 0), *((0, size % 2) for size in value.shape[1:3]), (0, 0)])
        return padded.reshape(4, -(-value.shape[1] // 2), 2, -(-value.shape[2] // 2), 2, value.shape[-1]).max((2, 4))

    maps = [pair(PIXELS[:, :, :5], unet.encoders[0])]
    for encoder in unet.encoders[1:]:
        maps.append(pair(pooled(maps[-1]), encoder))
    assert [each.shape[1:] for each in maps] == [(6, 5, 4), (3, 3, 8), (2, 2, 16)]
    value = maps[2]
    for skip, decoder in ((maps[1], unet.decoders[1]), (maps[0], unet.decoders[0])):
        enlarged = np.kron(value, np.ones((1, 2, 2, 1)))[:, : skip.shape[1], : skip.shape[2]]
        value = pair(np.concatenate([enlarged, skip], -1), decoder)
    np.testing.assert_allclose(outputs, value, atol=1e-10)


@pytest.mark.parametrize("size", [1, 2, 3, 6, 7, 16])
def test_doubling_is_bilinear_enlargement(size):
    matrix, half = doubling(size), -(-size // 2)
    np.testing.assert_allclose(matrix.sum(1), 1)
    rows = np.random.default_rng(size).normal(size=(1, half, 1, 1)).astype(np.float32)
    expected = tf.image.resize(rows, (2 * half, 1)).numpy()[0, :size, 0, 0]
    np.testing.assert_allclose(matrix @ rows[0, :, 0, 0], expected, atol=1e-6)


def test_a_gate_multiplies_by_enlarged_weights_between_a_half_and_one():
    gate = AttentionGate("none", **F64)
    weights = gate(PIXELS[:, :, :4]).numpy() / PIXELS[:, :, :4]
    assert weights.min() >= 0.5 and weights.max() < 1 and np.ptp(weights) > 1e-3
    parts = gate.separable
    small = relu(conv(conv(PIXELS[:, :, :4], parts.deep1, 2), parts.mix1))
    small = relu(conv(conv(small, parts.deep2), parts.mix2))
    large = np.einsum("ij,bjkc,lk->bilc", doubling(6), small, doubling(4))
    np.testing.assert_allclose(weights, 1 / (1 + np.exp(-large)), atol=1e-12)
    with pytest.raises(
        ValueError, match=r"needs inputs of static height and width. Received: shape=\(None, None, 6, 5\)"
    ):
        AttentionGate().build((None, None, 6, 5))


def test_running_averages_move_by_the_unbiased_moments():
    layer = TrackedBatchNormalization(momentum=0.3, **F64)
    mean, variance = np.zeros(5), np.ones(5)
    for step in range(3):
        x = PIXELS + step
        layer(x, training=True)
        mean = 0.7 * mean + 0.3 * x.mean((0, 1, 2))
        variance = 0.7 * variance + 0.3 * x.reshape(-1, 5).var(0, ddof=1)
    np.testing.assert_allclose(layer.moving_mean, mean, atol=1e-14)
    np.testing.assert_allclose(layer.moving_variance, variance, atol=1e-14)
    layer.gamma.assign(np.arange(5.0))
    layer.beta.assign(np.ones(5))
    expected = (PIXELS - mean) / np.sqrt(variance + 1e-5) * np.arange(5) + 1
    np.testing.assert_allclose(layer(PIXELS), expected, atol=1e-12)
    assert [v.name for v in layer.non_trainable_variables] == list(TrackedBatchNormalization.TRACKS)


def test_tracked_and_static_normalisation_train_equally():
    results = []
    for layer in (TrackedBatchNormalization(**F64), StaticBatchNormalization(**F64)):
        inputs = tf.constant(PIXELS)
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            outputs = layer(inputs, training=True)
            loss = tf.reduce_sum(outputs**3)
        results.append([outputs, *tape.gradient(loss, [inputs, layer.gamma.value, layer.beta.value])])
    for one, other in zip(*results):
        assert tf.convert_to_tensor(one).numpy().tobytes() == tf.convert_to_tensor(other).numpy().tobytes()
    assert isinstance(Norm("bn").norm, TrackedBatchNormalization)


def test_patches_are_projected_row_by_row_after_the_class_token():
    images = RNG.normal(size=(2, 6, 9, 2))
    layer = PatchEmbedding(3, 4, scale=0.5, **F64)
    layer.build(images.shape)
    layer.bias.assign(RNG.normal(size=4))
    projected = tf.nn.conv2d(images, layer.kernel.numpy(), 3, "VALID").numpy().reshape(2, 6, 4) + layer.bias.numpy()
    rows = (
        np.concatenate([np.broadcast_to(layer.token.numpy(), (2, 1, 4)), projected], 1) + layer.position_table.numpy()
    )
    np.testing.assert_allclose(layer(images), rows, atol=1e-13)
    np.testing.assert_allclose(layer(images, training=True), 2 * rows, atol=1e-13)
    assert (ClassTokenReadout(**F64)(rows).numpy() == rows[:, 0]).all()


@pytest.mark.parametrize("shape", [(None, 6, 7, 3), (None, 4, 6, 3), (None, None, 6, 3)])
def test_images_that_patches_do_not_divide_are_refused(shape):
    with pytest.raises(InputError, match="height and width of the images must be multiples of `patch`. Received: "):
        PatchEmbedding(3, 4).build(shape)


def test_with_norms_first_the_sum_passes_through():
    block = TransformerBlock(2, 3, 7, norm_first=True, **F64)
    outputs = block(TOKENS).numpy()
    # Layer norms ignore values that are equal in all channels, so these pass through the block unchanged.
    np.testing.assert_allclose(block(TOKENS + 3), outputs + 3, atol=1e-12)
    attended = TOKENS + block.attention(block.norm1(TOKENS)).numpy()
    hidden = block.gelu(block.expand(block.norm2(attended)))
    np.testing.assert_allclose(outputs, attended + block.contract(hidden).numpy(), atol=1e-12)
    np.testing.assert_allclose(TransformerBlock(2, 3, 7, **F64)(TOKENS).numpy().mean(-1), 0, atol=1e-12)
    assert np.abs(outputs.mean(-1)).max() > 0.1
