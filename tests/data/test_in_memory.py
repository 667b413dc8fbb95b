"""Data sets of arrays in memory: labels, several named arrays, and tf.data."""

import json
import warnings

import numpy as np
import pandas as pd
import pytest
import tensorflow as tf
from refusals import check_refusals, refusal

from hetero_tf.base.errors import InputError
from hetero_tf.data import from_arrays, from_tf_data, npz
from hetero_tf.data.codecs import split_stored
from hetero_tf.data.described import describe, from_description
from hetero_tf.data.fields import array_fields
from hetero_tf.data.in_memory import read_targets

NUMBERS = np.array([0, 2, 1, 2], np.int64)
NAMES = ("ant", "bee", "cat")
TEXTS = np.array(NAMES)[NUMBERS]


def test_every_form_of_labels_gives_the_same_classes():
    hot = np.eye(3)[NUMBERS]
    numbers = (
        NUMBERS,
        NUMBERS[:, None].astype(np.uint8),
        NUMBERS.tolist(),
        hot,
        hot.astype(bool),
        hot.astype(int).tolist(),
    )
    texts = TEXTS, TEXTS.astype(object)[:, None], np.char.encode(TEXTS), TEXTS.tolist()
    for labels, names in [*((each, None) for each in numbers), *((each, NAMES) for each in texts)]:
        with warnings.catch_warnings(action="error"):
            train, test, classes, class_names = read_targets("mine", labels, labels[1:3], None, None)
        assert train.dtype == test.dtype == np.int32
        assert (train.tolist(), test.tolist(), classes, class_names) == ([0, 2, 1, 2], [2, 1], 3, names)


def test_other_forms_of_labels_and_class_names_give_classes():
    train, test, classes, _ = read_targets("mine", [[True], [True]], [False], None, None)
    assert (train.tolist(), test.tolist(), classes) == ([1, 1], [0], 2)
    with pytest.warns(UserWarning, match="mine: y_train has float32 numbers that are all whole; they become class"):
        train, _, classes, _ = read_targets("mine", NUMBERS.astype(np.float32), NUMBERS, None, None)
    assert train.tolist() == NUMBERS.tolist() and classes == 3
    names = ("cat", "bee", "dog", "ant")
    train, test, _, class_names = read_targets("mine", TEXTS, ["dog"], None, names)
    assert (train.tolist(), test.tolist(), class_names) == ([3, 0, 1, 0], [2], names)
    assert read_targets("mine", np.eye(5)[NUMBERS], NUMBERS, None, None)[2] == 5
    assert read_targets("mine", np.eye(3)[NUMBERS], NUMBERS, None, NAMES)[3] == NAMES
    assert read_targets("mine", NUMBERS, NUMBERS, 7, None)[2] == 7


NOT_LABELS = "must be whole numbers 0..k-1, texts or one-hot rows, one for each example; numbers"
NOT_ONE_HOT = "y_train must be one-hot, with exactly one 1 in each row and else 0; for several labels, use the task "


def test_other_labels_are_rejected():
    for train, test, options, message in (
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
    ):
        text = refusal(read_targets, "mine", train, test, **{"classes": None, "names": None, **options})
        assert text.startswith(f"mine: {message}")


DRAWS = np.random.default_rng(0)
X = {
    "picture": DRAWS.integers(0, 256, (6, 4, 5, 1), np.uint8),
    "table": DRAWS.normal(5, 3, (6, 2)).astype(np.float32),
    "series": DRAWS.normal(-2, 4, (6, 3, 2)).astype(np.float32),
    "words": DRAWS.integers(0, 9, (6, 3)),
    "size": DRAWS.normal(size=6),
}
Y = np.arange(6) % 3
FIRST = {name: values[:4] for name, values in X.items()}


def build(x=X, y=Y, x_test=FIRST, y_test=Y[:4]):
    return from_arrays(x, y, x_test, y_test, source="mine")


def unpack(fields, x):
    return {field.name: part for field, part in zip(fields, split_stored(fields, x), strict=True)}


