"""Predictions of a trained model for pictures, rows or sentences, by the signatures of its export."""

from collections.abc import Sequence

import keras
import numpy as np
import tensorflow as tf

from hetero_tf.base import files
from hetero_tf.base.errors import InputError
from hetero_tf.base.exits import temporary_folder
from hetero_tf.base.picture_decoding import describe_fault
from hetero_tf.base.picture_files import LARGEST_PICTURE, describe_file_fault
from hetero_tf.data.columns import Column, encode_row
from hetero_tf.data.sentences import split_words
from hetero_tf.export import images, next_word, sequences, table, text
from hetero_tf.export.kinds import task_of
from hetero_tf.process.learning_process import LearningProcess

# Bytes of a picture file: four for each allowed pixel.
LARGEST_FILE = 4 * LARGEST_PICTURE
TOP = 3


def predict(process: LearningProcess, model: keras.Model, inputs: Sequence[str]) -> list[dict]:
    """Return a prediction for each input.

    Args:
        process: `process.LearningProcess`.
        model: Keras model of the level, see `process.network`.
        inputs: Depending on the model: paths of pictures, rows of a table in the form of `columns.encode_row`,
            sentences, beginnings of sentences, or sentences with `<mask>` words.

    Returns:
        {"input", "answers"} for each input. "answers" holds the most likely labels, or next words, as
        `[name, percent]`; for a sentence with `<mask>` words, a list of such pairs for each of them.

    Raises:
        InputError: An input cannot be read, or the data set has neither pictures, a table nor a vocabulary.
    """
    task = task_of(process)
    signature, predict_one, requirement = _BY_TASK[task]
    with temporary_folder() as scratch:
        endpoints, _ = task.endpoints(process, model, scratch)
        if signature not in endpoints:
            raise InputError(f"predict needs a data set with {requirement}. Received: {process.dataset.source}")
        return [{"input": item, "answers": predict_one(process, endpoints[signature][0], item)} for item in inputs]


def _predict_picture(process, serve, path):
    data = files.read_bytes(path, LARGEST_FILE, follow=True)
    # Check first, because TensorFlow's decoders print warnings about truncated files.
    if (fault := describe_file_fault(data)) is not None:
        raise InputError(f"{path}: {fault}")
    outputs = serve(tf.constant([data]))
    if outputs["class"].numpy()[0] < 0:
        raise InputError(f"{path}: {describe_fault(data)}")
    return _top_labels(process, outputs)


def _predict_row(process, serve, row):
    (features,) = process.dataset.train.x.shape[1:]
    columns = process.dataset.columns or tuple(Column(f"feature {index}") for index in range(features))
    return _top_labels(process, serve(tf.constant([encode_row(row, columns)], tf.float32)))


def _top_labels(process, outputs):
    names = process.dataset.class_names or [str(number) for number in range(process.dataset.classes)]
    probabilities = outputs["probabilities"].numpy()[0]
    return [[names[label], 100 * float(probabilities[label])] for label in np.argsort(-probabilities)[:TOP]]


def _fill_masks(process, serve, sentence):
    outputs = {name: value.numpy()[0] for name, value in serve(tf.constant([sentence])).items()}
    if not outputs["is_mask"].any():
        raise InputError(f"a sentence must contain {text.MASK} for the word to predict. Received: {sentence!r}")
    return [
        [[word.decode(), 100 * float(probability)] for word, probability in zip(words, probabilities)]
        for words, probabilities, is_mask in zip(
            outputs["topk_tokens"], outputs["topk_probabilities"], outputs["is_mask"]
        )
        if is_mask
    ]


def _predict_sentence(process, serve, sentence):
    if not split_words(sentence):
        raise InputError(f"a sentence must contain a word. Received: {sentence!r}")
    return _top_labels(process, serve(tf.constant([sentence])))


def _predict_next_words(process, serve, sentence):
    outputs = {name: value.numpy()[0] for name, value in serve(tf.constant([sentence])).items()}
    if not outputs["lengths"]:
        raise InputError(f"the beginning of a sentence must contain a word. Received: {sentence!r}")
    return [
        [word.decode(), 100 * float(probability)]
        for word, probability in zip(outputs["next_words"], outputs["next_probabilities"])
    ]


# Of each task: the signature, the function that calls it, and the requirement on the data set.
_BY_TASK = {
    images: ("serve_bytes", _predict_picture, "pictures of 1 or 3 channels"),
    next_word: ("serve_text", _predict_next_words, "a vocabulary"),
    sequences: ("serve_text", _predict_sentence, "a vocabulary"),
    table: ("serving_default", _predict_row, "columns"),
    text: ("serve_text", _fill_masks, "a vocabulary"),
}
