"""Keras models that read strings: the layers that consume them run on the data once, and exports take strings again."""

import keras
import numpy as np
import pytest
import tensorflow as tf
import tiny
from refusals import refusal

import hetero_tf
from hetero_tf import export
from hetero_tf.data import from_arrays
from hetero_tf.export.formats import keras as keras_file
from hetero_tf.run.learning_process import learning_process

WORDS = ["red", "green", "blue", "old", "new", "car", "boat"]
RNG = np.random.default_rng(0)
TEXTS = np.array([" ".join(RNG.choice(WORDS, 3)) for _ in range(24)])
Y = np.array([text.count("red") > 0 for text in TEXTS]).astype(int)
X = {"text": TEXTS, "site": RNG.choice(["land", "sea"], (24, 1)), "row": RNG.normal(size=(24, 2))}
DATA = from_arrays(X, Y, X, Y)
RECIPE = tiny.TWO_CLIENTS | {"name": "strings", "input": "arrays", "client": {"batch_size": 6}}


def text_layer(**options):
    layer = keras.layers.TextVectorization(**({"output_sequence_length": 4} | options))
    layer.adapt(WORDS)
    return layer


VECTORIZE, LOOK_UP = text_layer(), keras.layers.StringLookup(vocabulary=["land", "sea"])


def build(width, classes):
    """A model of three inputs, two of which are strings."""
    text, site = keras.Input((), dtype="string", name="text"), keras.Input((1,), dtype="string", name="site")
    row, units = keras.Input((2,), name="row"), round(8 * width)
    hidden = [
        keras.layers.GlobalAveragePooling1D()(keras.layers.Embedding(9, units)(VECTORIZE(text))),
        keras.layers.Flatten()(keras.layers.Embedding(3, units)(LOOK_UP(site))),
        keras.layers.Dense(units)(row),
    ]
    logits = keras.layers.Dense(classes)(keras.layers.ReLU()(keras.layers.Add()(hidden)))
    return keras.Model([text, site, row], logits)


def as_tensors(x):
    return {
        name: tf.constant(values, tf.string if values.dtype.kind == "U" else tf.float32) for name, values in x.items()
    }


@pytest.mark.parametrize("model", [build, build(1.0, 2)], ids=["function", "ready"])
def test_strings_train_a_model_as_the_numbers_that_its_layers_give(model, eager):
    process = learning_process(RECIPE, dataset=DATA, model=model, parallel=1)
    numbers = X | {"text": VECTORIZE(TEXTS).numpy(), "site": LOOK_UP(X["site"]).numpy()}
    expected = learning_process(RECIPE, dataset=from_arrays(numbers, Y, numbers, Y), model=model, parallel=1)
    np.testing.assert_array_equal(process.dataset.train.x, expected.dataset.train.x)
    assert [field.codec.high for field in process.dataset.fields] == [pytest.approx(X["row"].max()), 2, 8]
    (state, row), (_, expected_row) = (each.next(each.initialize()) for each in (process, expected))
    assert row == expected_row and np.isfinite(row["loss"])
    normalised, reference = (X["row"] - X["row"].mean(0)) / X["row"].std(0), build(0.5, 2)
    reference.set_weights(process.network(state, "b").get_weights())
    outputs = reference([tf.constant(TEXTS), tf.constant(X["site"]), tf.constant(normalised, tf.float32)])
    np.testing.assert_allclose(process.model(state, "b")(as_tensors(X)), outputs, rtol=1e-4, atol=1e-5)


@pytest.mark.long
def test_exports_of_a_resumed_run_read_strings(tmp_path, eager):
    single = RECIPE | {"levels": {"widths": {"a": 1}, "mix": "a"}}
    for rounds in (1, 2):
        options = {"model": lambda *sizes: build(*sizes), "dataset": DATA, "quiet": True}
        trained = hetero_tf.train(single, rounds, tmp_path / "run", **options)
    process, state = trained.process, trained.state
    folder, about = export.export(process, state, {}, tmp_path / "exports", {}, others=("keras",))
    assert about["formats"]["keras"]["compared_test_examples"] == 24 and about["measured"]["accuracy"] >= 0
    unseen = as_tensors(
        {"text": np.array(["new red bus", ""]), "site": np.array([["air"], ["sea"]]), "row": np.ones((2, 2))}
    )
    for x in (as_tensors(X), unseen):
        expected, serve = process.model(state)(x), tf.saved_model.load(folder).signatures["serving_default"]
        np.testing.assert_allclose(serve(**x)["logits"], expected, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(keras_file.load(folder)(x), expected, rtol=1e-5, atol=1e-5)
    assert '"text": "text"' in (folder / "MODEL_CARD.md").read_text()


def of_text(layers, outputs=lambda value: value):
    """A builder of a model of one text."""

    def model(width, classes):
        text = keras.Input((), dtype="string", name="text")
        hidden = keras.layers.Flatten()(keras.layers.Embedding(9, 4)(layers(text)))
        return keras.Model(text, outputs(keras.layers.Dense(classes)(hidden)))

    return model


class Lower(keras.layers.Layer):
    def call(self, inputs):
        return tf.strings.lower(inputs)

    def compute_output_spec(self, inputs):
        return keras.KerasTensor(inputs.shape, "string")


NESTED = keras.Sequential([keras.Input((), dtype="string"), VECTORIZE])


@pytest.mark.parametrize(
    ("model", "received"),
    [
        (of_text(lambda text: VECTORIZE(Lower(name="lower")(text))), "Received: lower, Lower"),
        (of_text(NESTED), ", Sequential"),
    ],
)
def test_models_that_cannot_be_split_are_refused(model, received):
    data = from_arrays({"text": TEXTS}, Y, {"text": TEXTS}, Y)
    message = refusal(learning_process, RECIPE, dataset=data, model=model)
    assert message.startswith(
        "only TextVectorization, StringLookup, Hashing may read the strings of `model`, each an input"
    )
    assert received in message


def test_texts_need_a_model_that_reads_them():
    data = from_arrays({"words": TEXTS}, Y, {"words": TEXTS}, Y)
    for model, inputs in (
        (of_text(VECTORIZE), "['text']"),
        (lambda width: keras.Sequential([keras.layers.Dense(2)]), "[]"),
    ):
        message = refusal(learning_process, RECIPE, dataset=data, model=model)
        assert message.endswith(f"name='words'), for each array of texts. Received: inputs {inputs}, arrays ['words']")