def test_arrays_are_packed_without_loss_and_normalised_except_for_ids():
    dataset = build()
    assert (dataset.train.x.dtype, dataset.train.x.shape) == (np.float32, (6, 32))
    assert [field.codec.dtype for field in dataset.fields] == ["uint8", "float32", "float32", "float32", "int32"]
    for split, expected in ((dataset.train, X), (dataset.test, FIRST)):
        for name, values in unpack(dataset.fields, split.x).items():
            np.testing.assert_array_equal(values, expected[name].astype(np.float32).reshape(values.shape))
    assert build({**X, "words": X["words"] * 1.0}, x_test={**FIRST, "words": 1.0 * FIRST["words"]}).sha256 != (
        dataset.sha256
    )
    offset, divisor = dataset.feature_statistics
    values = unpack(dataset.fields, (dataset.train.x - offset) / divisor)
    scaled = ((dataset.train.x - offset) / divisor).astype(np.float32)
    np.testing.assert_allclose(scaled[:, :20].reshape(X["picture"].shape), X["picture"] / 255, rtol=1e-6)
    np.testing.assert_array_equal(values["words"], X["words"])
    for name in ("table", "series"):
        channels = values[name].reshape(-1, 2)
        np.testing.assert_allclose([channels.mean(0), channels.std(0)], [[0, 0], [1, 1]], atol=1e-6)


def test_an_npz_file_has_the_arrays_by_name(tmp_path):
    splits = {"x_train": X, "x_test": FIRST}
    arrays = {f"{split}.{name}": values for split, x in splits.items() for name, values in x.items()}
    np.savez(tmp_path / "a.npz", **arrays, y_train=Y, y_test=Y[:4])
    assert npz.load(tmp_path, path="a.npz").sha256 == build().sha256
    with pytest.raises(InputError, match="`kind` and `feature_names` are for a single array"):
        npz.load(tmp_path, path="a.npz", kind="series")


def test_tf_data_and_descriptions_have_the_same_arrays():
    dataset = build()
    pairs = tf.data.Dataset.from_tensor_slices((X, Y))
    assert from_tf_data(pairs, pairs.take(4)).sha256 == dataset.sha256
    description = json.loads(json.dumps(describe(dataset)))
    described = from_description(description, "data")
    assert (described.fields, described.sha256) == (dataset.fitted_fields, dataset.sha256)
    words = unpack(described.fields, described.train.x)["words"]
    assert words.min() >= 0 and words.max() <= X["words"].max()
    description["fields"][0]["shape"] = [4, 5, 2]
    with pytest.raises(InputError, match="data: field 'picture': the limits and statistics must fit the shape"):
        from_description(description, "data")
    assert dataset.describe()[:2] == ["inputs: 5 arrays of 6 training examples", "input: picture, uint8 [4, 5, 1]"]


def test_arrays_that_do_not_match_are_rejected():
    check_refusals(
        build,
        ({"x": {**X, "a b": X["size"]}}, r"mine: x_test must have the arrays picture, .*, a b. Received: \['picture"),
        ({"x_test": X["table"]}, "mine: x_test must have the arrays picture, table, .* Received: ndarray"),
        ({"x": {"a b": Y}, "x_test": {"a b": Y}}, "the name of an array must be letters, .* Received: 'a b'"),
        ({"x": {**X, "size": np.full(6, "a")}}, r"x_train\['size'\] must be texts, or finite .* <U1"),
        ({"x": {**X, "size": np.full(6, np.nan)}}, "texts, or finite numbers .*, whole numbers at most 16,777,216"),
        ({"x": {**X, "words": X["words"] + 2**24}}, "texts, or finite numbers .*, whole numbers at most 16,777,216"),
        ({"x": {**X, "size": np.zeros(5)}}, "the arrays of x_train must be equally long. .*'size': 5"),
        ({"x_test": {**FIRST, "table": np.zeros((4, 3))}}, r"x_test\['table'\] must have .* float32 \(2,\). .* \(3,\)"),
        ({"y": {"kind": Y}}, "mine: y_test must have the arrays kind. Received: ndarray"),
    )


RNG = np.random.default_rng(0)
IMAGES, LABELS = RNG.integers(0, 256, (6, 4, 5, 3), np.uint8), np.arange(6) % 3
ROWS = RNG.normal(size=(6, 2))


def test_images_and_rows_become_data_sets():
    dataset = from_arrays(IMAGES, LABELS, IMAGES[:2], LABELS[:2], class_names=["a", "b", "c"], train_owners=LABELS)
    assert (dataset.codec.KIND, dataset.classes, dataset.class_names) == ("images", 3, ("a", "b", "c"))
    assert dataset.train.owners.tolist() == LABELS.tolist() and dataset.source == "arrays"
    dataset = from_arrays(ROWS, LABELS, ROWS[:2], LABELS[:2], feature_names=("x", "y"), source="mine")
    assert dataset.fields == array_fields("table", ROWS, ("x", "y")) and dataset.class_names is None
    np.testing.assert_array_equal(dataset.train.x, ROWS.astype(np.float32))
    assert from_arrays((ROWS > 0), LABELS, ROWS[:2], LABELS[:2]).train.x.max() == 1


