"""Labels of arrays: whole numbers, texts and one-hot rows become the same classes, and others are rejected."""

import warnings

import numpy as np
import pytest

from hetero_tf.base.errors import InputError
from hetero_tf.data.label_arrays import read_labels

NUMBERS = np.array([0, 2, 1, 2], np.int64)
NAMES = ("ant", "bee", "cat")
TEXTS = np.array(NAMES)[NUMBERS]


@pytest.mark.parametrize(
    ("labels", "names"),
    [
        (NUMBERS, None),
        (NUMBERS[:, None].astype(np.uint8), None),
        (NUMBERS.tolist(), None),
        (np.eye(3)[NUMBERS], None),
        (np.eye(3, dtype=bool)[NUMBERS], None),
        (np.eye(3, dtype=np.int16)[NUMBERS].tolist(), None),
        (TEXTS, NAMES),
        (TEXTS.astype(object)[:, None], NAMES),
        (np.char.encode(TEXTS), NAMES),
        (TEXTS.tolist(), NAMES),
    ],
)
def test_every_form_of_labels_gives_the_same_classes(labels, names):
    with warnings.catch_warnings(action="error"):
        result = read_labels("mine", labels, labels[1:3], None, None)
    assert result.train.dtype == result.test.dtype == np.int32
    assert (result.train.tolist(), result.test.tolist()) == ([0, 2, 1, 2], [2, 1])
    assert (result.classes, result.names) == (3, names)


def test_bool_labels_are_two_classes():
    result = read_labels("mine", [[True], [True]], [False], None, None)
    assert (result.train.tolist(), result.test.tolist(), result.classes) == ([1, 1], [0], 2)
    assert result.train.dtype == np.int32
    assert read_labels("mine", [True], [False], None, ("no", "yes")).names == ("no", "yes")


def test_floats_that_are_whole_numbers_are_labels_with_a_warning():
    with pytest.warns(UserWarning, match="mine: y_train has float32 numbers that are all whole; they become class"):
        result = read_labels("mine", NUMBERS.astype(np.float32), NUMBERS, None, None)
    assert result.train.tolist() == NUMBERS.tolist() and result.classes == 3


def test_class_names_give_the_order_of_texts_and_columns_the_number_of_classes():
    names = ("cat", "bee", "dog", "ant")
    result = read_labels("mine", TEXTS, ["dog"], None, names)
    assert (result.train.tolist(), result.test.tolist()) == ([3, 0, 1, 0], [2]) and result.names == names
    assert read_labels("mine", np.eye(5)[NUMBERS], NUMBERS, None, None).classes == 5
    assert read_labels("mine", np.eye(3)[NUMBERS], NUMBERS, None, NAMES).names == NAMES
    assert read_labels("mine", NUMBERS, NUMBERS, 7, None).classes == 7


@pytest.mark.parametrize(
    ("train", "test", "options", "message"),
    [
        ([0.5, 1.0], [1], {}, "y_train must be whole numbers 0..k-1, texts or one-hot rows, one for each example "),
        ([0.0, np.nan], [1], {}, "y_train must be whole numbers 0..k-1, texts or one-hot rows, one for each example "),
        ([], [1], {}, "y_train must be whole numbers 0..k-1, texts or one-hot rows, one for each example "),
        ([0, 1], [-1], {}, "y_test must be in 0..2147483646. Received: label -1"),
        ([0, 2], [0], {}, "y_train must contain every label from 0 to its highest, 2, but 1 never occurs"),
        (
            [[0, 1], [1, 1]],
            [0],
            {},
            "y_train must be one-hot, with exactly one 1 in each row and else 0"
            "; for several labels, use the task multi_label. Received: [1, 1] in row 1",
        ),
        ([[0, 1], [0, 0]], [0], {}, "y_train must be one-hot, with exactly one 1 in each row"),
        ([[0.3, 1], [1, 0]], [0], {}, "y_train must be one-hot, with exactly one 1 in each row"),
        ([[0, 1], [1, 0]], [[0, 1, 0]], {}, "y_test must have one column for each of the 2 classes. Received: (1, 3)"),
        (
            [[0, 1], [1, 0]],
            [0],
            {"classes": 3},
            "y_train must have one column for each of the 3 classes. Received: (2,",
        ),
        (
            ["a", "b"],
            ["b", "c"],
            {},
            "every label of y_test must be one of the classes, which are class_names or the "
            "labels of y_train. Received: 'c' at position 1",
        ),
        (
            ["a", "b"],
            ["a"],
            {"names": ["a", "c"]},
            "every label of y_train must be one of class_names. Received: 'b' at",
        ),
        ([0, 1], ["a"], {}, "y_test must be numbers, as y_train is, or set class_names. Received: texts such as 'a'"),
        (
            np.array(["a", None]),
            ["a"],
            {},
            "y_train must be whole numbers or valid Unicode texts. Received: None at pos",
        ),
        ([b"a", b"\xff"], ["a"], {}, r"y_train must be whole numbers or valid Unicode texts. Received: b'\xff' at pos"),
    ],
)
def test_other_labels_are_rejected(train, test, options, message):
    with pytest.raises(InputError) as refusal:
        read_labels("mine", train, test, **{"classes": None, "names": None, **options})
    assert str(refusal.value).startswith(f"mine: {message}")
