"""Answers pictures or sentences by a trained model, through the functions that its export would have."""

import tempfile
from collections.abc import Sequence
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

from hetero_tf.base import files
from hetero_tf.base.errors import BadInput, short
from hetero_tf.base.pictures import LARGEST_PICTURE
from hetero_tf.export import images, text
from hetero_tf.process import LearningProcess

# Bytes of a picture file: four for each pixel that it may have.
LARGEST_FILE = 4 * LARGEST_PICTURE
TOP = 3


def predict(process: LearningProcess, model: keras.Model, inputs: Sequence[str]) -> list[dict]:
    """Answers each input by itself.

    Args:
        process: `process.LearningProcess`.
        model: As `process.model` gives it.
        inputs: Paths of pictures, or sentences with `<mask>` words.

    Returns:
        For each of them {"input", "answers"}: the most likely labels of a picture as `[name, percent]`, or for each
        `<mask>` of a sentence a list of such pairs, words for labels.

    Raises:
        BadInput: An input cannot be read, or the data set has neither pictures nor a vocabulary.
    """
    kind, signature = (images, "serve_bytes") if process.dataset.kind == "images" else (text, "serve_text")
    with tempfile.TemporaryDirectory() as scratch:
        endpoints, _ = kind.endpoints(process, model, Path(scratch))
        if signature not in endpoints:
            lacks = "pictures of 1 or 3 channels" if kind is images else "a vocabulary"
            raise BadInput(f"predict needs a data set with {lacks}. Received: {process.dataset.source}")
        answer = _of_picture if kind is images else _of_sentence
        return [{"input": given, "answers": answer(process, endpoints[signature][0], given)} for given in inputs]


def _of_picture(process, serve, path):
    data = files.read_bytes(path, LARGEST_FILE, follow=True)
    try:
        found = serve(tf.constant([data]))
    except tf.errors.InvalidArgumentError as error:
        raise BadInput(f"{path}: is a damaged picture: {short(error.message)}") from error
    if found["class"].numpy()[0] < 0:
        raise BadInput(
            f"{path}: must be a PNG, JPEG or BMP picture without translucent parts, of at most {LARGEST_PICTURE:,} "
            "pixels"
        )
    names = process.dataset.class_names or [str(number) for number in range(process.dataset.classes)]
    chances = found["probabilities"].numpy()[0]
    return [[names[label], 100 * float(chances[label])] for label in np.argsort(-chances)[:TOP]]


def _of_sentence(process, serve, sentence):
    found = {name: value.numpy()[0] for name, value in serve(tf.constant([sentence])).items()}
    if not found["is_mask"].any():
        raise BadInput(f"a sentence must hold {text.MASK} where a word is to be found. Received: {sentence!r}")
    return [
        [[word.decode(), 100 * float(chance)] for word, chance in zip(words, chances)]
        for words, chances, hidden in zip(found["topk_tokens"], found["topk_probabilities"], found["is_mask"])
        if hidden
    ]
