"""Parts of training that a Keras model brings: a round of one client and one step equals a step of Keras."""

import keras
import numpy as np
import pytest
import tensorflow as tf
import tiny
from refusals import refusal

import hetero_tf
from hetero_tf.data import from_arrays, from_tf_data
from hetero_tf.run.learning_process import learning_process

CLASSES = 3
RNG = np.random.default_rng(0)
X = RNG.normal(size=(20, 4)).astype(np.float32)
Y = np.arange(20) % CLASSES
RECIPE = tiny.ONE_CLIENT | {"name": "keras", "data": "synthetic", "input": "table", "client": {"batch_size": len(X)}}
CROSS_ENTROPY = keras.losses.SparseCategoricalCrossentropy(from_logits=True)


class Adding(keras.layers.Layer):
    def call(self, inputs):
        self.add_loss(keras.ops.mean(inputs**2))
        return inputs


def dense(width, classes, last=None, layer=None, **options):
    """A model of two Dense layers; the first one has these options."""
    inputs = keras.Input(X.shape[1:])
    hidden = keras.layers.Dense(round(8 * width), "relu", **options)(inputs)
    return keras.Model(inputs, keras.layers.Dense(classes, last)(layer(hidden) if layer else hidden))


def process_of(model, recipe=RECIPE, dataset=None, **arguments):
    dataset = from_arrays(X, Y, X, Y) if dataset is None else dataset
    return learning_process(recipe, dataset=dataset, parallel=1, model=model, **arguments)


def check_step(process, loss, y=Y, weights=None):
    """Compare the values and the loss after a round with those of Keras."""
    state = process.initialize()
    network, optimizer = process.network(state), keras.optimizers.SGD(0.1)
    mean, std = process.dataset.feature_statistics
    network.compile(optimizer, loss)
    expected_loss = network.train_on_batch((X - mean) / std, y, weights)
    state, row = process.next(state)
    assert row["loss"] == pytest.approx(float(expected_loss), rel=1e-5)
    for value, expected in zip(state.weights.values(), network.get_weights(), strict=True):
        np.testing.assert_allclose(value, expected, rtol=1e-4, atol=1e-6)


PENALTIES = {
    "kernel": {"kernel_regularizer": "l2"},
    "bias": {"bias_regularizer": "l1"},
    "activity": {"activity_regularizer": "l2"},
    "add_loss": {"layer": Adding()},
}


@pytest.mark.parametrize("options", PENALTIES.values(), ids=PENALTIES)
def test_losses_of_the_model_are_added(options, eager):
    recipe = RECIPE | {"client": {"batch_size": len(X), "loss": "cross_entropy"}}
    check_step(process_of(lambda width, classes: dense(width, classes, **options), recipe), CROSS_ENTROPY)


def compiled(last=None, optimizer="rmsprop", **arguments):
    def build(width, classes):
        model = dense(width, classes, last)
        model.compile(optimizer, **arguments)
        return model

    return build


def mean_of_squares(y_true, y_pred):
    return keras.ops.mean((keras.ops.one_hot(y_true, CLASSES) - y_pred) ** 2, -1)


FOCAL = keras.losses.CategoricalFocalCrossentropy


@pytest.mark.parametrize(
    ("last", "loss", "expected", "y"),
    [
        (None, CROSS_ENTROPY, CROSS_ENTROPY, Y),
        # The program computes losses of recipes from logits.
        (None, "sparse_categorical_crossentropy", CROSS_ENTROPY, Y),
        ("softmax", "sparse_categorical_crossentropy", CROSS_ENTROPY, Y),
        ("softmax", FOCAL(gamma=3.0), FOCAL(gamma=3.0, from_logits=True), np.eye(CLASSES)[Y]),
        (None, FOCAL(from_logits=True), FOCAL(from_logits=True), np.eye(CLASSES)[Y]),
        (None, *[keras.losses.SparseCategoricalCrossentropy(from_logits=True, ignore_class=1)] * 2, Y),
        (None, mean_of_squares, mean_of_squares, Y),
        ("softmax", mean_of_squares, lambda y, z: mean_of_squares(y, keras.ops.softmax(z)), Y),
    ],
)
def test_the_loss_of_a_compiled_model_is_that_of_local_steps(last, loss, expected, y, eager):
    check_step(process_of(compiled(last, loss=loss)), expected, y)


