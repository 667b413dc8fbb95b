"""Fields of a written prediction: the outputs of a model under the names that users read."""

import itertools
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from hetero_tf.base.errors import InputError
from hetero_tf.data.targets import LABEL, LABEL_MAP, LABEL_SET, NUMBERS, POSITIONS
from hetero_tf.export.positions import MASK, TOP
from hetero_tf.export.prediction_items import ItemForm

# Kinds whose models predict words; the others predict the targets of their task.
WORDS = ("text", "next_word")
# Field of the path of a map, which `class_maps` writes.
MAP = "map"
INVALID = "a sentence must contain a word"
# Names of the ranked fields of a prediction, by the form of the targets.
RANKED = {LABEL: ("class", "probability"), LABEL_MAP: ("class", "share"), POSITIONS: ("word", "probability")}


def to_fields(form: ItemForm, outputs: Mapping[str, Any] | None, top: int) -> dict[str, Any]:
    """Return the fields of a prediction.

    Args:
        form: Form of the items.
        outputs: Outputs of the signature for one item, NumPy arrays without the batch axis; None: no prediction.
        top: Maximum number of classes or words.

    Returns:
        By the form of the targets. Labels: "class" and "probability", then "class_2", "probability_2" and so on, most
        likely first after the predicted class. Words: the same with "word"; if `<mask>` marks them, each field is a
        list with an entry for each. Label maps: the same with the "share" of the pixels. Label sets: lists of "labels"
        above probability 1/2 and of their "probabilities". Numbers: one field for each target. The values are None
        without outputs.

    Raises:
        InputError: The item is invalid for the model, such as a text without a word.
    """
    if form.targets not in RANKED:
        names = form.class_names if form.targets == NUMBERS else ("labels", "probabilities")
        return dict.fromkeys(names) if outputs is None else dict(zip(names, _read_values(form, outputs)))
    count = min(top, form.classes, *([TOP] if form.kind in WORDS else []))
    suffixes = ["", *(f"_{rank}" for rank in range(2, count + 1))]
    names = tuple(name + suffix for suffix in suffixes for name in RANKED[form.targets])
    if outputs is None:
        return dict.fromkeys(names)
    rankings = [itertools.chain.from_iterable(ranking) for ranking in _rank(form, outputs, count)]
    values = zip(*rankings)
    if form.kind == "text":
        return dict(zip(names, map(list, values)))
    # A map may have fewer classes than ranks.
    return {**dict.fromkeys(names), **dict(zip(names, (value for (value,) in values)))}


def _read_values(form, outputs):
    """Return the number of each target, or the labels of a set and their probabilities."""
    values = outputs["values" if form.targets == NUMBERS else "probabilities"]
    if np.isnan(values).any():
        raise InputError(INVALID)
    if form.targets == NUMBERS:
        return [_shorten(value) for value in values]
    present = [index for index in np.argsort(-values, kind="stable") if outputs["labels"][index] == 1]
    return [form.class_names[index] for index in present], [_shorten(values[index]) for index in present]


def _rank(form, outputs, count):
    """Return (name, number) pairs, the largest number first: one list, or one for each `<mask>`."""
    if form.kind == "text":
        if not outputs["is_mask"].any():
            raise InputError(f"a sentence must contain {MASK} for the word to predict")
        masks = zip(outputs["topk_tokens"], outputs["topk_probabilities"], outputs["is_mask"])
        return [_pairs(map(bytes.decode, words), values, count) for words, values, is_mask in masks if is_mask]
    if form.kind == "next_word":
        if not outputs["lengths"]:
            raise InputError("the beginning of a sentence must contain a word")
        return [_pairs(map(bytes.decode, outputs["next_words"]), outputs["next_probabilities"], count)]
    if (outputs["class"] < 0).any():
        raise InputError(INVALID)
    numbers = outputs["probabilities"]
    if form.targets == LABEL_MAP:
        counts = np.bincount(outputs["class"].reshape(-1), minlength=form.classes)
        numbers, count = (counts / outputs["class"].size).astype(np.float32), min(count, np.count_nonzero(counts))
    best = np.argsort(-numbers, kind="stable")
    if form.targets == LABEL:
        # The predicted class of ordered classes is a median, which may not be the most probable one.
        best = np.array(sorted(best, key=lambda index: index != outputs["class"]))
    best = best[:count]
    return [_pairs((form.class_names[index] for index in best), numbers[best], count)]


def _pairs(names: Iterable[str], numbers: np.ndarray, count: int) -> list[tuple[str, float]]:
    return [(name, _shorten(number)) for name, number in zip(names, numbers[:count])]


def _shorten(number: np.float32) -> float:
    """Return the number with the fewest decimals that is the same float32."""
    return float(str(number))


def format_fields(form: ItemForm, fields: Mapping[str, Any]) -> str:
    """Return the fields of a prediction as one line, such as "cat 93.1 %, dog 4.2 %" or "price 12.5"."""
    if form.targets == NUMBERS:
        return ", ".join(f"{name} {value:.6g}" for name, value in fields.items())
    ranked = [value for name, value in fields.items() if value is not None and name != MAP]
    values = [value if isinstance(value, list) else [value] for value in ranked]
    if form.targets == LABEL_SET:
        return ", ".join(f"{name} {100 * share:.1f} %" for name, share in zip(*values)) or "no label"
    rankings = zip(*(zip(names, shares) for names, shares in zip(values[::2], values[1::2])))
    return "; ".join(", ".join(f"{name} {100 * share:.1f} %" for name, share in ranking) for ranking in rankings)
