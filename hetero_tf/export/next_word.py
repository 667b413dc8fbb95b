"""Export task of a next-word model: signatures for token ids and for beginnings of sentences."""

from collections.abc import Collection
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

from hetero_tf.data.words import END
from hetero_tf.export import text
from hetero_tf.export.limits import pad_if_empty
from hetero_tf.process.learning_process import LearningProcess

# Signature that other formats convert.
PORTABLE_SIGNATURE = "serving_default"
# Test rows in one request when outputs are compared with those of the Keras model.
CHECKED_EXAMPLES = 4
TOP = 5
request, model_inputs, limits, measure = text.request, text.model_inputs, text.limits, text.measure
max_batch_size = text.max_batch_size


def endpoints(process: LearningProcess, model: keras.Model, scratch: Path) -> tuple[dict, tuple]:
    """Return `{signature: (function, input specs)}` and the lookup tables of the signatures.

    `serving_default`: `token_ids` int32 [n, length] -> logits [n, length, words], at each position those of the next
    word. `serve_text` (if the data set has a vocabulary): `text` string [n], beginnings of sentences -> next_words and
    next_probabilities [n, 5], most likely first, and lengths [n].

    A row with an id outside of 0..words - 1 gets NaN and does not affect other rows. A text without a word gets NaN as
    well, with "" as next words. A request of more than `max_words` words, or of another shape, is an error.

    Args:
        process: `process.LearningProcess`.
        model: The Keras model, whose logits at a position depend on the words up to that position.
        scratch: Folder for the vocabulary file, which the SavedModel copies.
    """
    words, classes = process.dataset.vocabulary, process.dataset.classes

    def logits_of(ids):
        return tf.cast(model(pad_if_empty(ids), training=False), tf.float32)[: tf.shape(ids)[0]]

    def serving_default(token_ids):
        # Servers do not check shapes, and a wrong rank may abort the process inside a kernel.
        ids = tf.ensure_shape(token_ids, (None, None))
        ids = text.check_words(ids, tf.shape(ids)[0], tf.shape(ids)[1], classes)
        known = (ids >= 0) & (ids < classes)
        logits = logits_of(tf.where(known, ids, 0))
        return {"logits": tf.where(tf.reduce_all(known, 1)[:, None, None], logits, np.nan)}

    signatures = {"serving_default": (serving_default, [tf.TensorSpec((None, None), tf.int32, name="token_ids")])}
    if words is None:
        return signatures, ()
    numbers, names = text.tables(words, scratch)

    def serve_text(text):
        ids, lengths = encode(tf.ensure_shape(text, (None,)), numbers, classes, END in words)
        # The model is causal, so padding after the last word has no effect on its logits.
        logits = tf.gather(logits_of(ids), tf.maximum(lengths - 1, 0), axis=1, batch_dims=1)
        probabilities, best = tf.math.top_k(tf.nn.softmax(logits), min(TOP, classes))
        has_words = lengths[:, None] > 0
        return {
            "lengths": lengths,
            "next_words": tf.where(has_words, names.lookup(tf.cast(best, tf.int64)), ""),
            "next_probabilities": tf.where(has_words, probabilities, np.nan),
        }

    signatures["serve_text"] = (serve_text, [tf.TensorSpec((None,), tf.string, name="text")])
    return signatures, (numbers, names)


def encode(
    sentences: tf.Tensor, numbers: tf.lookup.StaticHashTable, classes: int, ends_lines: bool
) -> tuple[tf.Tensor, tf.Tensor]:
    """Return (ids int32 [n, longest], lengths [n]) of texts [n], padded with 0 to at least one position."""
    words = text.split(sentences, ends_lines)
    longest = tf.reduce_max(tf.concat([words.row_lengths(), [1]], 0))
    flat = text.check_words(words.flat_values, words.nrows(), longest, classes)
    ids = words.with_flat_values(tf.cast(numbers.lookup(flat), tf.int32))
    ids = ids.to_tensor(0)
    return tf.pad(ids, [[0, 0], [0, tf.cast(longest, tf.int32) - tf.shape(ids)[1]]]), tf.cast(
        words.row_lengths(), tf.int32
    )


def input_spec(process: LearningProcess) -> dict:
    """Return the description of the model's input for `export.json`."""
    classes, segment = process.dataset.classes, text.segment_of(process, process.dataset.train.x)
    return {"kind": "next_word", "words": classes, "segment": segment}


def notes(process: LearningProcess, signatures: Collection[str]) -> list[str]:
    """Return sentences on the inputs for callers of the model."""
    spec = input_spec(process)
    sentences = [
        f"Token ids are 0..{spec['words'] - 1}. A row with another id gets NaN. The logits at a position are "
        "those of the next word.",
        f"Clients trained on {spec['segment']} words at a time; longer rows are accepted and processed in one pass.",
    ]
    if "serve_text" in signatures:
        sentences.append(
            "`serve_text` takes beginnings of sentences with words separated by white space; words outside the "
            "vocabulary become `<ukn>`. A text without a word gets NaN."
        )
    return sentences


def calls(process: LearningProcess, signatures: Collection[str]) -> str:
    """Return three lines of Python that call the model inside the folder of its version."""
    name, call, output = "serving_default", "token_ids=[[0, 1]]", "logits"
    words = process.dataset.vocabulary
    if "serve_text" in signatures and words:
        name, call, output = "serve_text", f"text=tf.constant([{words[-1]!r}])", "next_words"
    return (
        f'import tensorflow as tf\nserve = tf.saved_model.load(".").signatures["{name}"]\n'
        f'print(serve({call})["{output}"])\n'
    )