ENDS = {
    "activation": lambda width, classes: dense(width, classes, "softmax"),
    "layer": lambda width, classes: ended(width, classes, keras.layers.Softmax()),
    "activation layer": lambda width, classes: ended(width, classes, keras.layers.Activation("softmax")),
    "operation": lambda width, classes: ended(width, classes, keras.ops.softmax),
    "nested": lambda width, classes: ended(width, classes, keras.Sequential([keras.layers.Softmax()])),
}


def ended(width, classes, end):
    model = dense(width, classes)
    return keras.Model(model.input, end(model.output))


@pytest.mark.parametrize("name", ENDS)
def test_a_model_that_ends_in_a_softmax_trains_on_its_logits(name, eager):
    process, expected = process_of(ENDS[name]), process_of(dense)
    state, expected_state = process.initialize(), expected.initialize()
    state = process.begin(dict(zip(state.weights, expected_state.weights.values(), strict=True)))
    assert process.next(state)[1] == expected.next(expected_state)[1]
    np.testing.assert_array_equal(process.model(state)(X), expected.model(expected_state)(X))


def test_a_binary_model_ends_in_a_sigmoid(eager):
    dataset = from_arrays(X, Y > 0, X, Y > 0)
    loss = keras.losses.BinaryCrossentropy(from_logits=True)
    process = process_of(
        compiled("sigmoid", loss="binary_crossentropy", metrics=["AUC"]), RECIPE | {"task": "binary"}, dataset
    )
    check_step(process, loss, (Y > 0)[:, None].astype(np.float32))
    state = process.initialize()
    metrics, expected = process.evaluate(state)[0], keras.metrics.AUC()
    expected.update_state(Y > 0, keras.ops.sigmoid(process.model(state)(X))[:, 0])
    assert metrics["global_AUC"] == pytest.approx(float(expected.result()), rel=1e-6)


def brier(y_true, y_pred):
    return keras.ops.mean((keras.ops.one_hot(y_true, CLASSES) - keras.ops.softmax(y_pred)) ** 2, -1)


def test_metrics_of_keras_and_python_are_measured(eager):
    compiled_metrics = [
        "accuracy",
        keras.metrics.TopKCategoricalAccuracy(2, name="top"),
        keras.metrics.F1Score(name="f1"),
    ]
    model = compiled("softmax", metrics=compiled_metrics)
    metrics = [keras.metrics.AUC(name="auc"), brier, "macro_f1", keras.metrics.SparseCategoricalCrossentropy(name="ce")]
    process = process_of(model, metrics=metrics)
    state = process.initialize()
    measured, logits = process.evaluate(state)[0], process.model(state)(X)
    one_hot, probabilities = np.eye(CLASSES, dtype=np.float32)[Y], keras.ops.softmax(logits)
    assert measured["global_ce"] == pytest.approx(measured["global_loss"], rel=1e-5)
    assert measured["global_macro_f1"] >= 0
    for name, metric in {"top": compiled_metrics[1], "f1": compiled_metrics[2], "auc": metrics[0]}.items():
        metric.reset_state()
        metric.update_state(one_hot, probabilities)
        assert measured[f"global_{name}"] == pytest.approx(float(np.mean(metric.result())), rel=1e-5)
    # A function gets the outputs of the user's model.
    assert measured["global_brier"] == pytest.approx(float(np.mean(brier(Y, probabilities))), rel=1e-5)


@pytest.mark.parametrize(
    ("optimizer", "expected"),
    [
        ("rmsprop", {"name": "sgd", "learning_rate": 0.1, "momentum": 0.9}),
        ("adam", {"name": "adam", "learning_rate": 0.1, "beta1": 0.9, "epsilon": 1e-7, "clip_norm": 1.0}),
        (keras.optimizers.SGD(0.1, momentum=0.5, nesterov=True), {"name": "sgd", "momentum": 0.5, "nesterov": True}),
        (keras.optimizers.SGD(), {"name": "sgd", "momentum": 0.0, "weight_decay": 0.0}),
        (keras.optimizers.Adam(weight_decay=0.1, global_clipnorm=2.0), {"name": "adamw", "weight_decay": 0.1, "clip_norm": 2}),
    ],
)  # fmt: skip
def test_the_optimizer_of_a_compiled_model_is_that_of_the_recipe(optimizer, expected):
    recipe = process_of(compiled(optimizer=optimizer), RECIPE | {"optimizer": {"learning_rate": 0.1}}).recipe.optimizer
    actual = {"name": recipe.method.name, **vars(recipe), **recipe.method.options}
    assert {key: actual[key] for key in expected} == expected


