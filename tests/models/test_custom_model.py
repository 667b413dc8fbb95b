"""Custom models: rounds equal to those of a recipe's layers, and one sentence for each refusal."""

import keras
import numpy as np
import pytest
import tiny
from refusals import refusal

import hetero_tf
from hetero_tf import recipe
from hetero_tf.layers.scaler import Scaler
from hetero_tf.layers.static_batch_normalization import StaticBatchNormalization
from hetero_tf.models.build_model import build_model
from hetero_tf.models.custom_model import build_custom_model, static_norms
from hetero_tf.models.requirements import check_behavior, check_structure
from hetero_tf.recipe.model import Width
from hetero_tf.reference import ReferenceRounds
from hetero_tf.reports.describe import describe
from hetero_tf.run.learning_process import learning_process

SHAPE = (5, 5, 2)
FIXED = tiny.COMMON.replace("a-b-c", "a1-c1").replace("dynamic", "fixed")
WITHOUT_MODEL = tiny.DENSE[: tiny.DENSE.index("model:")] + FIXED


def dense(width, classes, scale=1.0):
    """The layers of `tiny.DENSE`."""
    inputs = keras.Input(SHAPE)
    value = keras.layers.GlobalAveragePooling2D()(inputs)
    value = keras.layers.ReLU()(Scaler(scale)(keras.layers.Dense(Width(8).at(width))(value)))
    initializer = keras.initializers.VarianceScaling(1 / 3, "fan_in", "uniform")
    return keras.Model(inputs, keras.layers.Dense(classes, kernel_initializer=initializer)(value))


def residual(width, classes):
    channels = Width(8).at(width)
    inputs = keras.Input(SHAPE)
    value = keras.layers.Conv2D(channels, 3, padding="same")(inputs)
    value = keras.layers.ReLU()(keras.layers.BatchNormalization(epsilon=0.01)(value))
    value = keras.layers.Add()([value, keras.layers.DepthwiseConv2D(3, padding="same")(value)])
    value = keras.layers.Dropout(0.2)(keras.layers.GlobalAveragePooling2D()(value))
    return keras.Model(inputs, keras.layers.Dense(classes)(value))


def build_process(function, text=WITHOUT_MODEL):
    return learning_process(text, *tiny.images(), parallel=1, model=function)


def test_rounds_equal_those_of_the_same_layers_in_a_recipe(eager):
    """Checks also the scale, the cut of absent labels, and equal paths at all widths."""
    custom, from_recipe = (
        build_process(dense),
        tiny.process(tiny.DENSE, "levels.mix=a1-c1", "levels.assignment=fixed", "engine=sequential", parallel=1),
    )
    state, expected = custom.initialize(), from_recipe.initialize()
    assert list(state.weights) == ["dense/kernel", "dense/bias", "dense_1/kernel", "dense_1/bias"]
    assert [value.shape for value in state.weights.values()] == [value.shape for value in expected.weights.values()]
    state = custom.begin(dict(zip(state.weights, expected.weights.values())))
    for _ in range(2):
        (state, row), (expected, other) = custom.next(state), from_recipe.next(expected)
        assert row.pop("levels") == other.pop("levels") and row == pytest.approx(other, rel=1e-5)
    for value, same in zip(state.weights.values(), expected.weights.values()):
        np.testing.assert_allclose(value, same, rtol=1e-5, atol=1e-6)
    assert custom.evaluate(state, "all")[0] == pytest.approx(from_recipe.evaluate(expected, "all")[0], rel=1e-4)
    unscaled = build_process(lambda width, classes: dense(width, classes))
    assert unscaled.next(unscaled.initialize())[1]["loss"] != custom.next(custom.initialize())[1]["loss"]


def test_rounds_of_the_layers_of_a_recipe_as_a_function_are_bit_equal(eager):
    layered = tiny.process(tiny.IMAGES, "engine=sequential", parallel=1)
    model, shape = layered.recipe.model, layered.family.shape
    custom = learning_process(
        tiny.IMAGES,
        *tiny.images(),
        parallel=1,
        model=lambda width, classes, scale=1.0: build_model(model, shape, width, scale, classes),
    )
    state = layered.initialize()
    (expected, row), (after, custom_row) = layered.next(state), custom.next(custom.begin(dict(state.weights)))
    for value, same in zip(after.weights.values(), expected.weights.values(), strict=True):
        np.testing.assert_array_equal(value, same)
    assert custom_row == row


