"""The checks of `Dataset`, its digest, and the choice of loader and stand-in."""

import dataclasses

import numpy as np
import pytest
from refusals import raising, refusal

from hetero_tf import data
from hetero_tf.base.errors import InputError
from hetero_tf.data.codecs import Field, number, picture, running_text
from hetero_tf.data.dataset import Dataset, NotAvailable, Split
from hetero_tf.recipe.schema import Plugin


def images(count=4, size=3, top=1):
    return Split(np.zeros((count, size, size, 1), np.uint8), (np.arange(count) % (top + 1)).astype(np.int32))


def text(rows=2, top=4):
    return Split(np.full((rows, 5), top, np.int32))


def build(train, test=None, classes=2, fields=None, source="s", **named):
    codec = running_text.Codec(5, count=5) if train.x.ndim < 3 else None
    shape = train.x.shape if train.x.ndim == 4 else (0, 3, 3, 1)
    fields = fields or (Field("x", codec or picture.Codec(tuple(shape[1:]))),)
    return Dataset(train, train if test is None else test, fields, classes, source, **named)


def test_invalid_arrays_are_rejected():
    for train, test, classes, message in (
        (images(), images(top=2), 2, r"s, test split: every label must be in 0..1. Received: 2 at position 2"),
        (images(), Split(images().x, images().y - 1), 2, r"every label must be in 0..1. Received: -1 at position 0"),
        (text(), text(top=7), 5, r"every word id must be in 0..4. Received: 7 at position 0"),
        (images(size=3), images(size=4), 2, r"must have the same shape. Received: \(3, 3, 1\) and \(4, 4, 1\)"),
        (images(), text(), 5, r"test split: expected images .* Received: int32 \(2, 5\)"),
        (text(), images(), 5, r"test split: expected words int32 \[rows, length\].* Received: uint8 \(4, 3, 3, 1\)"),
        (text(), Split(text().x, images(2).y), 5, r"test split: expected no labels, one per row. Received: int32 \(2,"),
        (Split(images().x), images(), 2, r"expected labels int32 \[n\], one per image. Received: none"),
        (images(count=0), images(), 2, r"all dimensions above 0. Received: uint8 \(0, 3, 3, 1\)"),
        (Split(images().x[..., 0], images().y), images(), 2, r"Received: uint8 \(4, 3, 3\)"),
        (Split(images().x.astype(int), images().y), images(), 2, r"Received: int64 \(4, 3, 3, 1\)"),
        (Split(images().x * np.nan, images().y), images(), 2, r"expected finite pixels. Received: nan in \(0, 0, 0"),
        (Split(images().x, images(3).y), images(), 2, r"int32 \[4\], one per image. Received: int32 \(3,\)"),
        (Split(images().x, images().y.astype(np.int64)), images(), 2, r"Received: int64 \(4,\)"),
        (Split(text().x.astype(np.int64)), text(), 5, r"expected words int32 \[rows, length\].* int64 \(2, 5\)"),
        (Split(text().x[0]), text(), 5, r"Received: int32 \(5,\)"),
    ):
        with pytest.raises(InputError, match=message):
            build(train, test, classes)


def test_owners_must_fit_and_belong_to_the_digest():
    for owners, message in (
        (np.arange(4), r"train split: expected owners int32 \[4\]. Received: int64 \(4,\)"),
        (np.arange(3, dtype=np.int32), r"train split: expected owners int32 \[4\]. Received: int32 \(3,\)"),
        (np.array([0, 1, -2, 0], np.int32), "train split: owners must be integers from 0. Received: -2 at position 2"),
    ):
        with pytest.raises(InputError, match=message):
            build(Split(images().x, images().y, owners), images(2))
        with pytest.raises(InputError, match=message.replace("train", "test")):
            build(images(), Split(images().x, images().y, owners))

    def digest(train=None, test=None):
        arrays = [None if owners is None else np.array(owners, np.int32) for owners in (train, test)]
        return build(*(dataclasses.replace(images(), owners=owners) for owners in arrays)).sha256

    one, other = [5, 5, 0, 7], [5, 0, 5, 7]
    assert digest() == build(images()).sha256 and digest(one) == digest(one)
    assert len({digest(), digest(one), digest(other), digest(None, one), digest(one, one)}) == 5


def test_names_must_be_as_many_as_the_classes():
    end = "must have one entry per class. Received: 2 entries, classes=5"
    assert f"`class_names` {end}" in refusal(build, text(), classes=5, class_names=("a", "b"))
    with pytest.raises(InputError, match=f"`vocabulary` {end}"):
        build(text(), classes=5, fields=(Field("text", running_text.Codec(5, ("a", "b"))),))
    with pytest.raises(InputError, match=r"`fields` must describe the examples, of shape \(3, 3, 1\). Received: 1 "):
        build(images(), fields=(Field("x", picture.Codec((3, 4, 1))),))


