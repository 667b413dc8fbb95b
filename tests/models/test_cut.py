"""Cuts derived from shapes alone."""

import keras
import pytest

from hetero_tf.models.cut import Axis, cut_of_shapes, find_label_axes


def dense(units, classes, name="wide"):
    inputs = keras.Input((4,))
    hidden = keras.layers.Dense(units, name=name)(inputs)
    return keras.Model(inputs, keras.layers.Dense(classes, name="head")(hidden))


def shapes(model):
    return {variable.path: tuple(variable.shape) for variable in model.trainable_variables}


def test_cut_is_derived_from_shapes_alone():
    cut = cut_of_shapes(
        shapes(dense(6, 10)),
        [shapes(dense(6, 4)), shapes(dense(2, 4))],
        {"head/kernel": {1: 1}, "head/bias": {0: 1}},
        classes=9,
    )
    wide, label = Axis(6, (6, 2)), Axis(9, (3, 3), label=True, extra=1)
    assert cut.shapes == ((4, 6), (6,), (6, 10), (10,))
    assert cut.axes == ((None, wide), (wide,), (wide, label), (label,))
    assert cut.distinct == (wide, label)
    assert cut.contained == ((True, True),) * 4


def test_level_without_a_variable_has_the_others():
    global_shapes = {"stem/kernel": (4, 6), "deep/kernel": (6, 6)}
    cut = cut_of_shapes(global_shapes, [global_shapes, {"stem/kernel": (4, 2)}], {}, classes=9)
    assert cut.axes == ((None, Axis(6, (6, 2))), (None, None))
    assert cut.contained == ((True, True), (True, False))


def test_ensemble_network_is_one_entry_of_the_first_axis():
    cut = cut_of_shapes({"kernel": (3, 4, 2)}, [{"kernel": (1, 4, 2)}], {}, classes=9, members=True)
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
        (dense(7, 9), r"wide/kernel of a sub-model .* has shape \(4, 6\). Received: shape=\(4, 7\)"),
        (dense(2, 9, name="other"), r"other/kernel of a sub-model .* has shape None. Received: shape=\(4, 2\)"),
    ],
)
def test_level_outside_the_global_model_is_refused(level, expected):
    with pytest.raises(ValueError, match=f"^variable {expected}$"):
        cut_of_shapes(shapes(dense(6, 9)), [shapes(level)], {}, classes=9)
