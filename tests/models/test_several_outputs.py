"""Keras models with several outputs: trained like Keras, cut, resumed, and exported with an output for each."""

import keras
import numpy as np
import pytest
import tensorflow as tf
import tiny
from refusals import refusal

import hetero_tf
from hetero_tf import export
from hetero_tf.data import from_arrays, from_tf_data
from hetero_tf.export import predictions
from hetero_tf.export.formats import keras as keras_file
from hetero_tf.export.serve import loading
from hetero_tf.run import notes
from hetero_tf.run.data import load_description
from hetero_tf.run.learning_process import learning_process

RNG = np.random.default_rng(0)
X = RNG.normal(size=(24, 4)).astype(np.float32)
Y = {"kind": np.arange(24) % 3, "size": X[:, 0] * 2 + 0.5, "grid": RNG.normal(size=(24, 2, 2))}
DATA = from_arrays(X, Y, X, Y)
RECIPE = tiny.TWO_CLIENTS | {
    "name": "outputs",
    "input": {"name": "table", "normalise": "none"},
    "task": "multi_task",
    "client": {"batch_size": 12},
}
SINGLE = RECIPE | tiny.ONE_CLIENT | {"client": {"batch_size": 24}, "rounds": 2}
LOSSES = {"kind": "sparse_categorical_crossentropy", "size": "mse", "grid": keras.losses.Huber()}
WEIGHTS = {"kind": 0.5, "size": 2.0, "grid": 1.0}
METRICS = {"kind": ["accuracy"], "size": ["mae"]}


def layers(width, classes):
    """A model of three outputs, in another order than their names."""
    inputs = keras.Input((4,))
    hidden = keras.layers.Dense(round(8 * width), "relu", kernel_regularizer="l2")(inputs)
    grid = keras.layers.Reshape((2, 2), name="grid")(keras.layers.Dense(4)(hidden))
    kind = keras.layers.Dense(classes, "softmax", name="kind")(hidden)
    return keras.Model(inputs, [kind, keras.layers.Dense(1, name="size")(hidden), grid])


def build(width, classes, **arguments):
    model = layers(width, classes)
    model.compile(
        keras.optimizers.SGD(0.1), **({"loss": LOSSES, "loss_weights": WEIGHTS, "metrics": METRICS} | arguments)
    )
    return model


def process_of(recipe=RECIPE, dataset=DATA, model=build, **arguments):
    return learning_process(recipe, dataset=dataset, parallel=1, model=model, **arguments)


def as_dictionary(width, classes):
    model = layers(width, classes)
    model = keras.Model(model.input, dict(zip(model.output_names, model.outputs)))
    model.compile("sgd", loss=LOSSES, loss_weights=WEIGHTS)
    return model


def in_lists(width, classes):
    return build(
        width, classes, loss=[*LOSSES.values()], loss_weights=[*WEIGHTS.values()], metrics=[["accuracy"], ["mae"], None]
    )


@pytest.mark.parametrize(
    ("model", "targets"),
    [
        (build, Y),
        pytest.param(as_dictionary, Y, marks=pytest.mark.long),
        pytest.param(in_lists, tuple(Y.values()), marks=pytest.mark.long),
        pytest.param(layers(1.0, 3), Y, marks=pytest.mark.long),
        pytest.param(lambda width: build(width, 3), Y, marks=pytest.mark.long),
    ],
    ids=["lists", "dictionary", "tuple", "ready", "width"],
)
def test_rounds_of_one_client_equal_steps_of_keras(model, targets, eager):
    is_ready = isinstance(model, keras.Model)
    process = process_of(SINGLE, from_arrays(X, targets, X, targets), model, loss=LOSSES if is_ready else None)
    state, reference = process.initialize(), build(1.0, 3, loss_weights=None if is_ready else WEIGHTS)
    reference.set_weights(process.network(state).get_weights())
    for _ in range(2):
        results = reference.train_on_batch(X, Y, return_dict=True)
        reference.reset_metrics()
        state, row = process.next(state)
        assert row["loss"] == pytest.approx(results["loss"], rel=1e-5)
    for value, expected in zip(state.weights.values(), reference.get_weights(), strict=True):
        np.testing.assert_allclose(value, expected, rtol=1e-4, atol=1e-6)
    outputs = dict(zip(("kind", "size", "grid"), reference.predict(X, verbose=0)))
    for name, values in process.model(state)(X).items():
        np.testing.assert_allclose(values, outputs[name], rtol=1e-4, atol=1e-6)
    measured, expected = process.evaluate(state)[0], reference.evaluate(X, Y, verbose=0, return_dict=True)
    penalty = float(tf.add_n(reference.losses))
    assert measured["global_loss"] == pytest.approx(expected.pop("loss") - penalty, rel=1e-5)
    names = {name for name in expected if f"global_{name}" in measured}
    assert names >= {"kind_loss", "size_loss", "grid_loss"} and (
        is_ready or model is as_dictionary or names == {*expected}
    )
    assert {name: measured[f"global_{name}"] for name in names} == pytest.approx(
        {name: expected[name] for name in names}, rel=1e-5
    )


def test_functions_and_weights_of_examples_reach_each_output(eager):
    def loss(y_true, y_pred):
        return keras.ops.mean(keras.ops.abs(y_true - y_pred), tuple(range(1, len(y_pred.shape))))

    weights, losses = np.arange(24, dtype=np.float32), {"kind": "ce", "size": loss, "grid": loss}
    elements = tf.data.Dataset.from_tensor_slices((X, Y, weights))
    data = from_tf_data(elements, tf.data.Dataset.from_tensor_slices((X, Y)))
    process = process_of(SINGLE, data, lambda width, classes: build(width, classes, loss=losses))
    state, reference = process.initialize(), build(1.0, 3, loss=losses | {"kind": LOSSES["kind"]})
    reference.set_weights(process.network(state).get_weights())
    expected = reference.train_on_batch(X, Y, weights)[0]
    assert process.next(state)[1]["loss"] == pytest.approx(float(expected), rel=1e-5)


