"""Cuts derived from shapes alone."""

import keras
import methods
import numpy as np
import pytest
import tensorflow as tf
import tiny

from hetero_tf.base.errors import InputError
from hetero_tf.models.cut import Axis, cut_of_shapes, find_label_axes
from hetero_tf.models.state import StateLayout, flatten_state


def dense(units, classes, name="wide"):
    inputs = keras.Input((4,))
    hidden = keras.layers.Dense(units, name=name)(inputs)
    return keras.Model(inputs, keras.layers.Dense(classes, name="head")(hidden))


def shapes(model):
    return {variable.path: tuple(variable.shape) for variable in model.trainable_variables}


def test_cut_is_derived_from_shapes_alone():
    cut = cut_of_shapes(
        shapes(dense(6, 10)),
        {"a": shapes(dense(6, 4)), "b": shapes(dense(2, 4))},
        {"head/kernel": {1: 1}, "head/bias": {0: 1}},
        classes=9,
    )
    wide, label = Axis(6, (6, 2)), Axis(9, (3, 3), label=True, extra=1)
    assert cut.shapes == ((4, 6), (6,), (6, 10), (10,))
    assert cut.axes == ((None, wide), (wide,), (wide, label), (label,))
    assert cut.distinct == (wide, label)
    assert cut.contained == ((True, True),) * 4


def test_level_without_a_variable_has_the_others_and_an_ensemble_network_is_one_entry_of_an_axis():
    global_shapes = {"stem/kernel": (4, 6), "deep/kernel": (6, 6)}
    cut = cut_of_shapes(global_shapes, {"a": global_shapes, "b": {"stem/kernel": (4, 2)}}, {}, classes=9)
    assert cut.axes == ((None, Axis(6, (6, 2))), (None, None))
    assert cut.contained == ((True, True), (True, False))
    cut = cut_of_shapes({"kernel": (3, 4, 2)}, {"a": {"kernel": (1, 4, 2)}}, {}, classes=9, members=True)
    assert cut.axes == ((Axis(3, (1,), member=True), None, None),)


def test_label_axes_are_the_ones_that_grow_with_the_classes():
    def build(classes):
        inputs = keras.Input((3,))
        hidden = keras.layers.Dense(2, name="two")(keras.layers.Embedding(classes + 1, 2, name="words")(inputs))
        return keras.Model(inputs, keras.layers.Dense(classes, name="head")(hidden))

    assert find_label_axes(*(shapes(build(classes)) for classes in (2, 3))) == {
        "words/embeddings": {0: 1},
        "head/kernel": {1: 0},
        "head/bias": {0: 0},
    }


@pytest.mark.parametrize(
    ("level", "expected"),
    [
        (dense(7, 9), r"wide/kernel has the shape \(4, 6\) there. Received: shape=\(4, 7\)"),
        (dense(2, 9, name="other"), r"other/kernel has the shape None there. Received: shape=\(4, 2\)"),
    ],
)
def test_level_outside_the_global_model_is_refused(level, expected):
    with pytest.raises(InputError, match=f"^level b: the model must have the layers of the global one, .* {expected}$"):
        cut_of_shapes(shapes(dense(6, 9)), {"b": shapes(level)}, {}, classes=9)


def test_row_of_a_network_has_the_values_of_that_network():
    shapes, rng = {"b/kernel": (2, 3), "a/bias": (2,), "c/scale": (2, 1, 4)}, np.random.default_rng(0)
    layout = StateLayout(shapes, "float64", ("drift",), 5, 2, ("b/kernel",), memories=("memory",), peers=0)
    values = layout.build(lambda shape, dtype: tf.constant(rng.normal(size=shape), dtype))
    row = layout.pack(values).tables["memory"][4, 1].numpy()
    memory = values["clients"]["memory"]
    assert row.tolist() == np.concatenate([memory[path][4, 1].numpy().ravel() for path in shapes]).tolist()


@pytest.mark.parametrize("name", ["lg", "scaffold", "fedepth_peers", "splitmix", "adam"])
def test_state_of_a_method_keeps_its_bits(name):
    process = methods.built(name)
    layout, state = process.state_layout, process.initialize()
    restored = layout.state_of(0, layout.unpack(layout.pack(layout.values_of(state))))
    assert tiny.same(flatten_state(restored), flatten_state(state))
