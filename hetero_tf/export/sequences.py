"""Export task of a model for sequences of words: signatures for token ids and for sentences."""

import functools
from collections.abc import Callable, Collection
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

from hetero_tf.data.sentences import SIGNS
from hetero_tf.export import labelled, text
from hetero_tf.export.labelled import add_class_names, check_count
from hetero_tf.export.limits import max_examples, pad_if_empty
from hetero_tf.process.learning_process import LearningProcess

# Signature that other formats convert.
PORTABLE_SIGNATURE = "serve_numbers"
# Test rows in one request when outputs are compared with those of the Keras model.
CHECKED_EXAMPLES = 32
UNKNOWN = 1
max_batch_size, model_inputs, limits = labelled.max_batch_size, labelled.model_inputs, labelled.limits


def endpoints(process: LearningProcess, model: keras.Model, scratch: Path) -> tuple[dict, tuple]:
    """Return `{signature: (function, input specs)}` and the lookup tables of the signatures.

    `serving_default`: `token_ids` int32 [n, length], 0 after the last word -> logits, probabilities [n, classes],
    class [n], and class_name [n] if the data set names its classes. `serve_numbers`: the same without names, for
    converters. `serve_text`: `text` string [n], sentences, which the graph splits into words and pads -> the outputs of
    `serving_default`.

    A row with an unknown id and a sentence without a word get NaN and class -1, and do not affect other rows. A row
    that consists of padding is computed as in the evaluation. A request of more than `max_examples` rows, or of another
    shape, is an error.

    Args:
        process: `process.LearningProcess`.
        model: The Keras model.
        scratch: Folder for the vocabulary file, which the SavedModel copies.
    """
    (length,), words = process.input.shape(process.dataset.train.x), vocabulary_of(process)
    limit, names = max_examples(model), process.dataset.class_names
    numbers, _ = text.tables(words, scratch, UNKNOWN)

    def respond(token_ids, is_valid):
        known = is_valid & tf.reduce_all((token_ids >= 0) & (token_ids < len(words)), 1)
        return labelled.classify_valid(process, model, pad_if_empty(tf.where(known[:, None], token_ids, 0)), known)

    def serve_numbers(token_ids):
        # Servers do not check shapes, and a wrong rank may abort the process inside a kernel.
        ids = check_count(tf.ensure_shape(token_ids, (None, length)), limit, "rows")
        return respond(ids, tf.fill(tf.shape(ids)[:1], True))

    def serving_default(token_ids):
        return add_class_names(serve_numbers(token_ids), names)

    def serve_text(text):
        texts = check_count(tf.ensure_shape(text, (None,)), limit, "texts")
        ids = tf.ensure_shape(encode(texts, numbers, length), (None, length))
        # Words never have the id of padding, so only a sentence without words begins with it.
        return add_class_names(respond(ids, ids[:, 0] > 0), names)

    specs = [tf.TensorSpec((None, length), tf.int32, name="token_ids")]
    signatures = {
        "serving_default": (serving_default, specs),
        "serve_numbers": (serve_numbers, specs),
        "serve_text": (serve_text, [tf.TensorSpec((None,), tf.string, name="text")]),
    }
    return signatures, (numbers,)


def vocabulary_of(process: LearningProcess) -> tuple[str, ...]:
    """Return the vocabulary of the data set."""
    return process.dataset.vocabulary or ()


def encode(sentences: tf.Tensor, numbers: tf.lookup.StaticHashTable, length: int) -> tf.Tensor:
    """Return the token ids int32 [n, length] of sentences [n], the same as `data.sentences` makes."""
    spaced = tf.strings.regex_replace(tf.strings.lower(sentences, "utf-8"), SIGNS, r" \1 ")
    words = tf.strings.split(tf.strings.regex_replace(spaced, text.SPACES, " "))
    ids = tf.ragged.map_flat_values(lambda word: tf.cast(numbers.lookup(word), tf.int32), words)
    # `<pad>` in a sentence is split at its signs, so it does not become padding.
    return ids.to_tensor(0, shape=(None, length))


def request(process: LearningProcess, x: np.ndarray) -> dict[str, np.ndarray]:
    """Return the request of `serving_default` for stored rows."""
    return {"token_ids": x}


def measure(process: LearningProcess, predict: Callable) -> dict[str, float]:
    """Measure an exported model on the whole test set, see `labelled.measure`."""
    return labelled.measure(process, predict, functools.partial(request, process))


def input_spec(process: LearningProcess) -> dict:
    """Return the description of the model's input for `export.json`."""
    (length,) = process.input.shape(process.dataset.train.x)
    return {"kind": "sequences", "words": len(vocabulary_of(process)), "length": length}


def notes(process: LearningProcess, signatures: Collection[str]) -> list[str]:
    """Return sentences on the inputs for callers of the model."""
    spec = input_spec(process)
    return [
        f"Token ids are 0..{spec['words'] - 1}, the lines of `assets/vocabulary.txt` from 0: 0 pads a row to "
        f"{spec['length']} words, and 1 is every unknown word. A row with another id gets NaN and class -1.",
        "`serve_text` takes sentences, makes them lower-case and splits them into words and signs; it reads the first "
        f"{spec['length']} of them. A sentence without a word gets NaN and class -1.",
    ]


def calls(process: LearningProcess, signatures: Collection[str]) -> str:
    """Return three lines of Python that call the model inside the folder of its version."""
    word = vocabulary_of(process)[-1]
    return (
        'import tensorflow as tf\nserve = tf.saved_model.load(".").signatures["serve_text"]\n'
        f'print(serve(text=tf.constant([{word!r}]))["probabilities"])\n'
    )
