"""Data sets of arrays and of `tf.data`: what becomes of them, and what is refused; class names in .npz files."""

import numpy as np
import pytest
import tensorflow as tf

from hetero_tf.base.errors import InputError
from hetero_tf.data import from_arrays, from_tf_data, npz
from hetero_tf.data.fields import array_fields

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


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"x_train": np.full((6, 2), "a")}, r"mine: x_train must be numbers \[n, features\], all dimensions above 0"),
        ({"x_train": np.full((6, 2), 1e39)}, r"mine, train split: expected finite numbers. Received: inf in row 0"),
        ({"x_test": np.zeros((0, 2))}, r"x_test must be numbers .* Received: float64 \(0, 2\)"),
        ({"x_test": IMAGES[:2]}, r"mine, test split: expected table rows float32 \[n, features\]"),
        ({"class_names": ["a", "b"]}, r"every label must be in 0..1. Received: 2 at position 2"),
        ({"feature_names": ["a"]}, r"`feature_names` must name the features of a table .* Received: 1 names"),
        ({"y_train": LABELS[:5]}, r"mine, train split: expected labels int32 \[6\], one per row. .* int32 \(5,\)"),
        ({"test_owners": LABELS}, r"expected owners int32 \[2\]. Received: int32 \(6,\)"),
        ({"y_train": np.ma.masked_equal(LABELS, 2)}, "y_train must be whole numbers"),
        ({"x_train": np.ma.masked_equal(ROWS, ROWS[2, 1])}, "expected finite numbers. Received: nan in row 2, feature"),
    ],
)
def test_invalid_arrays_are_rejected(changed, message):
    arrays = {"x_train": ROWS, "y_train": LABELS, "x_test": ROWS[:2], "y_test": LABELS[:2], "source": "mine"}
    with pytest.raises(InputError, match=message):
        from_arrays(**{**arrays, **changed})


def pairs(x, y):
    return tf.data.Dataset.from_tensor_slices((x, y))


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


@pytest.mark.parametrize(
    ("train", "message"),
    [
        (lambda: pairs(IMAGES, LABELS).batch(2), r"tf.data, train: must yield pairs \(x, y\); call unbatch\(\) on"),
        (
            lambda: pairs(IMAGES, LABELS).batch(2, True),
            r"must yield one example at a time; call unbatch\(\) on batches",
        ),
        (lambda: tf.data.Dataset.from_tensor_slices(IMAGES), r"must yield pairs \(x, y\)"),
        (
            lambda: tf.data.Dataset.from_generator(
                lambda: ((np.zeros([size, 2]), 0) for size in (1, 2)),
                output_signature=(tf.TensorSpec([None, 2]), tf.TensorSpec([], tf.int32)),
            ),
            r"train: all examples must have the same shape. Received: \[\(1, 2\), \(2, 2\)\]",
        ),
        (lambda: pairs(IMAGES, LABELS).repeat(), r"train: must be finite; call take\(n\)"),
        (lambda: pairs(IMAGES, LABELS).take(0), r"train: must yield at least one example. Received: none"),
    ],
)
def test_invalid_tf_data_are_rejected(train, message):
    with pytest.raises(InputError, match=message):
        from_tf_data(train(), pairs(IMAGES, LABELS))


def test_names_are_read_from_the_file(tmp_path):
    arrays = {"x_train": ROWS, "y_train": LABELS, "x_test": ROWS[:2], "y_test": LABELS[:2]}
    np.savez(tmp_path / "own.npz", **arrays, class_names=["a", "b", "c", "d"], feature_names=["x", "y"])
    dataset = npz.load(tmp_path, path="own.npz")
    assert (dataset.classes, dataset.class_names, dataset.source) == (4, tuple("abcd"), f"table ({tmp_path}/own.npz)")
    assert [field.name for field in dataset.fields] == ["x", "y"]
    (tmp_path / "own.npz").write_text("a,b\n1,2\n")
    with pytest.raises(InputError, match="own.npz: cannot be read as an .npz file"):
        npz.load(tmp_path, path="own.npz")
    with pytest.raises(
        InputError, match="expected the files x_train.npy, .* Missing: x_train; data: npz reads .npz files"
    ):
        npz.load(tmp_path, path=".")
