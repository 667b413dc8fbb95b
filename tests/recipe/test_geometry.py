"""Shapes and weight counts of every layer match Keras."""

import math

import keras
import pytest

from hetero_tf.models.build_model import layer_class
from hetero_tf.recipe import layer_table
from hetero_tf.recipe.geometry import Sizes, step
from hetero_tf.recipe.model import Classes, LayerSpec, Width

MAP, TOKENS, VECTOR = (9, 7, 8), (5, 8), (8,)
SIZES = Sizes(0.5, 6)
# Arguments that each layer is tried with, and the shape that it gets where that is no map.
CASES = {
    "Activation": [{"activation": "relu"}],
    "AveragePooling2D": [{"pool_size": 2}, {"pool_size": (3, 2), "strides": 1, "padding": "same"}],
    "ClassTokenReadout": [{}],
    "Conv2D": [
        {"filters": Width(6), "kernel_size": (3, 2), "strides": 2},
        {"filters": 4, "kernel_size": 3, "dilation_rate": 2},
        {"filters": 4, "kernel_size": 3, "strides": 2, "padding": "same"},
    ],
    "Cropping2D": [{"cropping": 2}, {"cropping": (1, 3)}],
    "Dense": [{"units": Classes()}],
    "LoraDense": [{"units": Classes(), "lora_rank": 2}],
    "DepthwiseConv2D": [{"kernel_size": 3, "strides": 2, "padding": "same"}],
    "Dropout": [{"rate": 0.5}],
    "Embedding": [{"words": 7, "width": Width(30)}, {"words": Classes(), "width": 4, "padding": 0}],
    "GRU": [{"units": Width(6)}, {"units": 5, "return_sequences": True}],
    "LSTM": [{"units": Width(6)}, {"units": 5, "return_sequences": True}],
    "GroupNormalization": [{"groups": 4}],
    "MaskedTokenEmbedding": [{"classes": Classes(), "positions": 20, "width": Width(30)}],
    "MaxPooling2D": [{}, {"pool_size": 3, "strides": 2}],
    "PaddedConv2D": [{"filters": 4}, {"filters": Width(6), "kernel_size": 5, "stride": 2}],
    "PaddedDepthwiseConv2D": [{"stride": 2}],
    "PatchEmbedding": [{"patch": 1, "width": Width(6)}],
    "PostActivationBlock": [{"filters": 8}, {"filters": Width(6), "stride": 2}],
    "PreActivationBlock": [{"filters": 8}, {"filters": Width(6), "stride": 2}],
    "SelfAttention": [{"heads": 2, "head_width": Width(6)}, {"heads": 2, "head_width": 3, "lora_rank": Width(4)}],
    "SeparableBlock": [{"filters": 6}],
    "SpatialDropout2D": [{"rate": 0.5}],
    "TransformerBlock": [{"heads": 2, "head_width": 3, "hidden": 12, **more} for more in ({}, {"lora_rank": Width(4)})],
    "UpSampling2D": [{"size": (2, 3)}],
    "ZeroPadding2D": [{}, {"padding": (1, 3)}],
}
INPUT_SHAPES = {
    **dict.fromkeys(("ClassTokenReadout", "GRU", "LSTM"), TOKENS),
    "Embedding": (5,),
    "MaskedTokenEmbedding": (5,),
    "SelfAttention": TOKENS,
    "TransformerBlock": TOKENS,
}
KINDS = [kind for kind in layer_table.known_layers() if kind != "Link"]


@pytest.mark.parametrize("kind", KINDS)
def test_shapes_and_weights_match_keras(kind):
    for args in CASES.get(kind, [{}]):
        geometry = step(LayerSpec(kind=kind, args=args, name="layer", unit="0"), INPUT_SHAPES.get(kind, MAP), SIZES)
        layer = layer_class(kind)(**{name: SIZES.of(value) for name, value in args.items()})
        layer(
            keras.Input(geometry.before, dtype="int32" if kind in ("Embedding", "MaskedTokenEmbedding") else "float32")
        )
        assert geometry.after == tuple(layer.compute_output_shape((None, *geometry.before)))[1:]
        others = ("bias", "gamma", "beta", "token", "mean", "variance", "seed_generator_state")
        weights = [v for v in layer.weights if not v.name.endswith(others)]
        assert geometry.weights == sum(math.prod(variable.shape) for variable in weights)


def test_dense_layers_take_vectors_and_rows_of_tokens():
    spec = LayerSpec(kind="Dense", args={"units": 3}, name="dense", unit="0")
    assert [step(spec, before, SIZES).after for before in (VECTOR, TOKENS)] == [(3,), (5, 3)]


def test_plug_in_layers_have_no_known_geometry():
    assert step(LayerSpec(kind="Theirs", args={}, name="theirs", unit="0"), MAP, SIZES) is None
