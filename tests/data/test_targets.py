"""Forms of targets: names and values of predictions, ranks, words, and items that a model rejects."""

import numpy as np
import pytest
from refusals import refusal

from hetero_tf.data import targets

SHARES = np.array([0.1, 0.7, 0.2], np.float32)
LABELS = {"class": np.int32(1), "probabilities": SHARES}
NEXT = {"lengths": 2, "next_words": np.array([b"a", b"b"]), "next_probabilities": SHARES[1:]}
MASKS = {
    "is_mask": np.array([True, False, True]),
    "topk_tokens": np.array([[b"a", b"b"], [b"c", b"d"], [b"\xc3\xa9", b"f"]]),
    "topk_probabilities": np.array([SHARES[1:]] * 3),
}


LABEL_SET = {"labels": np.array([0, 1, 0]), "probabilities": SHARES}
LABEL_MAP = {"class": np.array([[1, 1], [2, 1]]), "probabilities": np.zeros([2, 2, 3])}
OUTPUTS = {"cow": np.array([0.5, 2.0]), "ox": np.array([1.0]), "pig": np.array(0.25)}


NAMES = ("cow", "ox", "pig")


def read(form, outputs, top):
    names = targets.find(form).names(NAMES, len(NAMES), top)
    return dict(zip(names, targets.find(form).read(outputs, NAMES, len(names) // 2)))


@pytest.mark.parametrize(
    ("form", "outputs", "top", "fields", "line"),
    [
        ("label", LABELS, 1, {"class": "ox", "probability": 0.7}, "ox 70.0 %"),
        ("label", LABELS, 2, {"class": "ox", "probability": 0.7, "class_2": "pig", "probability_2": 0.2}, "ox 70.0 %, pig 20.0 %"),
        ("positions", NEXT, 1, {"word": "a", "probability": 0.7}, "a 70.0 %"),
        ("positions", MASKS, 2, {"word": ["a", "é"], "probability": [0.7] * 2, "word_2": ["b", "f"], "probability_2": [0.2] * 2}, "a 70.0 %, b 20.0 %; é 70.0 %, f 20.0 %"),
        ("label_set", LABEL_SET, 1, {"labels": ["ox"], "probabilities": [0.7]}, "ox 70.0 %"),
        ("label_set", {**LABEL_SET, "labels": np.zeros(3)}, 1, {"labels": [], "probabilities": []}, "no label"),
        ("label_map", LABEL_MAP, 3, {"class": "ox", "share": 0.75, "class_2": "pig", "share_2": 0.25}, "ox 75.0 %, pig 25.0 %"),
        ("numbers", {"values": SHARES}, 1, {"cow": 0.1, "ox": 0.7, "pig": 0.2}, "cow 0.1, ox 0.7, pig 0.2"),
        ("several_targets", OUTPUTS, 1, {"cow": [0.5, 2.0], "ox": 1.0, "pig": 0.25}, "cow [0.5, 2.0], ox 1.0, pig 0.25"),
    ],
)  # fmt: skip
def test_a_prediction_has_the_fields_of_its_form(form, outputs, top, fields, line):
    assert read(form, outputs, top) == fields
    assert targets.find(form).format({**fields, **({"map": "a.png"} if form == "label_map" else {})}) == line


def test_an_invalid_item_has_a_reason_and_ranks_are_limited():
    for form, outputs, message in (
        ("numbers", {"values": SHARES * np.nan}, "a sentence"),
        ("several_targets", {**OUTPUTS, "ox": np.array(np.nan)}, "a sentence"),
        ("label", {**LABELS, "class": np.int32(-1)}, "a sentence"),
        ("label_set", {**LABEL_SET, "probabilities": SHARES * np.nan}, "a sentence"),
        ("label_map", {**LABEL_MAP, "class": np.array([[1, -1]])}, "a sentence"),
        ("positions", {**NEXT, "lengths": 0}, "the beginning of a sentence"),
    ):
        assert refusal(read, form, outputs, 1) == f"{message} must contain a word"
    message = "a sentence must contain <mask> for the word to predict"
    assert refusal(read, "positions", {**MASKS, "is_mask": np.zeros(3)}, 1) == message
    # At most as many ranks as classes, and five words.
    assert len(read("label", LABELS, 9)) == 6 and len(targets.find("positions").names((), 90, 9)) == 10


@pytest.mark.parametrize("form", targets.FORMS)
def test_drawn_targets_have_their_form(form):
    y = targets.find(form).draw(np.arange(6, dtype=np.int32) % 3, 3, (6, 2, 2, 1), ((1.0, 2, 3), (1.0, 1, 1)))
    assert targets.form_of(y) == form
    if y is not None:
        train, test = targets.strata(y, y[:2])
        assert train.dtype == np.int32 and 2 <= train.max() == len(np.unique(train)) - 1 and (test == train[:2]).all()
    assert "targets must be one of label, label_map, label_set, numbers, positions" in refusal(targets.find, "words")