SGD = {"recipe": RECIPE | {"optimizer": {"learning_rate": 0.1}}}
TWO_LOSSES = {"loss": CROSS_ENTROPY, "recipe": RECIPE | {"client": {"batch_size": 5, "loss": "softmax_twice"}}}
OTHER_OPTIMIZER = "compile(): the optimizer must be SGD, Adam or AdamW with options that recipes have; leave it out,"
SAME_OPTIMIZER = "compile() and the recipe must have the same optimizer: set `optimizer: {name: adam, learning_rate: "
RAISING = "the loss or metric <lambda> must accept the targets and outputs of you"


@pytest.mark.parametrize(
    ("model", "arguments", "sentence"),
    [
        (compiled(optimizer="lion"), SGD, OTHER_OPTIMIZER),
        (compiled(optimizer=keras.optimizers.Adam(amsgrad=True)), SGD, OTHER_OPTIMIZER),
        (compiled(optimizer=keras.optimizers.SGD(keras.optimizers.schedules.CosineDecay(0.1, 9))), SGD, OTHER_OPTIMIZER),
        (compiled(optimizer=keras.optimizers.Adam(0.003)), SGD, f"{SAME_OPTIMIZER}0.003, clip_norm: 1.0"),
        (compiled(optimizer="adam"), {}, f"{SAME_OPTIMIZER}0.1"),
        (compiled(loss="mse", loss_weights=[2.0]), {}, "compile(): leave out loss_weights, since a round has one out"),
        (compiled(weighted_metrics=["mae"]), {}, "compile(): leave out weighted_metrics, since a round has one outpu"),
        (compiled(loss="mse"), {"loss": brier}, "compile(): leave out loss, since `loss` is also an argument"),
        (dense, {"loss": keras.losses.Huber(reduction="sum")}, "a `loss` must be a mean over the examples of a batch"),
        (dense, {"loss": ["mse", "mae"]}, "`loss` must be one loss, since a model has one output"),
        (dense, {"loss": "no_such"}, "a loss must be a function (y_true, y_pred), or an object or a name of Keras"),
        (dense, {"loss": "binary_crossentropy"}, "`loss` must be one of the task classification: set `task: binary or"),
        (dense, {"loss": "mse"}, "`loss` must be one of the task classification: set `task: regression`"),
        (dense, TWO_LOSSES, "`loss` and client.loss of the recipe must be the same; leave out one. Received: s"),
        (dense, {"loss": lambda y, z: z @ y}, RAISING),
        (dense, {"metrics": [lambda y, z: z @ y]}, RAISING),
        (dense, {"metrics": [brier, brier]}, "the metrics must have different names: give it another one. Received: b"),
        (dense, {"metrics": ["no_such"]}, "a metric must be a function (y_true, y_pred), or an object or a name of K"),
    ],
)  # fmt: skip
def test_parts_without_a_counterpart_are_refused_by_name(model, arguments, sentence):
    assert refusal(process_of, model, **arguments).startswith(sentence)


def test_examples_have_weights_in_local_steps(eager):
    weights = np.arange(len(X), dtype=np.float32)
    train = tf.data.Dataset.from_tensor_slices((X, Y, weights))
    dataset = from_tf_data(train, tf.data.Dataset.from_tensor_slices((X, Y, np.ones_like(weights))))
    assert dataset.sha256 != from_arrays(X, Y, X, Y).sha256
    np.testing.assert_array_equal(dataset.train.select(np.arange(3)).weights, weights[:3])
    check_step(process_of(compiled(loss=CROSS_ENTROPY), dataset=dataset), CROSS_ENTROPY, Y, weights)
    assert refusal(from_tf_data, train, train).startswith("tf.data, test: the weights must be 1, since metrics count")
    wrong = refusal(from_arrays, X, Y, X, Y, train_weights=-weights)
    assert wrong == "arrays: train_weights must be numbers [20] from 0, one for each example. Received: float32 (20,)"


def test_the_label_of_a_dictionary_is_one_of_its_values():
    expected = from_arrays(X, Y, X, Y, source="tf.data")
    for names in ("xy", ("rows", "label")):
        elements = tf.data.Dataset.from_tensor_slices(dict(zip(names, (X, Y))))
        assert from_tf_data(elements, elements).sha256 == expected.sha256
    several = tf.data.Dataset.from_tensor_slices({"left": X, "right": -X, "target": Y})
    assert [field.name for field in from_tf_data(several, several).fields] == ["left", "right"]
    others = tf.data.Dataset.from_tensor_slices({"x": X, "kind": Y})
    assert 'must yield pairs (x, y); use map(lambda e: (e["image"], e["kind"]))' in refusal(
        from_tf_data, others, others
    )


