"""What the export of a model for sequences of words answers to: word numbers, or sentences."""

import functools
from collections.abc import Callable, Collection
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

from hetero_tf.data.sentences import SIGNS
from hetero_tf.export import labelled, text
from hetero_tf.export.labelled import few, named
from hetero_tf.export.limits import filled, most_examples
from hetero_tf.process.learning_process import LearningProcess

# The signature that other runtimes get.
PORTABLE = "serve_numbers"
# Test rows in one request when answers are compared with the model's.
COMPARED = 32
UNKNOWN = 1
most_at_once, model_inputs, limits = labelled.most_at_once, labelled.model_inputs, labelled.limits


def endpoints(process: LearningProcess, model: keras.Model, scratch: Path) -> tuple[dict, tuple]:
    """`{signature: (function, input specs)}`, and the lookup tables that they use.

    `serving_default`: `token_ids` int32 [n, length], 0 behind the last word -> logits, probabilities [n, classes],
    class [n], and class_name [n] where the data set names its classes. `serve_numbers`: the same without names, for
    converters. `serve_text`: `text` string [n], sentences, which are split into words and filled up in the graph -> the
    same as of `serving_default`.

    A row with a number that no word has, and a sentence without a word, are answered by NaN and class -1, the others of
    their batch as ever. A row of padding alone is answered as in the evaluation. A request of more than
    `most_examples` rows, or of another shape, is an error.

    Args:
        process: `process.LearningProcess`.
        model: The Keras model.
        scratch: Folder for the vocabulary, which the SavedModel copies.
    """
    (length,), words = process.input.shape(process.dataset.train.x), words_of(process)
    most, names = most_examples(model), process.dataset.class_names
    numbers, _ = text.tables(words, scratch, UNKNOWN)

    def answer(token_ids, good):
        known = good & tf.reduce_all((token_ids >= 0) & (token_ids < len(words)), 1)
        return labelled.answered(process, model, filled(tf.where(known[:, None], token_ids, 0)), known)

    def serve_numbers(token_ids):
        # Servers hand on any shape, and kernels may end the process over a wrong rank.
        ids = few(tf.ensure_shape(token_ids, (None, length)), most, "rows")
        return answer(ids, tf.fill(tf.shape(ids)[:1], True))

    def serving_default(token_ids):
        return named(serve_numbers(token_ids), names)

    def serve_text(text):
        texts = few(tf.ensure_shape(text, (None,)), most, "texts")
        ids = tf.ensure_shape(encode(texts, numbers, length), (None, length))
        # No word of a sentence is padding, so only one without a word begins with it.
        return named(answer(ids, ids[:, 0] > 0), names)

    specs = [tf.TensorSpec((None, length), tf.int32, name="token_ids")]
    made = {
        "serving_default": (serving_default, specs),
        "serve_numbers": (serve_numbers, specs),
        "serve_text": (serve_text, [tf.TensorSpec((None,), tf.string, name="text")]),
    }
    return made, (numbers,)


def words_of(process: LearningProcess) -> tuple[str, ...]:
    """Returns the vocabulary, by which a data set is one of sequences."""
    return process.dataset.vocabulary or ()


def encode(sentences: tf.Tensor, numbers: tf.lookup.StaticHashTable, length: int) -> tf.Tensor:
    """Returns the word numbers int32 [n, length] of sentences [n], as `data.sentences` gives them."""
    apart = tf.strings.regex_replace(tf.strings.lower(sentences, "utf-8"), SIGNS, r" \1 ")
    words = tf.strings.split(tf.strings.regex_replace(apart, text.SPACES, " "))
    ids = tf.ragged.map_flat_values(lambda word: tf.cast(numbers.lookup(word), tf.int32), words)
    # A sentence that holds `<pad>` is split at its signs, so no word of it is padding.
    return ids.to_tensor(0, shape=(None, length))


def request(process: LearningProcess, x: np.ndarray) -> dict[str, np.ndarray]:
    """Stored rows as a client of `serving_default` sends them."""
    return {"token_ids": x}


def measure(process: LearningProcess, ask: Callable) -> dict[str, float]:
    """Measures answers on the whole test set, see `labelled.measure`."""
    return labelled.measure(process, ask, functools.partial(request, process))


def input_spec(process: LearningProcess) -> dict:
    """What the model takes, ready for JSON."""
    (length,) = process.input.shape(process.dataset.train.x)
    return {"kind": "sequences", "words": len(words_of(process)), "length": length}


def notes(process: LearningProcess, signatures: Collection[str]) -> list[str]:
    """What callers must know of the inputs, a sentence each."""
    spec = input_spec(process)
    return [
        f"Token ids are 0..{spec['words'] - 1}, lines of `assets/vocabulary.txt` from 0: 0 fills a row behind its text "
        f"up to {spec['length']} words, and 1 is every other word. A row with another id is answered by NaN and class "
        "-1.",
        "`serve_text` takes sentences; it makes them lower-case and splits them into words and signs, and of a longer "
        f"one it reads the first {spec['length']}. A sentence without a word is answered by NaN and class -1.",
    ]


def calls(process: LearningProcess, signatures: Collection[str]) -> str:
    """Three lines of Python that call the model inside the folder of its version."""
    word = words_of(process)[-1]
    return (
        'import tensorflow as tf\nserve = tf.saved_model.load(".").signatures["serve_text"]\n'
        f'print(serve(text=tf.constant([{word!r}]))["probabilities"])\n'
    )
