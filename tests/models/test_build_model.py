"""Models of the recipes: sizes by hand, initial values, and the interface of a Keras model."""

import inspect
import random

import keras
import numpy as np
import pytest
import tiny
from refusals import refusal

from hetero_tf import recipe
from hetero_tf.base import constraints
from hetero_tf.models.build_model import build_model, first_sentence
from hetero_tf.recipe import geometry
from hetero_tf.recipe.model import LayerSpec, Model


def trainable(model):
    return {variable.path: np.asarray(variable) for variable in model.trainable_variables}


def test_initial_values_depend_on_the_seed_and_do_not_change_pythons_generator():
    model = recipe.loads(tiny.IMAGES).model

    def values(seed):
        return trainable(build_model(model, (5, 5, 2), 1.0, seed=seed))

    random.seed(7)
    state = random.getstate()
    assert tiny.same(values(1), values(1))
    assert not tiny.same(values(1), values(2))
    assert random.getstate() == state


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
        ("Exception encountered when calling A.call().\n\n\x1b[1mToo small. Received: 3\x1b[0m\n\nArguments", "Too small"),
        ("one line", "one line"),
        ("", "ValueError"),
        ("x" * 999, "x" * 300),
    ],
)  # fmt: skip
def test_the_first_sentence_of_an_exception(error_text, sentence):
    assert first_sentence(ValueError(error_text)) == sentence


def test_the_table_of_layers_agrees_with_keras():
    for name in geometry.KERAS_LAYERS:
        options = geometry.layer_options(name)
        parameters = inspect.signature(getattr(keras.layers, name).__init__).parameters
        required = {key for key, value in parameters.items() if value.default is value.empty} - {"self", "kwargs"}
        assert required == {option.name for option in options.values() if option.required}, name
        for option in options.values():
            default = parameters[option.name].default
            # The edges of a cropping may differ by side in Keras.
            assert option.default == (default[0] if name == "Cropping2D" else default), (name, option.name)
    for name in constraints.ACTIVATIONS:
        assert callable(keras.activations.get(name))
    for name in set(constraints.INITIALIZERS) - {"fan_in_uniform"}:
        assert callable(keras.initializers.get(name))
