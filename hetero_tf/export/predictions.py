"""Answers pictures, rows or sentences by a trained model, through the functions that its export would have."""

from collections.abc import Sequence

import keras
import numpy as np
import tensorflow as tf

from hetero_tf.base import files
from hetero_tf.base.errors import InputError
from hetero_tf.base.exits import temporary_folder
from hetero_tf.base.picture_decoding import fault_of
from hetero_tf.base.picture_files import LARGEST_PICTURE, fault_of_file
from hetero_tf.data.columns import Column, encode_row
from hetero_tf.data.sentences import words_of
from hetero_tf.export import images, next_word, sequences, table, text
from hetero_tf.export.kinds import kind_of
from hetero_tf.process.learning_process import LearningProcess

# Bytes of a picture file: four for each pixel that it may have.
LARGEST_FILE = 4 * LARGEST_PICTURE
TOP = 3


def predict(process: LearningProcess, model: keras.Model, inputs: Sequence[str]) -> list[dict]:
    """Answers each input by itself.

    Args:
        process: `process.LearningProcess`.
        model: As `process.model` gives it.
        inputs: Paths of pictures, rows of a table as `columns.encode_row` takes them, sentences, beginnings of
            sentences, or sentences with `<mask>` words, as the model takes them.

    Returns:
        For each of them {"input", "answers"}: the most likely labels of a picture, row or sentence, or the most likely
        next words of its beginning, as `[name, percent]`; or for each `<mask>` of a sentence a list of such pairs.

    Raises:
        InputError: An input cannot be read, or the data set has neither pictures, a table nor a vocabulary.
    """
    kind = kind_of(process)
    signature, answer, lacks = _OF_KINDS[kind]
    with temporary_folder() as scratch:
        endpoints, _ = kind.endpoints(process, model, scratch)
        if signature not in endpoints:
            raise InputError(f"predict needs a data set with {lacks}. Received: {process.dataset.source}")
        return [{"input": given, "answers": answer(process, endpoints[signature][0], given)} for given in inputs]


def _of_picture(process, serve, path):
    data = files.read_bytes(path, LARGEST_FILE, follow=True)
    # TensorFlow's decoders print warnings of their own about files that are cut off.
    if (fault := fault_of_file(data)) is not None:
        raise InputError(f"{path}: {fault}")
    found = serve(tf.constant([data]))
    if found["class"].numpy()[0] < 0:
        raise InputError(f"{path}: {fault_of(data)}")
    return _likeliest(process, found)


def _of_row(process, serve, row):
    (features,) = process.dataset.train.x.shape[1:]
    columns = process.dataset.columns or tuple(Column(f"feature {place}") for place in range(features))
    return _likeliest(process, serve(tf.constant([encode_row(row, columns)], tf.float32)))


def _likeliest(process, found):
    names = process.dataset.class_names or [str(number) for number in range(process.dataset.classes)]
    chances = found["probabilities"].numpy()[0]
    return [[names[label], 100 * float(chances[label])] for label in np.argsort(-chances)[:TOP]]


def _of_sentence(process, serve, sentence):
    found = {name: value.numpy()[0] for name, value in serve(tf.constant([sentence])).items()}
    if not found["is_mask"].any():
        raise InputError(f"a sentence must hold {text.MASK} where a word is to be found. Received: {sentence!r}")
    return [
        [[word.decode(), 100 * float(chance)] for word, chance in zip(words, chances)]
        for words, chances, hidden in zip(found["topk_tokens"], found["topk_probabilities"], found["is_mask"])
        if hidden
    ]


def _of_whole_sentence(process, serve, sentence):
    if not words_of(sentence):
        raise InputError(f"a sentence must hold a word. Received: {sentence!r}")
    return _likeliest(process, serve(tf.constant([sentence])))


def _of_beginning(process, serve, sentence):
    found = {name: value.numpy()[0] for name, value in serve(tf.constant([sentence])).items()}
    if not found["lengths"]:
        raise InputError(f"the beginning of a sentence must hold a word. Received: {sentence!r}")
    return [
        [word.decode(), 100 * float(chance)] for word, chance in zip(found["next_words"], found["next_probabilities"])
    ]


# Of each kind: the signature that is asked, how, and what a data set without it lacks.
_OF_KINDS = {
    images: ("serve_bytes", _of_picture, "pictures of 1 or 3 channels"),
    next_word: ("serve_text", _of_beginning, "a vocabulary"),
    sequences: ("serve_text", _of_whole_sentence, "a vocabulary"),
    table: ("serving_default", _of_row, "columns"),
    text: ("serve_text", _of_sentence, "a vocabulary"),
}