@pytest.mark.long
def test_a_resumed_run_equals_an_uninterrupted_one(tmp_path, eager):
    for rounds in (1, 2):
        options = {"model": lambda *sizes: build(*sizes), "dataset": DATA, "quiet": True}
        trained = hetero_tf.train(SINGLE, rounds, tmp_path / "run", **options)
    process, expected = trained.process, hetero_tf.train(trained.process, 2)
    for path, value in expected.state.weights.items():
        np.testing.assert_array_equal(value, trained.state.weights[path])
    assert trained.rows[-1]["global_kind_accuracy"] == expected.rows[-1]["global_kind_accuracy"]
    assert process.selection_metric == "global_loss" and notes.baseline(process) is None
    lines = ["target: grid, float32 [2, 2]", "target: kind, int32 []", "target: size, float32 []"]
    assert process.dataset.describe()[-3:] == lines
    assert load_description(tmp_path / "run" / "data.json").outputs == process.dataset.outputs


def test_levels_of_two_widths_train_together(eager):
    process = process_of()
    state, row = process.next(process.initialize())
    assert row["levels"] == {"a": 1, "b": 1}
    kernels = [process.network(state, level).layers[1].kernel.numpy() for level in "ab"]
    np.testing.assert_array_equal(kernels[0][:, :4], kernels[1])
    assert process.evaluate(state, "all")[0].keys() >= {f"level_kind_accuracy_{level}" for level in "ab"}


@pytest.mark.long
@pytest.mark.parametrize("level", "ab")
def test_exports_of_all_levels_have_an_output_for_each(level, tmp_path, eager):
    process = process_of()
    state = process.initialize()
    expected = process.model(state, level)(X)
    folder, about = export.export(process, state, {}, tmp_path, {}, level, others=("keras",))
    assert about["measured"]["kind_accuracy"] >= 0 and about["formats"]["keras"]["compared_test_examples"] == 24
    serve = tf.saved_model.load(folder).signatures["serve_numbers"]
    for outputs in (serve(features=X), keras_file.load(folder)(X)):
        assert {*outputs} == {*Y}
        for name, values in outputs.items():
            np.testing.assert_allclose(values, expected[name], rtol=1e-5, atol=1e-5)
    assert all(np.isnan(values).all() for values in serve(features=X[:1] * np.nan).values())
    (item,) = predictions.predict(
        predictions.predictor_of_process(process, process.network(state, level)), ["1,2,3,4"], 1, print
    )
    assert len(item.fields["kind"]) == 3 and isinstance(item.fields["size"], float)
    assert {*loading.load_version(level, 1, folder).manifest["signatures"]["serving_default"]["outputs"]} == {*Y}


def with_loss(**arguments):
    return lambda width, classes: build(width, classes, **arguments)


EACH = "compile(): loss must be a dictionary by output, or a list with one for each of kind, size, grid"
ONE = from_arrays(X, Y["kind"], X, Y["kind"])


class Subclassed(keras.Model):
    def call(self, inputs):
        return {"grid": inputs, "kind": inputs, "size": inputs}


@pytest.mark.parametrize(
    ("sentence", "arguments"),
    [
        (
            "the data must have a target for each output of `model`: give `y_train` and `y_test` as dictionaries of their "
            "names, and set `task: multi_task` in the recipe; or give a model with one output. Received: one target and grid "
            "(None, 2, 2), kind (None, 3), size (None, 1)",
            {"recipe": RECIPE | {"task": "classification"}, "dataset": ONE},
        ),
        ("Received: grid, kind, size and one output", {"model": lambda width, classes: keras.Sequential([keras.layers.Dense(classes)])}),
        ("Received: grid, kind, size and a model that is not functional", {"model": lambda width, classes: Subclassed()}),
        ("but the data have a target for each output of a model, arrays; choose multi_task", {"recipe": RECIPE | {"task": "classification"}}),
        (f"{EACH}. Received: loss={{'kind': 'mse'}}", {"model": with_loss(loss={"kind": "mse"}, loss_weights=None)}),
        (f"{EACH}. Received: loss=None", {"model": layers}),
        ("compile(): metrics must be a dictionary by output", {"model": with_loss(metrics=["mae"])}),
        ("a `loss` must be a mean over the examples of a batch: leave out its reduction.", {"model": with_loss(loss=LOSSES | {"grid": keras.losses.Huber(reduction="sum")})}),
        ("a model with several outputs has the losses of compile(): leave out client.loss", {"recipe": RECIPE | {"client": {"batch_size": 12, "loss": "huber"}}}),
        ("compile(): leave out weighted_metrics, since", {"model": with_loss(weighted_metrics=["mae"])}),
    ],
)  # fmt: skip
def test_models_and_data_that_do_not_fit_are_refused(sentence, arguments):
    assert sentence in refusal(process_of, **arguments)


def test_targets_that_cannot_be_packed_are_refused():
    message = "arrays: y_test must have the arrays kind, size, grid. Received: ['kind']"
    assert refusal(from_arrays, X, Y, X, {"kind": Y["kind"]}) == message
    assert "leave them out" in refusal(from_arrays, X, Y, X, Y, classes=3)