def test_targets_with_fractions_are_numbers_which_a_loss_may_split_by_task(eager):
    recipe, numbers = RECIPE | {"task": {"name": "regression", "scale": "none"}}, X[:, :2] * 2
    check_step(process_of(dense, recipe, from_arrays(X, numbers, X, numbers)), "mse", numbers)
    targets = np.concatenate([np.eye(CLASSES)[Y], X[:, :1]], 1).astype(np.float32)
    dataset = from_arrays(X, targets, X, targets, targets="numbers")
    check_step(process_of(dense, recipe, dataset, loss=loss_of_both), loss_of_both, targets)


def loss_of_both(y_true, y_pred):
    number = keras.losses.mean_squared_error(y_true[:, CLASSES:], y_pred[:, CLASSES:])
    return number + keras.losses.categorical_crossentropy(y_true[:, :CLASSES], y_pred[:, :CLASSES], from_logits=True)


def test_a_run_folder_needs_a_compiled_model(tmp_path):
    message = refusal(hetero_tf.train, RECIPE, run_dir=tmp_path / "run", model=dense, loss=brier)
    assert message.endswith(" of a compiled model, and no callbacks: give loss to compile()")
    assert refusal(hetero_tf.train, RECIPE, run_dir=tmp_path, callbacks=[]).endswith(": train without run_dir")


def test_a_ready_compiled_model_is_narrowed_and_trained_by_its_loss_on_batches_of_two_sizes():
    ready = keras.Sequential([keras.Input((4,)), keras.layers.Dense(8, "relu"), keras.layers.Dense(CLASSES, "softmax")])
    ready.compile("adam", loss=brier)
    levels = {"levels": {"widths": {"a": 1, "b": 0.5}, "mix": "a-b"}, "optimizer": {"learning_rate": 0.1}}
    process = process_of(ready, RECIPE | levels | {"client": {"batch_size": 12}, "precision": "mixed_bfloat16"})
    state, row = process.next(process.initialize())
    assert process.recipe.optimizer.method.name == "adam" and np.isfinite(row["loss"])
    assert process.functions.loss.function is brier and process.network(state, "b").layers[1].units == 4
    assert ready.layers[-1].activation is keras.activations.softmax and ready.layers[0].compute_dtype == "float32"
    assert process.family.training_model("a", CLASSES).layers[1].compute_dtype == "bfloat16"


def test_layers_of_a_recipe_train_by_a_python_loss_with_all_clients_of_a_block(eager):
    def loss(y_true, y_pred):
        return keras.losses.sparse_categorical_crossentropy(y_true, y_pred, from_logits=True)

    text = tiny.DENSE.replace("epochs: 1", "loss: cross_entropy, epochs: 1") + "engine: stacked\n"
    expected, process = (learning_process(text, *tiny.images(), parallel=1, loss=function) for function in (None, loss))
    assert max(process.engine_report()["clients_at_once"].values()) > 1 and process.functions.loss is not None
    state, row = process.next(process.initialize())
    expected_state, expected_row = expected.next(expected.initialize())
    assert row.pop("levels") == expected_row.pop("levels") and row == pytest.approx(expected_row, rel=1e-5)
    for value, other in zip(state.weights.values(), expected_state.weights.values()):
        np.testing.assert_allclose(value, other, rtol=1e-4, atol=1e-6)


def test_a_function_may_take_the_name_of_the_level():
    levels = {"widths": {"a": 1, "b": 0.5}, "mix": "a-b"}
    process = process_of(lambda level: dense({"a": 1, "b": 0.25}[level], 7), RECIPE | {"levels": levels})
    state = process.initialize()
    assert [process.network(state, level).layers[1].units for level in "ab"] == [8, 2]
    assert process.network(state, "b").output_shape == (None, CLASSES)
    levels["widths"]["b"] = 1
    sentence = "a `model` of the level needs levels of different widths. Received: levels.widths={'a': 1.0, 'b': 1.0}"
    assert refusal(process_of, lambda level: dense(1, CLASSES), RECIPE | {"levels": levels}) == sentence
