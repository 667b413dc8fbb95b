"""Shapes and weight counts of every layer match Keras; a layer in a file of a plug-in is checked like the others."""

import math
from pathlib import Path

import keras
import pytest
from each import for_each
from refusals import refusal

from hetero_tf.base import registry
from hetero_tf.base.errors import InputError
from hetero_tf.models.build_model import build_model, layer_class
from hetero_tf.recipe import geometry, load, with_source_location
from hetero_tf.recipe.fit import DataFacts, check_fit
from hetero_tf.recipe.geometry import UNKNOWN, geometry_of, size_at, step, walk
from hetero_tf.recipe.model import LayerSpec
from hetero_tf.recipe.nodes import to_plain
from hetero_tf.recipe.reader import parse

MAP, TOKENS, VECTOR = (9, 7, 8), (5, 8), (8,)
WIDTH, CLASSES = 0.5, 6
# Shapes of the forms of inputs, and the arguments that each layer is tried with.
SHAPES = {"map": MAP, "tokens": TOKENS, "vector": VECTOR, "words": (5,), "": MAP}
CASES = to_plain(parse(Path(__file__).with_name("layer_cases.yaml").read_text("utf-8"), "layer_cases.yaml"))


@for_each(geometry.known_layers())
def test_shapes_and_weights_match_keras(kind):
    for args in CASES.get(kind, [{}]):
        spec = LayerSpec(kind=kind, args=args, name="layer", unit="0")
        geometry = step(spec, SHAPES[geometry_of(kind).inputs], WIDTH, CLASSES)
        layer = layer_class(kind)(**{name: size_at(value, WIDTH, CLASSES) for name, value in args.items()})
        layer(
            keras.Input(geometry.inputs, dtype="int32" if kind in ("Embedding", "MaskedTokenEmbedding") else "float32")
        )
        assert geometry.outputs == tuple(layer.compute_output_shape((None, *geometry.inputs)))[1:]
        others = ("bias", "gamma", "beta", "token", "mean", "variance", "seed_generator_state")
        weights = [v for v in layer.weights if not v.name.endswith(others)]
        assert geometry.weights == sum(math.prod(variable.shape) for variable in weights)


def test_dense_layers_take_vectors_and_rows_of_tokens():
    spec = LayerSpec(kind="Dense", args={"units": 3}, name="dense", unit="0")
    assert [step(spec, before, WIDTH, CLASSES).outputs for before in (VECTOR, TOKENS)] == [(3,), (5, 3)]


LAYER = """
import keras
import tensorflow as tf

from hetero_tf.base.constraints import FixedSize, Size


class Tiles(keras.layers.Layer):
    GEOMETRY = {
        "inputs": "map",
        "outputs": "(rows // tile, columns // tile, units)",
        "weights": "tile**2 * channels * units",
        "groups": "2",
        "tile": "tile",
    }

    def __init__(self, units: Size, tile: FixedSize = 2, **kwargs):
        super().__init__(**kwargs)
        self.units, self.tile = units, tile

    def build(self, input_shape):
        self.kernel = self.add_weight(shape=(self.tile, self.tile, input_shape[-1], self.units), name="kernel")

    def call(self, inputs):
        return tf.nn.conv2d(inputs, tf.convert_to_tensor(self.kernel), self.tile, "VALID")


class Undeclared(keras.layers.Layer):
    def call(self, inputs):
        return tf.reduce_max(inputs, [1, 2])
"""
HEAD = ("GlobalAveragePooling2D", "{Dense: {units: !classes}}")
FACTS = DataFacts(source="digits", example=(8, 8, 1), classes=10, several=True, pixels=(0.0, 1.0), train=200, test=100)


def loaded(*layers):
    return load("tiny/digits", [f"model.layers=[{', '.join(layers)}]", "model.settings={}"])


def error_of(*layers, memory=2**50):
    """The message, without its position, of a recipe that is loaded and then checked against images of 8 x 8."""

    def check():
        checked_recipe = loaded(*layers)
        with with_source_location(checked_recipe):
            check_fit(checked_recipe, FACTS, memory)

    return refusal(check).split("\n")[0]


def test_a_layer_of_a_plug_in_is_checked_by_its_declaration(plugin_module):
    registry.register_plugin(plugin_module("own_layers", LAYER))
    tiles = "{PaddedConv2D: {filters: 8}}", "{Tiles: {units: !w 16}}"
    model = loaded(*tiles, *HEAD).model
    built = build_model(model, (8, 8, 1), 0.5)
    steps = list(walk(model, (8, 8, 1), 0.5, 10))
    assert [step.outputs for step in steps] == [tuple(layer.output.shape)[1:] for layer in built.layers[1:]]
    assert steps[1].weights == math.prod(built.layers[2].kernel.shape) == 2 * 2 * 8 * 8
    assert error_of(*HEAD[:1], *tiles[1:], *HEAD[1:]).endswith(
        "Tiles needs a feature map, but its input is a vector; use it for images, before PatchEmbedding, pooling and Flatten"
    )
    assert error_of(tiles[0], "{Tiles: {units: 16, tile: 3}}", *HEAD).endswith(
        "Tiles.tile: must divide the 8 x 8 pixels of the input. Received: 3"
    )
    assert "2 groups do not divide the 5 channels of level" in error_of("{Tiles: {units: 5}}", *HEAD)
    assert "1000000000000 weights in one layer" in error_of(
        "{PaddedConv2D: {filters: 500000}}", "{Tiles: {units: 500000}}", *HEAD
    )
    assert "model: needs at least 0.0 GiB of memory" in error_of(*tiles, *HEAD, memory=1000)


def test_a_layer_without_a_declaration_has_an_unknown_output(plugin_module):
    registry.register_plugin(plugin_module("own_layers", LAYER))
    model = loaded("{PaddedConv2D: {filters: 8}}", "Undeclared", "{Dense: {units: !classes}}").model
    assert [step.outputs for step in walk(model, (8, 8, 1), 1.0, 10)] == [(8, 8, 8), UNKNOWN, UNKNOWN[:1] + (10,)]


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ('"tile": "tile"', '"tiles": "tile"', "GEOMETRY of Tiles must be a dictionary with some of the keys inputs, outputs,"),
        ('"map"', '"image"', "`inputs` one of map, tokens, vector, words, and formulas"),
        ('"groups": "2"', '"groups": 3 - x', "GEOMETRY must be a plain value, since the module is not imported: "),
        ("tile**2 *", "size**2 *", "which leads to KeyError: 'size'"),
        ("tile**2 *", "tile.bit_length() *", "which leads to TypeError: tile.bit_length() is not allowed"),
        ("tile**2 *", "tile**2 * *", "which leads to SyntaxError: invalid syntax"),
    ],
)  # fmt: skip
def test_an_invalid_declaration_is_reported(plugin_module, old, new, expected):
    registry.register_plugin(plugin_module("own_layers", "x = 1\n" + LAYER.replace(old, new, 1)))
    with pytest.raises(InputError) as error:
        loaded("{Tiles: {units: 4}}", *HEAD)
    assert expected in str(error.value) and "Received: " in str(error.value)