def test_invalid_arrays_are_rejected():
    for changed, message in (
        ({"x_train": np.full((6, 2), "a")}, r"mine: x_train must be numbers \[n, features\], all dimensions above 0"),
        ({"x_train": pd.DataFrame({"a": LABELS, "b": "text"})}, r"x_train must be numbers .* Received: object"),
        ({"x_train": np.full((6, 2), 1e39)}, r"mine, train split: expected finite numbers. Received: inf in row 0"),
        ({"x_test": np.zeros((0, 2))}, r"x_test must be numbers .* Received: float64 \(0, 2\)"),
        ({"x_test": IMAGES[:2]}, r"x_test must be numbers .* Received: uint8 \(2, 4, 5, 3\)"),
        ({"feature_names": ["a"]}, r"`feature_names` must name the features of a table .* Received: 1 names"),
        ({"y_train": LABELS[:5]}, r"mine, train split: expected labels int32 \[6\], one per row. .* int32 \(5,\)"),
        ({"y_train": np.where(LABELS, 0.5, np.nan)}, "targets must be finite. Received: nan in row 0"),
        ({"y_train": np.ma.masked_equal(LABELS, 2)}, "y_train must be whole numbers"),
        ({"x_train": np.ma.masked_equal(ROWS, ROWS[2, 1])}, "expected finite numbers. Received: nan in row 2, feature"),
    ):
        arrays = {"x_train": ROWS, "y_train": LABELS, "x_test": ROWS[:2], "y_test": LABELS[:2], "source": "mine"}
        with pytest.raises(InputError, match=message):
            from_arrays(**{**arrays, **changed})


def pairs(x, y):
    return tf.data.Dataset.from_tensor_slices((x, y))


DIFFERENT, SPEC = [(np.zeros([size, 2]), 0) for size in (1, 2)], (tf.TensorSpec([None, 2]), tf.TensorSpec([], tf.int32))


def test_tf_data_equals_arrays():
    expected = from_arrays(IMAGES, LABELS, IMAGES[:2], LABELS[:2])
    dataset = from_tf_data(pairs(IMAGES, LABELS), pairs(IMAGES, LABELS).take(2), class_names=("a", "b", "c"))
    assert dataset.sha256 == expected.sha256 and dataset.class_names == ("a", "b", "c")
    one_hot = pairs(IMAGES, tf.one_hot(LABELS, 3))
    assert from_tf_data(one_hot, one_hot.take(2)).sha256 == expected.sha256
    named = pairs(IMAGES, [f"class {label}" for label in LABELS])
    assert from_tf_data(named, named.take(2)).class_names == ("class 0", "class 1", "class 2")
    mapped = pairs(IMAGES, LABELS).map(lambda x, y: (x, y))
    assert from_tf_data(mapped, mapped.take(2)).sha256 == expected.sha256
    shuffled = pairs(ROWS, LABELS).batch(4).map(lambda x, y: (2 * x, y)).unbatch()
    assert from_tf_data(shuffled, shuffled).train.x.tolist() == (2 * ROWS).astype(np.float32).tolist()


def test_invalid_tf_data_are_rejected():
    for train, message in (
        (lambda: zip(IMAGES, LABELS), "tf.data, train: must be a tf.data.Dataset, such as .* Received: zip"),
        (lambda: pairs(IMAGES, LABELS).batch(2), r"tf.data, train: must yield pairs \(x, y\); call unbatch\(\) on"),
        (lambda: pairs(IMAGES, LABELS).batch(2, True), r"must yield one example at a time; call unbatch\(\) on"),
        (lambda: tf.data.Dataset.from_tensor_slices(IMAGES), r"must yield pairs \(x, y\)"),
        (
            lambda: tf.data.Dataset.from_generator(lambda: DIFFERENT, output_signature=SPEC),
            r"shape. Received: \[\(1, 2\), \(2, 2\)\]",
        ),
        (lambda: pairs(IMAGES, LABELS).repeat(), r"train: must be finite; call take\(n\)"),
        (lambda: pairs(IMAGES, LABELS).take(0), r"train: must yield at least one example. Received: none"),
    ):
        with pytest.raises(InputError, match=message):
            from_tf_data(train(), pairs(IMAGES, LABELS))


def test_names_are_read_from_the_file(tmp_path):
    arrays = {"x_train": ROWS, "y_train": LABELS, "x_test": ROWS[:2], "y_test": LABELS[:2]}
    np.savez(tmp_path / "own.npz", **arrays, class_names=["a", "b", "c", "d"], feature_names=["x", "y"])
    dataset = npz.load(tmp_path, path="own.npz")
    assert (dataset.classes, dataset.class_names, dataset.source) == (4, tuple("abcd"), f"table ({tmp_path}/own.npz)")
    assert [field.name for field in dataset.fields] == ["x", "y"]
