"""Models of the recipes: sizes by hand, initial values, and the interface of a Keras model."""

import inspect
import random

import keras
import numpy as np
import pytest
import tiny
from refusals import refusal

from hetero_tf import recipe
from hetero_tf.layers.norm import Norm
from hetero_tf.layers.padded_conv2d import PaddedConv2D
from hetero_tf.layers.pre_activation_block import PreActivationBlock
from hetero_tf.layers.scaler import Scaler
from hetero_tf.models.build_model import build_model, first_sentence
from hetero_tf.models.variables import all_layers
from hetero_tf.recipe import layer_table
from hetero_tf.recipe.model import LayerSpec, Model

MNIST, CIFAR, TOKENS = (28, 28, 1), (32, 32, 3), (None,)
WIDTHS = {"a": 1.0, "b": 0.5, "c": 0.25, "d": 0.125, "e": 0.0625}


def trainable(model):
    """{path: array} of the trainable variables."""
    return {variable.path: np.asarray(variable) for variable in model.trainable_variables}


def build(name, level, shape, classes=10):
    return build_model(recipe.load(name).model, shape, WIDTHS[level], WIDTHS[level], classes)


def count(model):
    return sum(int(np.prod(variable.shape)) for variable in model.trainable_variables)


# `test_describe` has the published numbers of all levels.
def test_parameters_of_the_cnn_as_arithmetic():
    def stage(channels, filters):
        return 9 * channels * filters + filters + 2 * filters  # kernel, bias, scale and offset

    expected = stage(1, 64) + stage(64, 128) + stage(128, 256) + stage(256, 512) + (512 + 1) * 10
    assert count(build("mnist", "a", MNIST)) == expected


def test_parameters_of_the_transformer_as_arithmetic():
    width, hidden, words = 16, 32, 33279
    embedding = (words + 1) * width + 64 * width + 2 * width
    block = 4 * (width + 1) * width + (width + 1) * hidden + (hidden + 1) * width + 2 * 2 * width
    decoder = (width + 1) * width + 2 * width + (width + 1) * words
    assert count(build("wikitext2", "e", TOKENS, words)) == embedding + 4 * block + decoder


def test_variable_paths_are_equal_at_every_width_and_unique():
    for name, shape in (("mnist", MNIST), ("cifar10", CIFAR), ("wikitext2", TOKENS)):
        wide, narrow = (build(name, level, shape, 30) for level in "de")
        paths = [variable.path for variable in wide.trainable_variables]
        assert paths == [variable.path for variable in narrow.trainable_variables]
        assert len(set(paths)) == len(paths)


def uniform_in(value, bound):
    value = np.asarray(value)
    return abs(value).max() <= bound and abs(value).max() > 0.8 * bound and abs(value.mean()) < 0.3 * bound


def test_the_cnn_starts_as_the_authors_code_does():
    for path, value in trainable(build("mnist", "d", MNIST)).items():
        layer, kind = path.split("/")[-2:]
        if "padded_conv2d" in layer and kind == "kernel":
            bound = (9 * value.shape[2]) ** -0.5
            assert uniform_in(value, bound)
            conv_bound = bound
        elif "padded_conv2d" in layer:
            assert value.any()  # PyTorch starts biases of convolutions at random
            assert abs(value).max() <= conv_bound
        elif kind == "gamma":
            assert (value == 1).all()
        elif kind == "kernel":
            assert uniform_in(value, value.shape[0] ** -0.5)
        else:
            assert (value == 0).all()  # offsets, and the bias of the linear layer


def test_the_transformer_starts_as_the_authors_code_does():
    weights = trainable(build("wikitext2", "d", TOKENS, classes=400))
    bounds = {"query_kernel": 32**-0.5, "key_kernel": 32**-0.5, "value_kernel": 32**-0.5, "output_kernel": 32**-0.5}
    for path, value in weights.items():
        layer, kind = path.split("/")[-2:]
        if kind in ("tokens", "places"):
            assert abs(value.std() - 1) < 0.05
            assert abs(value.mean()) < 0.1
            assert abs(value).max() > 2.5
        elif kind in bounds:
            assert uniform_in(value, bounds[kind])
        elif layer in ("expand", "contract") and kind == "kernel":
            assert abs(value.std() - 0.02) < 0.002
        elif kind == "kernel":
            assert uniform_in(value, value.shape[0] ** -0.5)
        else:
            assert (value == (kind == "gamma")).all()


def test_repeated_blocks_start_equal_only_if_the_recipe_requires_it():
    weights = trainable(build("wikitext2", "e", TOKENS, classes=30))
    blocks = sorted({path.split("/")[0] for path in weights if "transformer_block" in path.split("/")[0]})
    assert len(blocks) == 4
    for path, value in weights.items():
        if path.startswith(blocks[0]):
            for other in blocks[1:]:
                assert (weights[path.replace(blocks[0], other, 1)] == value).all()
    text = tiny.TEXT.replace("- TransformerBlock: {", "- Repeat: {times: 2, layer: {TransformerBlock: {")
    text = text.replace("hidden: !w 12}", "hidden: !w 12}}}")
    separate = trainable(build_model(recipe.loads(text).model, TOKENS, 1.0, classes=30))
    one, two = (value for path, value in separate.items() if path.endswith("query_kernel"))
    assert (one != two).all()


