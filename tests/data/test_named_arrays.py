"""Examples of several named arrays: packed and unpacked without loss, described, and refused if they do not match."""

import json

import numpy as np
import pytest
import tensorflow as tf

from hetero_tf.base.errors import InputError
from hetero_tf.data import from_arrays, from_tf_data, npz
from hetero_tf.data.codecs import split_stored
from hetero_tf.data.described import describe, from_description

RNG = np.random.default_rng(0)
X = {
    "picture": RNG.integers(0, 256, (6, 4, 5, 1), np.uint8),
    "table": RNG.normal(5, 3, (6, 2)).astype(np.float32),
    "series": RNG.normal(-2, 4, (6, 3, 2)).astype(np.float32),
    "words": RNG.integers(0, 9, (6, 3)),
    "size": RNG.normal(size=6),
}
Y = np.arange(6) % 3
FIRST = {name: values[:4] for name, values in X.items()}


def build(x=X, y=Y, x_test=FIRST, y_test=Y[:4]):
    return from_arrays(x, y, x_test, y_test, source="mine")


def unpack(fields, x):
    return {field.name: part for field, part in zip(fields, split_stored(fields, x), strict=True)}


def test_arrays_are_packed_and_unpacked_without_loss():
    dataset = build()
    assert (dataset.train.x.dtype, dataset.train.x.shape) == (np.float32, (6, 32))
    assert [field.codec.dtype for field in dataset.fields] == ["uint8", "float32", "float32", "float32", "int32"]
    for split, expected in ((dataset.train, X), (dataset.test, FIRST)):
        for name, values in unpack(dataset.fields, split.x).items():
            np.testing.assert_array_equal(values, expected[name].astype(np.float32).reshape(values.shape))
    assert build({**X, "words": X["words"] * 1.0}, x_test={**FIRST, "words": 1.0 * FIRST["words"]}).sha256 != (
        dataset.sha256
    )


def test_an_npz_file_has_the_arrays_by_name(tmp_path):
    splits = {"x_train": X, "x_test": FIRST}
    arrays = {f"{split}.{name}": values for split, x in splits.items() for name, values in x.items()}
    np.savez(tmp_path / "a.npz", **arrays, y_train=Y, y_test=Y[:4])
    assert npz.load(tmp_path, path="a.npz").sha256 == build().sha256
    with pytest.raises(InputError, match="`kind` and `feature_names` are for a single array"):
        npz.load(tmp_path, path="a.npz", kind="series")


def test_pixels_and_floats_are_normalised_and_ids_are_not():
    dataset = build()
    offset, divisor = dataset.feature_statistics
    values = unpack(dataset.fields, (dataset.train.x - offset) / divisor)
    scaled = ((dataset.train.x - offset) / divisor).astype(np.float32)
    np.testing.assert_allclose(scaled[:, :20].reshape(X["picture"].shape), X["picture"] / 255, rtol=1e-6)
    np.testing.assert_array_equal(values["words"], X["words"])
    for name in ("table", "series"):
        channels = values[name].reshape(-1, 2)
        np.testing.assert_allclose([channels.mean(0), channels.std(0)], [[0, 0], [1, 1]], atol=1e-6)


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


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"x": {**X, "a b": X["size"]}}, r"mine: x_test must have the arrays picture, .*, a b. Received: \['picture"),
        ({"x_test": X["table"]}, "mine: x_test must have the arrays picture, table, .* Received: ndarray"),
        (
            {"x": {"a b": Y}, "x_test": {"a b": Y}},
            "the name of an array must be letters, digits and _. Received: 'a b'",
        ),
        ({"x": {**X, "size": np.full(6, "a")}}, r"x_train\['size'\] must be finite .* replace texts by ids .* <U1"),
        ({"x": {**X, "size": np.full(6, np.nan)}}, "must be finite numbers .*, whole numbers at most 16,777,216"),
        ({"x": {**X, "words": X["words"] + 2**24}}, "must be finite numbers .*, whole numbers at most 16,777,216"),
        ({"x": {**X, "size": np.zeros(5)}}, "the arrays of x_train must be equally long. .*'size': 5"),
        ({"x_test": {**FIRST, "table": np.zeros((4, 3))}}, r"x_test\['table'\] must have .* float32 \(2,\). .* \(3,\)"),
        ({"y": {"kind": Y}}, "y_train must be whole numbers"),
    ],
)
def test_arrays_that_do_not_match_are_rejected(changed, message):
    with pytest.raises(InputError, match=message):
        build(**changed)
