"""Narrow models are parts of the wide one: axes that pack several quantities are detected, correct cuts accepted."""

import keras
import numpy as np
import pytest
from keras import layers, ops
from refusals import refusal

from hetero_tf.layers.norm import Norm
from hetero_tf.layers.scaler import Scaler
from hetero_tf.models.custom_model import build_custom_model, static_norms
from hetero_tf.models.nesting import check_entries
from hetero_tf.recipe.model import Width

SHAPE = (4, 4, 3)


def of(body):
    """A function for `build_custom_model`; body: `(inputs, size of a width) -> features`."""

    def function(width, classes):
        inputs = keras.Input(SHAPE)
        features = body(inputs, lambda size: Width(size).at(width))
        features = layers.GlobalAveragePooling2D()(features) if len(features.shape) == 4 else features
        return keras.Model(inputs, layers.Dense(classes, name="head")(features))

    return function


def conv(filters, **options):
    return layers.Conv2D(filters, 3, padding="same", activation="relu", **options)


class ChannelNorm(layers.Layer):
    """A norm over channels that is not a Keras layer."""

    def build(self, shape):
        self.scale = self.add_weight(shape=shape[-1:], initializer="ones", name="scale")

    def call(self, value):
        centered = value - ops.mean(value, -1, keepdims=True)
        return centered / ops.sqrt(ops.mean(ops.square(centered), -1, keepdims=True) + 1e-3) * self.scale


def tokens(value, size):
    return layers.Dense(size(8))(layers.Reshape((8, 6))(value))


def attend(value, heads, dim, size):
    """Attention that packs heads and their entries on one axis, with a residual connection."""

    def split(value):
        return ops.transpose(ops.reshape(layers.Dense(heads * dim)(value), (-1, 8, heads, dim)), (0, 2, 1, 3))

    query, key, entries = split(value), split(value), split(value)
    weights = ops.softmax(ops.matmul(query, ops.transpose(key, (0, 1, 3, 2))) / dim**0.5)
    mixed = ops.reshape(ops.transpose(ops.matmul(weights, entries), (0, 2, 1, 3)), (-1, 8, heads * dim))
    return layers.GlobalAveragePooling1D()(value + layers.Dense(size(8))(mixed))


def gated(value, size):
    one, other = ops.split(layers.Dense(2 * size(4))(layers.Flatten()(value)), 2, axis=-1)
    return one * ops.sigmoid(other)


def shuffled(value, size):
    value = ops.reshape(layers.Conv2D(4 * size(4), 1)(value), (-1, 4, 4, 2, 2, size(4)))
    return conv(size(8))(ops.reshape(ops.transpose(value, (0, 1, 3, 2, 4, 5)), (-1, 8, 8, size(4))))


def grouped(value, size):
    value = conv(size(8))(value)
    return value + layers.Conv2D(size(8), 3, groups=2, padding="same")(ChannelNorm()(value))


PACKED = {
    "halves": gated,
    "multipliers": lambda value, size: layers.SeparableConv2D(4, 3, depth_multiplier=size(4))(value),
    "pixels": shuffled,
    "groups": grouped,
    "heads": lambda value, size: attend(tokens(value, size), 2, size(4), size),
}
LINED_UP = {
    "positions": lambda value, size: layers.Flatten()(conv(size(4))(value)),
    "positions behind a norm": lambda value, size: layers.Flatten()(ChannelNorm()(conv(size(4))(value))),
    "branches": lambda value, size: conv(size(4))(layers.Concatenate()([conv(size(4))(value), conv(size(4))(value)])),
    "a fixed branch last": lambda value, size: layers.Concatenate()([conv(size(4))(value), value]),
    "gates": lambda value, size: layers.LSTM(size(4))(layers.Reshape((4, 12))(value)),
    "gates of another layer": lambda value, size: layers.GRU(size(4))(layers.Reshape((4, 12))(value)),
    "directions": lambda value, size: layers.Bidirectional(layers.LSTM(size(4)))(layers.Reshape((4, 12))(value)),
    "positions of branches": lambda value, size: layers.Flatten()(layers.Concatenate()([conv(size(4))(value), conv(size(2))(value)])),
    "positions last": lambda value, size: layers.Flatten()(layers.Permute((3, 1, 2))(conv(size(4))(value))),
    "positions of the input": lambda value, size: layers.Dense(size(8), activation="gelu")(layers.Flatten()(value)),
    "a fixed branch first": lambda value, size: layers.Concatenate()([value, conv(size(4))(value)]),
    "norms": lambda value, size: layers.GroupNormalization(2)(layers.LayerNormalization()(conv(size(8))(value))),
    "instance norm of a recipe": lambda value, size: Norm("gn")(Scaler(0.5)(conv(size(16))(value))),
    "a norm of another library": lambda value, size: conv(size(8))(ChannelNorm()(conv(size(8))(value))),
    "heads first": lambda value, size: attend(tokens(value, size), size(4), 4, size),
    "scale of an attention": lambda value, size: layers.GlobalAveragePooling1D()(
        layers.MultiHeadAttention(2, size(8))(tokens(value, size), tokens(value, size))
    ),
    "mean over channels": lambda value, size: conv(size(8))(value) * ops.mean(conv(size(4))(value), -1, keepdims=True),
    "softmax over channels": lambda value, size: conv(size(4))(ops.softmax(conv(size(8))(value), -1)),
    "multipliers of channels": lambda value, size: layers.DepthwiseConv2D(3, depth_multiplier=2)(conv(size(4))(value)),
    "groups of one size": lambda value, size: layers.Conv2D(size(8), 3, groups=size(4))(conv(size(8))(value)),
    "statistics": lambda value, size: layers.Dropout(0.5)(layers.BatchNormalization()(conv(size(4))(value))),
}  # fmt: skip


def check(body, narrow=0.5):
    models = {
        level: build_custom_model(lambda width, classes: static_norms(of(body)(width, classes)), SHAPE, width, seed=3)
        for level, width in (("a", 1.0), ("b", narrow))
    }
    check_entries(models, "a", np.random.default_rng(0).normal(size=(64, *SHAPE)).astype(np.float32))


@pytest.mark.parametrize("name", PACKED)
def test_axes_that_pack_several_quantities_are_refused(name):
    assert refusal(check, PACKED[name]).startswith("`model` packs several things, such as heads")


@pytest.mark.parametrize("name", LINED_UP)
def test_correct_cuts_are_accepted(name):
    check(LINED_UP[name])


def test_the_refusal_names_the_weight_and_the_shapes():
    message = refusal(check, PACKED["halves"], 0.25)
    assert message.endswith("Received: dense/kernel of the shape (48, 8) at level a and (48, 2) at level b")
    assert "on axis 1 of dense/kernel" in message


def test_examples_are_those_of_the_user():
    """Invented ids could be outside of a vocabulary, such as the two segments of BERT."""

    def function(width, classes):
        inputs = keras.Input((4,), dtype="int32")
        features = layers.GlobalAveragePooling1D()(layers.Embedding(2, Width(8).at(width))(inputs))
        return keras.Model(inputs, layers.Dense(classes)(features))

    models = {level: build_custom_model(function, (4,), width) for level, width in (("a", 1.0), ("b", 0.5))}
    check_entries(models, "a", np.array([[0, 1, 1, 0], [1, 0, 0, 0]], np.int32))