def test_initial_values_depend_on_the_seed_alone_and_have_equal_paths():
    one, same = (build_custom_model(dense, SHAPE, 1.0, seed=4) for _ in range(2))
    other = build_custom_model(dense, SHAPE, 1.0, seed=5)
    assert [v.path for v in one.weights] == [v.path for v in build_custom_model(dense, SHAPE, 0.25, seed=4).weights]
    for first, second, third in zip(one.weights, same.weights, other.weights):
        np.testing.assert_array_equal(first, second)
        assert not np.any(first) or not np.array_equal(first, third)
    assert build_custom_model(dense, SHAPE, 1.0, dtype="mixed_bfloat16").layers[2].compute_dtype == "bfloat16"
    assert keras.config.dtype_policy().name == "float32"


@pytest.mark.long
def test_residual_model_is_trained_cut_described_and_predicts_from_pixels(eager):
    process = build_process(lambda width, classes: static_norms(residual(width, classes)))
    assert process.engine_report()["clients_at_once"] == {"a": 1, "c": 1}
    state = process.initialize()
    losses = []
    for _ in range(4):
        state, row = process.next(state, [0, 1, 3])
        losses.append(row["loss"])
    assert losses[-1] < losses[0]
    assert process.model(state, "c")(process.dataset.test.x).shape == (11, tiny.CLASSES)
    assert [v.shape[-1] for v in process.network(state, "c").trainable_variables][:2] == [2, 2]
    assert describe(process).levels["a"].parameters == process.network(state).count_params() - 2 * 8


def test_static_norms_keep_weights_statistics_and_outputs():
    model = residual(1.0, 4)
    norm = next(layer for layer in model.layers if isinstance(layer, keras.layers.BatchNormalization))
    for number, variable in enumerate(norm.weights):
        variable.assign(variable + 0.3 * (number + 1))
    static_model = static_norms(model)
    (static,) = (layer for layer in static_model.layers if isinstance(layer, StaticBatchNormalization))
    assert static.name == norm.name and static.epsilon == 0.01
    x = np.random.default_rng(0).normal(size=(3, *SHAPE))
    np.testing.assert_allclose(static_model(x), model(x), rtol=1e-5, atol=1e-6)
    plain = static_norms(keras.Sequential([keras.Input((3,)), keras.layers.BatchNormalization(scale=False)]))
    np.testing.assert_array_equal(plain.layers[0].gamma, np.ones(3))


def test_an_adapted_normalization_keeps_its_statistics():
    norm = keras.layers.Normalization()
    norm.adapt(np.random.default_rng(0).normal(3, 2, (50, *SHAPE)))
    inputs = keras.Input(SHAPE)
    ready = keras.Model(
        inputs, keras.layers.Dense(4, name="logits")(keras.layers.GlobalAveragePooling2D()(norm(inputs)))
    )
    model = build_custom_model(lambda width, classes: ready, SHAPE, 1.0, classes=4)
    assert [variable.path for variable in model.weights] == ["logits/kernel", "logits/bias"]
    x = np.random.default_rng(1).normal(size=(3, *SHAPE)).astype(np.float32)
    np.testing.assert_array_equal(model(x), ready(x))


def test_a_ready_model_has_fewer_channels_at_a_narrow_level_and_starts_from_its_weights(eager):
    """Those of the layer that gives the logits stay."""
    inputs = keras.Input(SHAPE)
    value = keras.layers.Conv2D(6, 3, activation="relu")(inputs)
    value = keras.layers.GlobalAveragePooling2D()(keras.layers.Add()([value, keras.layers.Conv2D(6, 3)(inputs)]))
    ready = keras.Model(inputs, keras.layers.Activation("linear")(keras.layers.Dense(tiny.CLASSES)(value)))
    process = build_process(ready)
    state = process.initialize()
    for value, variable in zip(state.weights.values(), ready.weights, strict=True):
        np.testing.assert_array_equal(value, variable)
    assert [each.shape[-1] for each in process.network(state, "c").weights] == [2, 2, 2, 2, tiny.CLASSES, tiny.CLASSES]
    assert np.isfinite(process.next(state)[1]["loss"])


def branches(width, classes):
    """Branches of 6 and 2 channels at every position, beside channels of the data."""
    inputs = keras.Input(SHAPE)
    convolutions = [keras.layers.Conv2D(Width(size).at(width), 3, padding="same")(inputs) for size in (6, 2)]
    value = keras.layers.Flatten()(keras.layers.Concatenate()([*convolutions, inputs]))
    return keras.Model(inputs, keras.layers.Dense(classes)(keras.layers.ReLU()(value)))