def test_initial_values_depend_on_the_seed_and_do_not_change_pythons_generator():
    model = recipe.loads(tiny.IMAGES).model

    def values(seed):
        return trainable(build_model(model, (5, 5, 2), 1.0, seed=seed))

    random.seed(7)
    state = random.getstate()
    assert tiny.same(values(1), values(1))
    assert not tiny.same(values(1), values(2))
    assert random.getstate() == state


def test_initial_values_are_those_of_layers_created_and_called_in_order():
    """Initialisers draw their seeds when they are created or built: another order would give other values."""

    def head():
        return keras.layers.Dense(9, kernel_initializer=keras.initializers.VarianceScaling(1 / 3, "fan_in", "uniform"))

    state = random.getstate()
    try:
        random.seed(3)
        value = inputs = keras.Input((5, 5, 2))
        layers = keras.layers
        stem = (lambda: PaddedConv2D(8), Scaler, Norm, layers.ReLU)
        for make in (*stem, lambda: PreActivationBlock(12, stride=2), layers.GlobalAveragePooling2D, head):
            value = make()(value)
    finally:
        random.setstate(state)
    expected = keras.Model(inputs, value).trainable_variables
    actual = build_model(recipe.loads(tiny.IMAGES).model, (5, 5, 2), 1.0, classes=9, seed=3).trainable_variables
    for mine, one in zip(actual, expected, strict=True):
        assert mine.numpy().tobytes() == one.numpy().tobytes(), mine.path


def test_keras_error_becomes_one_sentence_with_the_layers_path():
    got = recipe.loads(tiny.DENSE)
    # The recipe's rules refuse this before a model is built; layers of plug-ins have no such rules.
    layers = (
        LayerSpec(kind="MaxPooling2D", args={"pool_size": 9}, name="pool", unit="0", path=("model", "layers", 0)),
    )
    sentence = refusal(build_model, Model(layers=(*layers, *got.model.layers)), (5, 5, 2), 1.0)
    assert sentence == (
        "model.layers[0]: MaxPooling2D cannot be built here: Computed output size would be zero or negative"
    )
    sentence = refusal(build_model, Model(layers=got.model.layers[:1]), (5, 5, 2), 1.0)
    assert (
        "must end in logits of the shape (None, 10), None for the batch and positions. Received: (None, 2)" in sentence
    )


@pytest.mark.parametrize(
    "error_text, sentence",
    [
        (
            "Exception encountered when calling A.call().\n\n\x1b[1mToo small. Received: 3\x1b[0m\n\nArguments",
            "Too small",
        ),
        ("one line", "one line"),
        ("", "ValueError"),
        ("x" * 999, "x" * 300),
    ],
)
def test_the_first_sentence_of_an_exception(error_text, sentence):
    assert first_sentence(ValueError(error_text)) == sentence


@pytest.mark.parametrize("base", ["IMAGES", "TEXT"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_every_variable_and_output_has_the_float_type_of_the_recipe(base, dtype):
    shape = TOKENS if base == "TEXT" else (5, 5, 2)
    model = build_model(recipe.loads(getattr(tiny, base)).model, shape, 0.5, 0.5, tiny.WORDS, dtype)
    floats = [v for v in model.variables if not v.path.endswith("seed_generator_state")]
    assert {v.dtype for v in floats} == {dtype}
    computing = [layer for layer in all_layers(model) if not isinstance(layer, keras.layers.InputLayer)]
    assert {layer.compute_dtype for layer in computing} == {dtype}
    inputs = np.zeros((2, 4), np.int32) if base == "TEXT" else np.zeros((2, 5, 5, 2), dtype)
    assert keras.backend.standardize_dtype(model(inputs).dtype) == dtype


@pytest.mark.parametrize("base", ["IMAGES", "TEXT"])
def test_model_is_an_ordinary_keras_model(base, tmp_path):
    shape = TOKENS if base == "TEXT" else (5, 5, 2)
    model = build_model(recipe.loads(getattr(tiny, base)).model, shape, 0.5, 0.5, tiny.WORDS)
    rng = np.random.default_rng(0)
    inputs = rng.integers(0, tiny.WORDS, (3, 4)) if base == "TEXT" else rng.random((3, 5, 5, 2))
    symbolic = model.compute_output_shape(inputs.shape)
    outputs = model(inputs)
    assert tuple(symbolic) == tuple(outputs.shape) == (*inputs.shape[:1], *((4,) if base == "TEXT" else ()), tiny.WORDS)
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    assert again(inputs).numpy().tobytes() == outputs.numpy().tobytes()
    assert [v.path for v in again.trainable_variables] == [v.path for v in model.trainable_variables]


def test_the_table_of_layers_agrees_with_keras():
    for name, options in layer_table.KERAS_LAYERS.items():
        parameters = inspect.signature(getattr(keras.layers, name).__init__).parameters
        required = {key for key, value in parameters.items() if value.default is value.empty} - {"self", "kwargs"}
        assert required == {option.name for option in options.values() if option.required}, name
        for option in options.values():
            default = parameters[option.name].default
            # The edges of a cropping may differ by side in Keras.
            assert option.default == (default[0] if name == "Cropping2D" else default), (name, option.name)
    for name in layer_table.ACTIVATIONS:
        assert callable(keras.activations.get(name))
    for name in set(layer_table.INITIALIZERS) - {"fan_in_uniform"}:
        assert callable(keras.initializers.get(name))
