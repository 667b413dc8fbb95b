"""Values that stay on their clients: units, kinds, layers and patterns of their paths."""

import keras
import pytest
import tiny
from refusals import refusal

from hetero_tf.models.personal import select_paths
from hetero_tf.models.requirements import has_embedding
from hetero_tf.recipe import loads
from hetero_tf.recipe.model import Width
from hetero_tf.reports.describe import describe, to_text
from hetero_tf.run.learning_process import learning_process


def personal(*names, text=tiny.IMAGES):
    return tiny.process(text, f"round.personal=[{', '.join(names)}]").state_layout.personal


def build(width, classes):
    inputs = keras.Input((5, 5, 2))
    value = keras.layers.Dense(Width(8).at(width), name="hidden")(keras.layers.Flatten()(inputs))
    value = keras.layers.LayerNormalization(name="scaled")(value)
    return keras.Model(inputs, keras.layers.Dense(classes, name="logits")(value))


@pytest.mark.parametrize(
    "name, expected",
    [
        ("head", lambda path: path.startswith("3_")),
        ("body", lambda path: not path.startswith("3_")),
        ("'3'", lambda path: path.startswith("3_")),
        ("3_0_dense", lambda path: path.startswith("3_")),
        ("biases", lambda path: path.endswith("/bias")),
        ("'*/bias'", lambda path: path.endswith("/bias")),
        ("norms", lambda path: "norm" in path),
        ("1_0_pre_activation_block/norm1", lambda path: path.startswith("1_0_pre_activation_block/norm1/")),
        ("all", lambda path: True),
    ],
)
def test_names_select_values_of_a_recipe(name, expected):
    every = personal("all")
    chosen = personal(name)
    assert chosen == tuple(path for path in every if expected(path)) and chosen


def test_names_select_values_of_a_keras_model(eager):
    text = tiny.DENSE[: tiny.DENSE.index("model:")] + tiny.TWO_LEVELS.replace(
        "clients: 3}", "clients: 3, personal: [PERSONAL]}"
    )
    process = learning_process(text.replace("PERSONAL", "norms, head"), *tiny.images(), parallel=1, model=build)
    assert process.state_layout.personal == ("scaled/gamma", "scaled/beta", "logits/kernel", "logits/bias")
    before = process.initialize()
    after, _ = process.next(before)
    for path, value in after.weights.items():
        assert bool((value == before.weights[path]).numpy().all()) == (path in process.state_layout.personal), path
    table = to_text(describe(process), complete=True)
    assert "logits/kernel (personal)" in table and "hidden/kernel (personal)" not in table
    message = refusal(learning_process, text.replace("PERSONAL", "logit"), *tiny.images(), parallel=1, model=build)
    assert "round.personal[0]: must name values of the model: norms, biases, " in message
    assert "its layers are hidden, scaled, logits. Received: 'logit'" in message


def test_kinds_that_a_model_lacks_are_refused_and_embeddings_are_those_of_words():
    assert "its layers are 0_1_dense, 1_0_dense. " in refusal(personal, "embeddings", text=tiny.DENSE)
    assert "unknown unit or kind 'norm'; did you mean 'norms'?" in refusal(personal, "norm")
    inputs = keras.Input((3,), dtype="int32")
    model = keras.Model(inputs, keras.layers.Dense(4)(keras.layers.Embedding(7, 4, name="words")(inputs)))
    assert has_embedding(model)
    spec = loads(tiny.DENSE, overrides=["model=from_python"]).model
    paths = [variable.path for variable in model.weights]
    assert select_paths("personal", ["embeddings"], spec, model, paths, ["dense/bias"]) == {"words/embeddings"}