def test_branches_and_positions_are_cut_one_by_one(eager):
    process = build_process(branches)
    state, plan = process.initialize(), process.plan(0)
    channels = 6 + 2 + SHAPE[-1]
    kernel = state.weights["dense/kernel"].numpy().reshape(-1, channels, tiny.CLASSES)
    narrow = process.network(state, "c").get_layer("dense").kernel.numpy()
    chosen = [*range(Width(6).at(0.25)), 6, *range(8, channels)]
    np.testing.assert_array_equal(narrow, kernel[:, chosen].reshape(-1, tiny.CLASSES))
    after, _ = process.run(state, [plan])
    expected, _ = ReferenceRounds(process).run(tiny.arrays(state), [plan])
    for path, value in after.weights.items():
        np.testing.assert_allclose(value, expected[path], rtol=1e-5, atol=1e-6)


def test_an_input_may_have_any_size(eager):
    def function(width, classes):
        inputs = keras.Input((None, None, SHAPE[-1]))
        value = keras.layers.GlobalAveragePooling2D()(keras.layers.Conv2D(Width(8).at(width), 3)(inputs))
        return keras.Model(inputs, keras.layers.Dense(classes)(value))

    process = build_process(function)
    state, row = process.next(process.initialize())
    assert np.isfinite(row["loss"])
    assert process.model(state, "c")(process.dataset.test.x).shape == (11, tiny.CLASSES)


class Subclassed(keras.Model):
    """The layers of `dense`, with variables whose shapes depend on the width."""

    def __init__(self, width, classes, scale=1.0, **options):
        super().__init__(**options)
        self.pool, self.hidden = keras.layers.GlobalAveragePooling2D(), keras.layers.Dense(Width(8).at(width))
        self.scaler = Scaler(scale)
        initializer = keras.initializers.VarianceScaling(1 / 3, "fan_in", "uniform")
        self.logits = keras.layers.Dense(classes, kernel_initializer=initializer)

    def call(self, inputs):
        return self.logits(keras.ops.relu(self.scaler(self.hidden(self.pool(inputs)))))


def subclassed(width, classes, scale=1.0):
    return Subclassed(width, classes, scale)


def without_input(width, classes, scale=1.0):
    return keras.Sequential(dense(width, classes, scale).layers[1:])


@pytest.mark.long
@pytest.mark.parametrize("function", [subclassed, without_input])
def test_model_without_inputs_trains_like_the_functional_one(function, eager):
    process, expected_process = build_process(function), build_process(dense)
    expected = expected_process.initialize()
    state = process.begin(dict(zip(process.initialize().weights, expected.weights.values(), strict=True)))
    for _ in range(2):
        (state, row), (expected, other) = process.next(state), expected_process.next(expected)
        assert row == other
    assert process.evaluate(state, "all")[0] == expected_process.evaluate(expected, "all")[0]
    x = process.dataset.test.x
    np.testing.assert_array_equal(process.model(state, "c")(x), expected_process.model(expected, "c")(x))


def test_words_are_the_inputs_of_a_subclassed_model_with_an_embedding():
    class Words(keras.Model):
        def __init__(self, classes):
            super().__init__()
            self.embedding, self.logits = keras.layers.Embedding(5, 4), keras.layers.Dense(classes)

        def call(self, inputs):
            return self.logits(keras.ops.mean(self.embedding(inputs), 1))

    model = build_custom_model(lambda width, classes: Words(classes), (7,), 1.0, classes=3)
    assert model.inputs[0].dtype == "int32" and model.output_shape == (None, 3)


class Packing(keras.Model):
    """Packs positions and channels on one axis."""

    def __init__(self, width, classes):
        super().__init__()
        self.conv, self.flatten = keras.layers.Conv2D(Width(8).at(width), 3), keras.layers.Flatten()
        self.logits = keras.layers.Dense(classes)

    def call(self, inputs):
        return self.logits(self.flatten(keras.ops.relu(self.conv(inputs))))


class Failing(keras.Model):
    def call(self, inputs):
        raise TypeError("no such operation")


def ended(last):
    return keras.Sequential([keras.Input(SHAPE), keras.layers.Flatten(), last])


STEPPING = type("Stepping", (keras.Sequential,), {"train_step": 0})([keras.Input(SHAPE)])


def frozen(width, classes):
    model = dense(width, classes)
    model.trainable = False
    return model


def same_names(width, classes):
    parts, inputs = [], keras.Input(SHAPE)
    for size in (50, 2):
        part_inputs = keras.Input((size,))
        parts.append(keras.Model(part_inputs, keras.layers.Dense(2, name="same")(part_inputs)))
    value = parts[1](parts[0](keras.layers.Flatten()(inputs)))
    return keras.Model(inputs, keras.layers.Dense(classes)(value))


