"""Custom models with several named inputs: trained like Keras, cut, evaluated, and exported with their names."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from refusals import refusal

import hetero_tf
from hetero_tf import export
from hetero_tf.data import from_arrays
from hetero_tf.export.formats import keras as keras_file
from hetero_tf.models.preprocessed import UnpackArrays
from hetero_tf.recipe.model import Width

RECIPE = """
name: named_inputs
data: {name: synthetic}
input: arrays
partition: {name: iid, clients: 4}
levels: {widths: {a: 1, b: 0.5}, mix: a-b}
round: {clients: 4}
client: {epochs: 2, batch_size: 10}
optimizer: {name: sgd, learning_rate: 0.2, weight_decay: 0, clip_norm: null}
rounds: 4
"""
POOLED = (
    RECIPE.replace("clients: 4", "clients: 1")
    .replace("a-b", "a")
    .replace("epochs: 2, batch_size: 10", "epochs: 1, batch_size: 160")
)


def draw(count):
    """Examples whose label depends on all three inputs."""
    rng = np.random.default_rng(count)
    x = {
        "picture": rng.integers(0, 256, (count, 4, 4, 1)).astype(np.uint8),
        "table": rng.normal(5, 3, (count, 3)).astype(np.float32),
        "word": rng.integers(0, 6, (count, 2)).astype(np.int32),
    }
    x["picture"] = x["picture"] // 2 + rng.choice([0, 127], (count, 1, 1, 1)).astype(np.uint8)
    bright, large, late = x["picture"].mean((1, 2, 3)) > 127, x["table"][:, 0] > 5, x["word"].sum(1) > 5
    return x, bright.astype(int) + large + late


def branches(x, width):
    """The hidden values of the three inputs."""
    units = Width(16).at(width)
    picture = keras.layers.GlobalAveragePooling2D()(keras.layers.Conv2D(units, 3, activation="relu")(x["picture"]))
    word = keras.layers.GlobalAveragePooling1D()(keras.layers.Embedding(6, units)(x["word"]))
    return keras.layers.Add()([picture, keras.layers.Dense(units, activation="relu")(x["table"]), word])


def functional(width, classes):
    x = {
        "table": keras.Input((3,), name="table"),
        "word": keras.Input((2,), dtype="int32", name="word"),
        "picture": keras.Input((4, 4, 1), name="picture"),
    }
    norm = keras.layers.BatchNormalization()(branches(x, width))
    return hetero_tf.static_norms(keras.Model(x, keras.layers.Dense(classes)(keras.layers.ReLU()(norm))))


def listed(width, classes):
    """The same inputs in a list, and no norm."""
    x = [
        keras.Input((2,), dtype="int32", name="word"),
        keras.Input((4, 4, 1), name="picture"),
        keras.Input((3,), name="table"),
    ]
    return keras.Model(x, keras.layers.Dense(classes)(branches({tensor.name: tensor for tensor in x}, width)))


class Subclassed(keras.Model):
    """Reads two of the inputs."""

    def __init__(self, width, classes):
        super().__init__()
        self.hidden, self.logits = keras.layers.Dense(Width(16).at(width)), keras.layers.Dense(classes)

    def call(self, inputs):
        pixels = keras.ops.mean(inputs["picture"], (1, 2))
        return self.logits(keras.ops.relu(self.hidden(keras.ops.concatenate([inputs["table"], pixels], 1))))


DATA = from_arrays(*draw(160), *draw(80), class_names=["none", "one", "two", "all"])


def trained(model, text=RECIPE, rounds=4):
    process = hetero_tf.learning_process(text, dataset=DATA, model=model, parallel=1)
    state, rows = process.initialize(), []
    for _ in range(rounds):
        state, row = process.next(state)
        rows.append(row)
    return process, state, rows


@pytest.fixture(scope="module")
def run():
    return trained(functional)


@pytest.mark.long
def test_a_model_with_named_inputs_learns_is_cut_and_predicts_from_raw_arrays(run, eager):
    process, state, rows = run
    assert rows[-1]["loss"] < rows[0]["loss"]
    x, y = draw(80)
    metrics, _ = process.evaluate(state, "all")
    for level, units in (("a", 16), ("b", 8)):
        model = process.model(state, level)
        assert next(v for v in model.weights if v.path == "conv2d/kernel").shape == (3, 3, 1, units)
        logits = model.predict(x, verbose=0)
        assert 100 * np.mean(logits.argmax(1) == y) == pytest.approx(metrics[f"level_accuracy_{level}"])


@pytest.mark.long
def test_one_step_equals_keras_on_the_pooled_data(eager):
    process, state, rows = trained(listed, POOLED + "\nseed: 3", rounds=1)
    start, model = process.initialize(), listed(1.0, 4)
    for variable, value in zip(model.weights, process.network(start).weights):
        variable.assign(value)
    model.compile(keras.optimizers.SGD(0.2), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    x, y = draw(160)
    x["picture"], x["table"] = x["picture"] / 255, (x["table"] - x["table"].mean(0)) / x["table"].std(0)
    history = model.fit(x, y, batch_size=160, epochs=1, verbose=0)
    assert rows[0]["loss"] == pytest.approx(history.history["loss"][0], rel=1e-5)
    for variable, value in zip(model.weights, process.network(state).weights):
        np.testing.assert_allclose(variable, value, rtol=1e-4, atol=1e-6)


@pytest.mark.long
def test_a_subclassed_model_receives_arrays_by_name():
    process, state, rows = trained(lambda width, classes: Subclassed(width, classes))
    assert rows[-1]["loss"] < rows[0]["loss"]
    assert process.model(state, "b")(draw(3)[0]).shape == (3, 4)


@pytest.mark.long
def test_exports_have_an_input_for_each_array(run, tmp_path):
    process, state, _ = run
    folder, about = export.export(process, state, process.statistics(state), tmp_path, {}, others=("keras",))
    picture = about["input"]["fields"][0]
    assert (picture["input"], picture["shape"], picture["dtype"]) == ("picture", [4, 4, 1], "uint8")
    x, y = draw(80)
    serve = tf.saved_model.load(str(folder)).signatures["serving_default"]
    classes = serve(**{name: tf.constant(values) for name, values in x.items()})["class"]
    assert about["measured"]["accuracy"] == pytest.approx(100 * np.mean(classes == y))
    invalid = {name: values[:3].copy() for name, values in x.items()}
    invalid["word"][0, 1], invalid["table"][1, 0] = 6, np.nan
    outputs = serve(**{name: tf.constant(values) for name, values in invalid.items()})
    assert outputs["class"].numpy().tolist() == [-1, -1, classes[2]]
    assert outputs["class_name"].numpy().tolist()[:2] == [b"", b""]
    np.testing.assert_array_equal(tf.argmax(keras_file.load(folder / "model.keras")(x), 1), classes)
    card = (folder / "MODEL_CARD.md").read_text()
    assert "`word` int32 [2]" in card and '"table": [0.0, 0.0, 0.0], "word": [0, 0]}]}' in card


def test_ids_are_rounded_after_the_normalisation():
    unpack = UnpackArrays([("word", (2,), "int32"), ("row", (1,), "float32")])
    x = unpack(tf.constant([[38.999996, 7.000001, 0.7]]))
    assert x["word"].numpy().tolist() == [[39, 7]] and x["row"].numpy().tolist() == [[np.float32(0.7)]]


def test_models_that_do_not_fit_the_arrays_are_rejected():
    def without_table(width, classes):
        x = keras.Input((4, 4, 1), name="picture")
        return keras.Model({"picture": x}, keras.layers.Dense(classes)(keras.layers.Flatten()(x)))

    message = refusal(trained, without_table)
    assert message.startswith("`model` must have one input for each array of the data, of the same name and shape: ")
    assert message.endswith("word (2,). Received: picture (4, 4, 1)")
    message = refusal(trained, functional, RECIPE.replace("arrays", "table"))
    assert "the input table needs rows of a table, but the data are several arrays, arrays" in message