def test_classes_are_numbered_in_the_order_of_their_names():
    grades = build(images(top=2), classes=3, class_names=("high", "low", "medium"))
    ordered = grades.in_class_order(("low", "medium", "high"))
    assert ordered.class_names == ("low", "medium", "high") and grades.train.y.tolist() == [0, 1, 2, 0]
    assert ordered.train.y.tolist() == ordered.test.y.tolist() == [2, 0, 1, 2]
    with pytest.raises(InputError, match=r"each class name once; those of s: high, low, medium\. .*\['low'\]"):
        grades.in_class_order(("low",))
    assert "those of s: none" in refusal(build(images()).in_class_order, ("a", "b"))


def test_digest_is_of_the_content_only_and_pixels_have_no_statistics():
    one = build(images(), images(2), source="here")
    assert one.sha256 == build(images(), images(2), source="there", stand_in_for="x").sha256
    changed = images()
    changed.x[3, 2, 2, 0] = 1
    others = [
        build(changed, images(2)),
        build(images(), changed),
        build(images(), images(2), 3),
        build(Split(images().x, images().y[::-1].copy()), images(2)),
        build(images(), images(2), fields=(Field("photo", picture.Codec((3, 3, 1))),)),
        build(text(), classes=5),
        build(text(), classes=5, fields=(Field("text", running_text.Codec(5, tuple("abcde"))),)),
    ]
    assert len({one.sha256, *(other.sha256 for other in others)}) == 8
    with pytest.raises(InputError, match="s: images have no statistics of features"):
        build(images()).feature_statistics  # noqa: B018


def test_unknown_loaders_and_fallbacks_are_named_and_damaged_data_never_replaced(tmp_path):
    assert "no 'digitz' in data; did you mean 'digits'?" in refusal(data.load, Plugin("digitz"))
    with pytest.raises(InputError, match="an embedded data set. Received: fallback='pydocs'; did you mean 'pydoc'?"):
        data.load(Plugin("digits"), "pydocs")
    (tmp_path / "wikitext-2").mkdir()
    (tmp_path / "wikitext-2" / "train.txt").write_text("another text\n")
    assert "differs from the published text" in refusal(data.load, Plugin("wikitext2"), "pydoc", tmp_path)


@pytest.mark.parametrize(
    ("dataset", "options", "size", "channels"),
    [
        ("femnist", {}, 28, 1),
        ("cifar10", {}, 32, 3),
        ("emnist/balanced", {}, 28, 1),
        ("cifar10", {"size": 16}, 16, 3),
        ("mnist", {"size": None}, 28, 1),
        ("beans", {"size": None}, 8, 1),
    ],
)
def test_digits_stand_in_with_the_shape_of_the_missing_set(tmp_path, dataset, options, size, channels, monkeypatch):
    plugin = Plugin("femnist") if dataset == "femnist" else Plugin("tfds", {"dataset": dataset, **options})
    missing = raising(NotAvailable("not there; put it there"))
    monkeypatch.setattr(data.registry.find("data", plugin.name), "load", missing)
    loaded = data.load(plugin, "digits", tmp_path)
    assert (loaded.train.x.shape[1:], loaded.stand_in_for) == ((size, size, channels), dataset)
    name = f"UCI handwritten digits (embedded, {size} x {size} x {channels})"
    assert loaded.source == f"{name}, standing in for {dataset}: not there"
    assert loaded.name == f"UCI handwritten digits, standing in for {dataset}"


def test_pydoc_stands_in_with_the_rows_of_the_recipe(tmp_path):
    loaded = data.load(Plugin("wikitext2", {"rows": 7, "test_rows": 3, "download": False}), "pydoc", tmp_path)
    assert (len(loaded.train.x), len(loaded.test.x)) == (7, 3)
    assert loaded.stand_in_for == "wikitext2"
    assert f"standing in for wikitext2: WikiText-2 was not found in {tmp_path}/wikitext-2" in loaded.source
    assert str(tmp_path) not in loaded.name


def test_images_with_the_channels_first_are_rejected():
    for shapes, is_valid in (
        (((3, 16, 16), (1, 16, 16), (12, 64, 64)), False),
        (((16, 16, 3), (3, 16, 3), (7, 7, 512)), True),
    ):
        for shape in shapes:
            split = Split(np.zeros((2, *shape), np.uint8), np.zeros(2, np.int32))
            if is_valid:
                assert build(split, classes=1).codec.KIND == "images"
            else:
                assert "the second axis seems to be the channels; convert" in refusal(build, split, classes=1)


def test_names_that_are_not_unicode_are_rejected():
    """JSON, and arrays of NumPy, may hold half of a surrogate pair, which no file can be written with."""
    split = Split(np.zeros((2, 1), np.float32), np.array([0, 1], np.int32))
    for names, column in ((("a", "\ud800"), "c"), (None, "\ud800")):
        with pytest.raises(InputError, match=r"must be valid Unicode text. Received: '\\ud800'"):
            build(split, fields=(Field(column, number.Codec()),), class_names=names)