def two_outputs(width, classes):
    inputs = keras.Input(SHAPE)
    value = keras.layers.Flatten()(inputs)
    return keras.Model(inputs, [keras.layers.Dense(classes)(value), keras.layers.Dense(classes)(value)])


@pytest.mark.parametrize(
    ("function", "sentence"),
    [
        (lambda width, classes: {}["no"], "`model` must build a Keras model. Received: KeyError: 'no' from <lambda>(width=1, cla"),
        (lambda width, classes: 3, "`model` must return a Keras model with one input, such as keras.Model(inputs, lo"),
        (lambda width, classes: Failing(), "`model` must build a Keras model. Received: TypeError: "),
        (Packing, "`model` packs several things, such as heads or what a subclass flattens, on axis 0 of packing/"),
        (
            lambda width, classes: static_norms(Subclassed(width, classes)),
            "static_norms: `model` must be functional, or Sequential with an input; in a subclassed model, use "
            "hetero_tf.layers.static_batch_normalization.StaticBatchNormalization. Received: Subclassed",
        ),
        (lambda width: Subclassed(width, 9), "a `model` of the width alone must be functional; or give a function (width, c"),
        (lambda width, classes: dense(width, 4), "`model` must give logits of the shape (None, 9) for classes=9"),
        (lambda width, classes: ended(keras.layers.Dense(classes, "sigmoid")), "`model` must give logits, since the loss applies the softmax: leave out the softmax or sigmoid"),
        (residual, "`model` must have no running averages of a client's data: use hetero_tf.static_norms(model)"),
        (lambda width, classes: ended(keras.layers.Dense(classes, dtype="bfloat16")), "layer sequential/dense: its weight kernel must be float"),
        ("mine.keras", "`model` must be a Keras model, or a function that builds one. Received: 'mine.keras'"),
        (STEPPING, "`model` must train by the steps of the program: leave out train_step; for another loss, use compile(loss"),
        (lambda width, classes: STEPPING, "`model` must train by the steps of the program: leave out train_step; for "),
        (frozen, "`model` must have something to train. Received: a model without trainable weights"),
        (same_names, "`model` must give its layers different names. Received: two weights named"),
        (two_outputs, "the data must have a target for each output of `model`"),
        (lambda width, classes: keras.Model((one := dense(width, classes)).inputs, {"logits": one.output}), "`model` must return one tensor of logits. Received: a dict of tensors"),
        (lambda width, classes: dense(1.5 - width, classes), "level c: the model must have the layers of the global one"),
    ],
)  # fmt: skip
def test_untrainable_model_is_refused_with_one_sentence(function, sentence):
    assert refusal(build_process, function).startswith(sentence)


def one_layer(layer=None, **options):
    """A model of one Dense layer with these options, between two others; classes: 3."""
    inputs = keras.Input(SHAPE)
    value = keras.layers.Dense(3, name="first", **options)(keras.layers.Flatten()(inputs))
    return keras.Model(inputs, layer(value) if layer else value)


def inside(**options):
    """A model that contains another one, whose single layer has these options."""
    base, inputs = one_layer(**options), keras.Input(SHAPE)
    return keras.Model(inputs, keras.layers.Dense(3)(base(inputs)))


def test_constraints_are_refused_unless_their_weights_are_frozen():
    model = inside(kernel_constraint="non_neg")
    message = refusal(build_custom_model, lambda width, classes: model, SHAPE, 1.0, classes=3)
    assert message.startswith("`model` must have no constraints, which local")
    model.layers[1].trainable = False
    check_structure(model, SHAPE, 3)


ENDS = {
    "activation": keras.layers.Activation("softmax"),
    "function": keras.ops.softmax,
    "sigmoid": keras.ops.sigmoid,
    "hard sigmoid": keras.ops.hard_sigmoid,
    "bfloat16": keras.layers.Softmax(dtype="bfloat16"),
    "nested": keras.Sequential([keras.Input((3,)), keras.layers.Dense(3), keras.layers.Softmax()]),
}


@pytest.mark.parametrize("name", ENDS)
def test_probabilities_are_refused_in_every_form(name):
    assert refusal(check_behavior, one_layer(ENDS[name])).startswith("`model` must give logits, since the loss")


@pytest.mark.parametrize("last", [None, keras.ops.log_softmax, keras.ops.relu, keras.ops.tanh, keras.ops.softplus])
def test_other_outputs_are_logits(last):
    check_behavior(one_layer(last))


