"""Labels of arrays: whole numbers, texts and one-hot rows become the same classes, and others are rejected."""

import warnings

import numpy as np
import pytest

from hetero_tf.base.errors import InputError
from hetero_tf.data.in_memory import read_targets

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
        train, test, classes, class_names = read_targets("mine", labels, labels[1:3], None, None)
    assert train.dtype == test.dtype == np.int32
    assert (train.tolist(), test.tolist()) == ([0, 2, 1, 2], [2, 1])
    assert (classes, class_names) == (3, names)


def test_bool_labels_are_two_classes():
    train, test, classes, _ = read_targets("mine", [[True], [True]], [False], None, None)
    assert (train.tolist(), test.tolist(), classes) == ([1, 1], [0], 2)


def test_floats_that_are_whole_numbers_are_labels_with_a_warning():
    with pytest.warns(UserWarning, match="mine: y_train has float32 numbers that are all whole; they become class"):
        train, _, classes, _ = read_targets("mine", NUMBERS.astype(np.float32), NUMBERS, None, None)
    assert train.tolist() == NUMBERS.tolist() and classes == 3


def test_class_names_give_the_order_of_texts_and_columns_the_number_of_classes():
    names = ("cat", "bee", "dog", "ant")
    train, test, _, class_names = read_targets("mine", TEXTS, ["dog"], None, names)
    assert (train.tolist(), test.tolist(), class_names) == ([3, 0, 1, 0], [2], names)
    assert read_targets("mine", np.eye(5)[NUMBERS], NUMBERS, None, None)[2] == 5
    assert read_targets("mine", np.eye(3)[NUMBERS], NUMBERS, None, NAMES)[3] == NAMES
    assert read_targets("mine", NUMBERS, NUMBERS, 7, None)[2] == 7


NOT_LABELS = "must be whole numbers 0..k-1, texts or one-hot rows, one for each example; numbers"
NOT_ONE_HOT = "y_train must be one-hot, with exactly one 1 in each row and else 0; for several labels, use the task "


@pytest.mark.parametrize(
    ("train", "test", "options", "message"),
    [
        ([0.5, 1.0], [1], {}, f"y_train {NOT_LABELS}"),
        ([0.0, np.nan], [1], {}, f"y_train {NOT_LABELS}"),
        ([], [1], {}, f"y_train {NOT_LABELS}"),
        ([0, 1], [2**40], {}, f"y_test {NOT_LABELS}"),
        (np.array(["a", None]), ["a"], {}, f"y_train {NOT_LABELS}"),
        ([0, 1], ["a"], {}, f"y_test {NOT_LABELS}"),
        ([0, 2], [0], {}, "y_train must contain every label from 0 to 2; renumber the labels"),
        ([[0, 1], [1, 1]], [0], {}, f"{NOT_ONE_HOT}multi_label. Received: [1, 1] in row 1"),
        ([[0, 1], [0, 0]], [0], {}, NOT_ONE_HOT),
        ([[0.3, 1], [1, 0]], [0], {}, NOT_ONE_HOT),
        ([[0, 1], [1, 0]], [[0, 1, 0]], {}, "y_test must have one column for each of the 2 classes. Received: (1, 3)"),
        (["a", "b"], ["b", "c"], {}, "every label of y_test must be one of the classes, which are class_names or the"),
        (["a", "b"], ["a"], {"names": ["a", "c"]}, "every label of y_train must be one of the classes"),
    ],
)
def test_other_labels_are_rejected(train, test, options, message):
    with pytest.raises(InputError) as refusal:
        read_targets("mine", train, test, **{"classes": None, "names": None, **options})
    assert str(refusal.value).startswith(f"mine: {message}")
