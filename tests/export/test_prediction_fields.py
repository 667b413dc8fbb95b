"""Fields of predictions: ranks, names, words, and items that a model rejects."""

import numpy as np
import pytest
from refusals import refusal

from hetero_tf.export.prediction_fields import format_fields, to_fields
from hetero_tf.export.prediction_items import ItemForm

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


def form(kind, targets, classes=3):
    return ItemForm(kind, targets, classes, ("cow", "ox", "pig"), (), (), True)


@pytest.mark.parametrize(
    ("kind", "targets", "outputs", "top", "fields", "line"),
    [
        ("table", "label", LABELS, 1, {"class": "ox", "probability": 0.7}, "ox 70.0 %"),
        (
            "images",
            "label",
            LABELS,
            2,
            {"class": "ox", "probability": 0.7, "class_2": "pig", "probability_2": 0.2},
            "ox 70.0 %, pig 20.0 %",
        ),
        ("next_word", "positions", NEXT, 1, {"word": "a", "probability": 0.7}, "a 70.0 %"),
        (
            "text",
            "positions",
            MASKS,
            2,
            {"word": ["a", "é"], "probability": [0.7] * 2, "word_2": ["b", "f"], "probability_2": [0.2] * 2},
            "a 70.0 %, b 20.0 %; é 70.0 %, f 20.0 %",
        ),
        ("table", "label_set", LABEL_SET, 1, {"labels": ["ox"], "probabilities": [0.7]}, "ox 70.0 %"),
        (
            "table",
            "label_set",
            {**LABEL_SET, "labels": np.zeros(3)},
            1,
            {"labels": [], "probabilities": []},
            "no label",
        ),
        (
            "images",
            "label_map",
            LABEL_MAP,
            3,
            {"class": "ox", "share": 0.75, "class_2": "pig", "share_2": 0.25, "class_3": None, "share_3": None},
            "ox 75.0 %, pig 25.0 %",
        ),
        ("table", "numbers", {"values": SHARES}, 1, {"cow": 0.1, "ox": 0.7, "pig": 0.2}, "cow 0.1, ox 0.7, pig 0.2"),
    ],
)
def test_fields_follow_the_targets(kind, targets, outputs, top, fields, line):
    assert to_fields(form(kind, targets), outputs, top) == fields
    assert format_fields(form(kind, targets), fields) == line
    assert to_fields(form(kind, targets), None, top) == dict.fromkeys(fields)


def test_there_are_at_most_as_many_ranks_as_classes_and_five_words():
    assert len(to_fields(form("table", "label"), LABELS, 9)) == 6
    assert len(to_fields(form("text", "positions", 90), None, 9)) == 10


@pytest.mark.parametrize(
    ("kind", "targets", "outputs", "message"),
    [
        ("sequences", "numbers", {"values": SHARES * np.nan}, "a sentence must contain a word"),
        ("sequences", "label", {**LABELS, "class": np.int32(-1)}, "a sentence must contain a word"),
        ("next_word", "positions", {**NEXT, "lengths": 0}, "the beginning of a sentence must contain a word"),
        (
            "text",
            "positions",
            {**MASKS, "is_mask": np.zeros(3, bool)},
            "a sentence must contain <mask> for the word to predict",
        ),
    ],
)
def test_invalid_items_have_a_reason(kind, targets, outputs, message):
    assert refusal(to_fields, form(kind, targets), outputs, 1) == message