def transfer(trainable=True):
    """A model around a base, which contains another one with a norm."""
    norms = [keras.layers.BatchNormalization(name=f"norm{number}") for number in range(2)]
    deepest = keras.Sequential([keras.Input(SHAPE), keras.layers.Conv2D(2, 1, name="conv"), norms[0]], name="deepest")
    inputs = keras.Input(SHAPE)
    base = keras.Model(inputs, norms[1](deepest(inputs)), name="base")
    base.trainable, outer = trainable, keras.Input(SHAPE)
    value = keras.layers.GlobalAveragePooling2D()(base(outer, training=False))
    model = keras.Model(outer, keras.layers.Dense(3, name="head")(value))
    for number, variable in enumerate(model.weights):
        variable.assign(variable + 0.1 * (number + 1))
    return model


@pytest.mark.parametrize("trainable", [True, False])
def test_static_norms_replace_norms_of_nested_models_and_keep_frozen_ones(trainable):
    model, x = transfer(trainable), np.random.default_rng(0).normal(size=(3, *SHAPE))
    static = static_norms(model)
    check_structure(static, SHAPE, 3)
    np.testing.assert_allclose(static(x), model(x), rtol=1e-5, atol=1e-6)
    assert [v.path for v in static.trainable_variables] == [v.path for v in model.trainable_variables]
    kinds = {layer.name: type(layer) for layer in static._flatten_layers()}
    kind = StaticBatchNormalization if trainable else keras.layers.BatchNormalization
    assert kinds["norm0"] is kinds["norm1"] is kind
    model.get_layer("head").kernel.trainable = False
    assert [v.path for v in static_norms(model).non_trainable_variables].count("head/kernel") == 1


def test_norms_that_static_ones_cannot_replace_are_refused():
    def refused(**options):
        return refusal(static_norms, keras.Sequential([keras.Input(SHAPE), keras.layers.BatchNormalization(**options)]))

    assert "must have no gamma_regularizer, since static batch normalisation has none" in refused(
        gamma_regularizer="l2"
    )
    assert "must normalize the last axis, which has the channels" in refused(axis=1)


def test_inputs_of_another_shape_and_layers_that_only_recipes_have_are_refused():
    message = refusal(build_custom_model, dense, (6, 6, 2), 1.0)
    assert message == "`model` must have one input, of the shape (6, 6, 2) of the data. Received: [(5, 5, 2)]"
    with pytest.raises(ValueError, match="one client at a time"):
        build_custom_model(dense, SHAPE, 1.0, clients=2)
    message = refusal(build_process, dense, WITHOUT_MODEL.replace("mix: a1-c1", "mix: a1-c1\n  budgets: {c: 0.5}"))
    assert "levels.budgets: cannot be combined with model.function from_python: budgets divide the layers" in message


def test_recipe_may_be_a_mapping_a_text_a_path_or_a_recipe():
    mapping = {
        "name": "mine",
        "data": {"name": "synthetic", "size": 8},
        "input": "images",
        "partition": {"name": "iid", "clients": 4},
        "levels": {"widths": {"a": 1, "b": 0.5}, "mix": "a-b"},
        "round": {"clients": 2},
        "client": {"epochs": 1, "batch_size": 5},
        "optimizer": {"learning_rate": 0.1},
        "rounds": 2,
        "model": {"layers": ["Flatten", {"Dense": {"units": "!w 8"}}, {"Dense": {"units": "!classes"}}]},
    }
    one = recipe.as_recipe(mapping)
    assert one.model.layers[1].args == {"units": Width(8)}
    assert recipe.as_recipe(one) is one and recipe.as_recipe(one.source) == recipe.loads(one.source)
    assert recipe.as_recipe("tiny/digits").source == recipe.load("tiny/digits").source
    assert recipe.as_recipe({**mapping, "model": 3}, dense).model.layers == ()
    assert recipe.as_recipe(one, dense).model.layers == ()
    assert refusal(recipe.as_recipe, {**mapping, "rounds": object()}) == (
        "a recipe may contain only numbers, texts, lists, tuples and mappings; pass functions as arguments of "
        "learning_process, such as loss=. Received: object"
    )
    assert "the key 'model' is missing" in refusal(recipe.as_recipe, {k: v for k, v in mapping.items() if k != "model"})
    assert hetero_tf.learning_process(mapping).recipe.name == "mine"


def test_model_accepts_stored_pixels():
    process = tiny.shared(tiny.DENSE)
    state, x = process.initialize(), process.dataset.test.x
    network, model = process.network(state), process.model(state)
    np.testing.assert_allclose(model(x), network(x / np.float32(255)), rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(model.predict(x, verbose=0).shape, (11, tiny.CLASSES))
