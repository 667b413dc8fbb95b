"""Clients computed together on a GPU: convolutions as batched products of their patches."""

import numpy as np
import pytest
import tensorflow as tf
import tiny

from hetero_tf.layers import padded_conv2d
from hetero_tf.layers.fast_conv2d import conv2d_by_patches
from hetero_tf.layers.padded_conv2d import PaddedConv2D, grouped_conv2d
from hetero_tf.models.variables import all_layers


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize(("positions", "size"), [((5, 6), 3), ((4, 4), 1), ((8, 7), 5), ((1, 1), 3)])
def test_outputs_and_gradients_equal_grouped_convolutions(positions, size, stride):
    rng, clients, side = np.random.default_rng(0), 3, size // 2
    inputs = tf.constant(rng.normal(size=(2, *positions, clients * 4)))
    kernel = tf.constant(rng.normal(size=(size, size, 4, clients * 5)))

    def grouped(inputs, kernel, stride, clients):
        padded = tf.pad(inputs, [[0, 0], [side, side], [side, side], [0, 0]])
        return grouped_conv2d(padded, kernel, stride, "VALID", clients)

    def with_gradients(convolve):
        with tf.GradientTape() as tape:
            tape.watch([inputs, kernel])
            outputs = convolve(inputs, kernel, stride, clients)
            total = tf.reduce_sum(tf.sin(outputs))
        return [outputs, *tape.gradient(total, [inputs, kernel])]

    for actual, expected in zip(with_gradients(conv2d_by_patches), with_gradients(grouped), strict=True):
        np.testing.assert_allclose(actual, expected, atol=1e-12, rtol=0)


def test_gpu_engine_uses_patches_for_several_clients():
    def forms(engine, device):
        process = tiny.process(tiny.IMAGES, f"engine={engine}", "round.clients=4", device=device)
        (model, *_) = process.setup.submodels[0].block.stages[0].joint.models
        layers = [layer for layer in all_layers(model.model) if isinstance(layer, PaddedConv2D)]
        return {(layer.clients > 1, layer.form) for layer in layers}

    assert forms("auto", "gpu") == {(True, "patches")}
    assert forms("stacked", "gpu") == {(True, None)}
    assert forms("sequential", "gpu") == {(False, None)}


def test_patches_are_used_up_to_a_size_of_the_patches(monkeypatch):
    layer = PaddedConv2D(5, stride=2, clients=2)
    layer.build((None, 5, 6, 8))
    layer.use_fastest_form(3, "gpu")
    calls = []
    monkeypatch.setattr(
        padded_conv2d, "conv2d_by_patches", lambda *args: calls.append(args) or conv2d_by_patches(*args)
    )
    # Batch 3, 3 x 3 positions, 9 taps of 8 channels in float32.
    for limit, count in ((3 * 9 * 9 * 8 * 4 - 1, 0), (3 * 9 * 9 * 8 * 4, 1)):
        monkeypatch.setattr(padded_conv2d, "MAX_PATCHES", limit)
        layer(tf.ones([3, 5, 6, 8]), training=True)
        assert len(calls) == count
    layer(tf.ones([3, 5, 6, 8]), training=False)
    assert len(calls) == 1
