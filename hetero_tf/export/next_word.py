"""What the export of a language model answers to: word numbers, or the beginnings of sentences."""

from collections.abc import Collection
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

from hetero_tf.data.words import END
from hetero_tf.export import text
from hetero_tf.export.limits import filled
from hetero_tf.process.learning_process import LearningProcess

# The signature that other runtimes get.
PORTABLE = "serving_default"
# Test rows in one request when answers are compared with the model's.
COMPARED = 4
TOP = 5
request, model_inputs, limits, measure = text.request, text.model_inputs, text.limits, text.measure
most_at_once = text.most_at_once


def endpoints(process: LearningProcess, model: keras.Model, scratch: Path) -> tuple[dict, tuple]:
    """`{signature: (function, input specs)}`, and the lookup tables that they use.

    `serving_default`: `token_ids` int32 [n, length] -> logits [n, length, words], at each place those of the word
    behind it. `serve_text` (where the data set has a vocabulary): `text` string [n], beginnings of sentences ->
    next_words and next_probabilities [n, 5], best first, and lengths [n].

    A row with an id outside of 0..words - 1 is answered by NaN, the others as ever; so is a text without a word, whose
    next words are "". A request of more than `most_words` words, or of another shape, is an error.

    Args:
        process: `process.LearningProcess`.
        model: The Keras model, whose logits at a place follow from the words up to there.
        scratch: Folder for the vocabulary, which the SavedModel copies.
    """
    words, classes = process.dataset.vocabulary, process.dataset.classes

    def logits_of(ids):
        return tf.cast(model(filled(ids), training=False), tf.float32)[: tf.shape(ids)[0]]

    def serving_default(token_ids):
        # Servers hand on any shape, and kernels may end the process over a wrong rank.
        ids = tf.ensure_shape(token_ids, (None, None))
        ids = text.few(ids, tf.shape(ids)[0], tf.shape(ids)[1], classes)
        known = (ids >= 0) & (ids < classes)
        logits = logits_of(tf.where(known, ids, 0))
        return {"logits": tf.where(tf.reduce_all(known, 1)[:, None, None], logits, np.nan)}

    made = {"serving_default": (serving_default, [tf.TensorSpec((None, None), tf.int32, name="token_ids")])}
    if words is None:
        return made, ()
    numbers, names = text.tables(words, scratch)

    def serve_text(text):
        ids, lengths = encode(tf.ensure_shape(text, (None,)), numbers, classes, END in words)
        # What is behind the last word changes nothing up to there.
        logits = tf.gather(logits_of(ids), tf.maximum(lengths - 1, 0), axis=1, batch_dims=1)
        chances, best = tf.math.top_k(tf.nn.softmax(logits), min(TOP, classes))
        said = lengths[:, None] > 0
        return {
            "lengths": lengths,
            "next_words": tf.where(said, names.lookup(tf.cast(best, tf.int64)), ""),
            "next_probabilities": tf.where(said, chances, np.nan),
        }

    made["serve_text"] = (serve_text, [tf.TensorSpec((None,), tf.string, name="text")])
    return made, (numbers, names)


def encode(
    sentences: tf.Tensor, numbers: tf.lookup.StaticHashTable, classes: int, ends_lines: bool
) -> tuple[tf.Tensor, tf.Tensor]:
    """Words of texts [n] as (ids int32 [n, longest], at least one place, 0 behind the words; lengths [n])."""
    words = text.split(sentences, ends_lines)
    longest = tf.reduce_max(tf.concat([words.row_lengths(), [1]], 0))
    flat = text.few(words.flat_values, words.nrows(), longest, classes)
    ids = words.with_flat_values(tf.cast(numbers.lookup(flat), tf.int32))
    ids = ids.to_tensor(0)
    return tf.pad(ids, [[0, 0], [0, tf.cast(longest, tf.int32) - tf.shape(ids)[1]]]), tf.cast(
        words.row_lengths(), tf.int32
    )


def input_spec(process: LearningProcess) -> dict:
    """What the model takes, ready for JSON."""
    classes, segment = process.dataset.classes, text.segment_of(process, process.dataset.train.x)
    return {"kind": "next_word", "words": classes, "segment": segment}


def notes(process: LearningProcess, signatures: Collection[str]) -> list[str]:
    """What callers must know of the inputs, a sentence each."""
    spec = input_spec(process)
    found = [
        f"Token ids are 0..{spec['words'] - 1}. A row with another id is answered by NaN. The logits at a place are "
        "those of the word behind it.",
        f"Clients trained on {spec['segment']} words at a time; longer rows are answered too, at one go.",
    ]
    if "serve_text" in signatures:
        found.append(
            "`serve_text` takes beginnings of sentences whose words stand between white space; words that the "
            "vocabulary lacks are `<ukn>`. A text without a word is answered by NaN."
        )
    return found


def calls(process: LearningProcess, signatures: Collection[str]) -> str:
    """Three lines of Python that call the model inside the folder of its version."""
    name, call, answer = "serving_default", "token_ids=[[0, 1]]", "logits"
    words = process.dataset.vocabulary
    if "serve_text" in signatures and words:
        name, call, answer = "serve_text", f"text=tf.constant([{words[-1]!r}])", "next_words"
    return (
        f'import tensorflow as tf\nserve = tf.saved_model.load(".").signatures["{name}"]\n'
        f'print(serve({call})["{answer}"])\n'
    )
