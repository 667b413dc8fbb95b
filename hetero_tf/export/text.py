"""Export task of a masked language model: signatures for token ids and for sentences with `<mask>` words."""

from collections.abc import Callable, Collection, Sequence
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

from hetero_tf.base import files, seeds
from hetero_tf.base.errors import InputError
from hetero_tf.data.words import END
from hetero_tf.export.limits import assert_in_graph, max_words, pad_if_empty
from hetero_tf.inputs import all_labels
from hetero_tf.methods.losses.cross_entropy import softmax_cross_entropy
from hetero_tf.process.learning_process import LearningProcess

# Input of the signature `serving_default`.
INPUT_NAME = "token_ids"
# Signature that other formats convert.
PORTABLE_SIGNATURE = "serve_segment"
# Test rows in one request when outputs are compared with those of the Keras model.
CHECKED_EXAMPLES = 4
MASK = "<mask>"
TOP = 5
# The white space of Python's `str.split`, which training used; `tf.strings.split` knows ASCII only.
SPACES = r"[\p{Z}\t\n\x{b}\f\r\x{1c}-\x{1f}\x{85}]+"


def endpoints(process: LearningProcess, model: keras.Model, scratch: Path) -> tuple[dict, tuple]:
    """Return `{signature: (function, input specs)}` and the lookup tables of the signatures.

    `serving_default`: `token_ids` int32 [n, length], the id of the mask token is the number of words -> logits
    [n, length, words]. `serve_segment`: the same for rows of at most one segment, without loops, for converters.
    `serve_text` (if the data set has a vocabulary): `text` string [n] -> token_ids, is_mask, topk_tokens and
    topk_probabilities [n, longest(, 5)], most likely first, and lengths [n]. After the last word they are padded with
    -1, False, "" and 0. The probabilities of a text without a word are NaN.

    Rows longer than the model's segment are split into segments as in training, and each segment is computed
    independently. The rows of a text batch are computed one at a time, because attention has no mask and would see the
    padding.

    A row with an id outside of 0..words gets NaN and does not affect other rows. A request of more than `max_words`
    words, or of another shape, is an error.

    Args:
        process: `process.LearningProcess`.
        model: The Keras model.
        scratch: Folder for the vocabulary file, which the SavedModel copies.
    """
    words, classes = process.dataset.vocabulary, process.dataset.classes
    segment = segment_of(process, process.dataset.train.x)

    def respond(token_ids, compute_logits):
        # Servers do not check shapes, and a wrong rank may abort the process inside a kernel.
        ids = tf.ensure_shape(token_ids, (None, None))
        ids = check_words(ids, tf.shape(ids)[0], tf.shape(ids)[1], classes)
        known = (ids >= 0) & (ids <= classes)
        logits = compute_logits(pad_if_empty(tf.where(known, ids, 0)))[: tf.shape(ids)[0]]
        return {"logits": tf.where(tf.reduce_all(known, 1)[:, None, None], logits, np.nan)}

    def serving_default(token_ids):
        return respond(token_ids, lambda ids: logits_of(model, ids, segment, classes))

    def serve_segment(token_ids):
        return respond(token_ids, lambda ids: tf.cast(model(ids, training=False), tf.float32))

    signatures = {
        "serving_default": (serving_default, [tf.TensorSpec((None, None), tf.int32, name="token_ids")]),
        "serve_segment": (serve_segment, [tf.TensorSpec((None, None), tf.int32, name="token_ids")]),
    }
    if words is None:
        return signatures, ()
    numbers, names = tables(words, scratch)

    def fill(row, length, longest):
        """Return the most likely words at each position of one row [longest], of which `length` are words."""
        probabilities = tf.nn.softmax(logits_of(model, row[None, :length], segment, classes)[0])
        best = tf.math.top_k(probabilities, min(TOP, classes))
        padding = [[0, longest - length], [0, 0]]
        return tf.pad(best.indices, padding, constant_values=-1), tf.pad(best.values, padding)

    def serve_text(text):
        ids, is_mask, lengths = encode(tf.ensure_shape(text, (None,)), numbers, classes, END in words)
        longest = tf.shape(ids)[1]
        top_count = min(TOP, classes)
        best, probabilities = tf.map_fn(
            lambda row: fill(*row, longest),
            # tf.map_fn fails on an empty batch, so append a row without words.
            (tf.pad(ids, [[0, 1], [0, 0]]), tf.pad(lengths, [[0, 1]])),
            fn_output_signature=(
                tf.TensorSpec((None, top_count), tf.int32),
                tf.TensorSpec((None, top_count), tf.float32),
            ),
        )
        return {
            "token_ids": ids,
            "is_mask": is_mask,
            "lengths": lengths,
            "topk_tokens": names.lookup(tf.cast(best[:-1], tf.int64)),
            "topk_probabilities": tf.where(lengths[:, None, None] > 0, probabilities[:-1], np.nan),
        }

    signatures["serve_text"] = (serve_text, [tf.TensorSpec((None,), tf.string, name="text")])
    return signatures, (numbers, names)


def max_batch_size(model: keras.Model) -> None:
    """Return None: a server must not batch requests, since padding of texts would change the outputs."""


def check_words(values: tf.Tensor, rows: tf.Tensor, longest: tf.Tensor, classes: int) -> tf.Tensor:
    """Return the values; the graph raises an error if their rows, padded to the longest, have too many words."""
    limit, received = max_words(classes), tf.stack([rows, longest])
    message = f"a request must have at most {limit} words, including the padding to its longest text."
    words = tf.reduce_prod(tf.cast(received, tf.int64))
    return assert_in_graph(values, words <= limit, message, ["texts and words of the longest", received])


def logits_of(model: keras.Model, ids: tf.Tensor, segment: int, classes: int) -> tf.Tensor:
    """Return logits float32 [n, length, classes] of ids [n, length], computed segment by segment."""
    shape = tf.shape(ids)
    full_length = shape[1] // segment * segment
    full_segments = model(tf.reshape(ids[:, :full_length], [-1, segment]), training=False)
    # The rest is a separate batch, possibly without columns: padding it would change the logits.
    rest = model(ids[:, full_length:], training=False)
    full_segments = tf.reshape(full_segments, [shape[0], full_length, classes])
    return tf.cast(tf.concat([full_segments, rest], 1), tf.float32)


def encode(
    text: tf.Tensor, numbers: tf.lookup.StaticHashTable, mask: int, ends_lines: bool
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Return (ids int32 [n, longest], is_mask, lengths [n]) of texts [n], padded with -1 to at least one position.

    Args:
        text: Texts [n].
        numbers: Lookup table word -> id; unknown words become `<ukn>`.
        mask: Id of `<mask>`, which is the number of classes.
        ends_lines: Whether a line break becomes `<eos>`, as in training. No `<eos>` is added to the end of a text.
    """
    # `<mask>` without spaces around it, or in capitals, would silently become an unknown word.
    text = tf.strings.regex_replace(text, f"(?i){MASK}", f" {MASK} ")
    words = split(text, ends_lines)
    longest = tf.reduce_max(tf.concat([words.row_lengths(), [1]], 0))
    words = words.with_flat_values(check_words(words.flat_values, words.nrows(), longest, mask))
    is_mask = tf.ragged.map_flat_values(tf.equal, words, MASK)
    ids = tf.ragged.map_flat_values(
        lambda word: tf.where(word == MASK, mask, tf.cast(numbers.lookup(word), tf.int32)), words
    )
    lengths = tf.cast(words.row_lengths(), tf.int32)
    shape = tf.stack([words.nrows(), longest])
    return ids.to_tensor(-1, shape=shape), is_mask.to_tensor(False, shape=shape), lengths


def split(text: tf.Tensor, ends_lines: bool) -> tf.RaggedTensor:
    """Return the words of texts [n], ragged; with `ends_lines`, a line break becomes `<eos>` as in training."""
    if ends_lines:
        text = tf.strings.regex_replace(text, r"\n", f" {END} ")
    return tf.strings.split(tf.strings.regex_replace(text, SPACES, " "))


def tables(words: Sequence[str], scratch: Path, unknown: int = 0) -> tuple[tf.lookup.StaticHashTable, ...]:
    """Return lookup tables word -> id and id -> word over a file that becomes an asset of the SavedModel.

    Args:
        words: In the order of their ids.
        scratch: Folder for the file.
        unknown: Id of every other word.

    Raises:
        InputError: A word is empty, contains white space, or occurs twice.
    """
    for position, word in enumerate(words):
        if word.split() != [word]:
            raise InputError(
                f"a word of the vocabulary must not be empty or contain white space. "
                f"Received: {word!r} at position {position}"
            )
    if len(set(words)) != len(words):
        duplicate = next(word for position, word in enumerate(words) if word in words[:position])
        raise InputError(f"a vocabulary must not contain a word twice. Received: {duplicate!r} twice")
    path = str(scratch / "vocabulary.txt")
    files.write_new(path, "".join(f"{word}\n" for word in words).encode())
    index = tf.lookup.TextFileIndex
    line, number = (tf.string, index.WHOLE_LINE), (tf.int64, index.LINE_NUMBER)
    return (
        tf.lookup.StaticHashTable(tf.lookup.TextFileInitializer(path, *line, *number), unknown),
        tf.lookup.StaticHashTable(tf.lookup.TextFileInitializer(path, *number, *line), ""),
    )


def request(process: LearningProcess, x: np.ndarray) -> dict[str, np.ndarray]:
    """Return the request of `serving_default` for the first segment of stored rows."""
    return {INPUT_NAME: model_inputs(process, x)}


def model_inputs(process: LearningProcess, x: np.ndarray) -> np.ndarray:
    """Return the first segment of stored rows, the input of the Keras model."""
    return x[:, : segment_of(process, x)]


def limits(process: LearningProcess, model: keras.Model) -> dict[str, int]:
    """Return the limits of a request for `export.json`."""
    return {"words": max_words(process.dataset.classes)}


def measure(process: LearningProcess, predict: Callable) -> dict[str, float]:
    """Measure an exported model on the whole test set: "loss" and "perplexity".

    Masks are those of `global_metrics.build_text_metrics`, and perplexity is the mean over batches, as there.
    """
    test, size, classes = process.dataset.test.x, process.recipe.evaluate.batch_size, process.dataset.classes
    source, key, x = process.input, seeds.seed32(process.recipe.seed, "test masks"), tf.constant(process.dataset.test.x)
    totals, count = np.zeros(2), 0
    for row in range(0, len(test), size):
        for start in source.starts(test):
            rows = tf.range(row, min(row + size, len(test)))
            noise = tf.constant([key, row, start])
            inputs, targets = source.batch(x, None, rows, start, noise, all_labels(classes), training=False)
            loss = _mean_loss(predict, inputs.numpy(), targets, classes)
            totals += len(rows) * np.array([loss, np.exp(loss)])
            count += len(rows)
    loss, perplexity = totals / count
    return {"loss": float(loss), "perplexity": float(perplexity)}


def _mean_loss(predict, inputs, targets, classes):
    """Return the mean cross-entropy over all positions, in requests within the limit of the model."""
    rows = max(max_words(classes) // inputs.shape[1], 1)
    losses = [
        softmax_cross_entropy(
            tf.constant(predict(token_ids=inputs[first : first + rows])["logits"]), targets[first : first + rows]
        )
        for first in range(0, len(inputs), rows)
    ]
    return float(np.mean(np.concatenate(losses), dtype=np.float64))


def input_spec(process: LearningProcess) -> dict:
    """Return the description of the model's input for `export.json`."""
    classes, segment = process.dataset.classes, segment_of(process, process.dataset.train.x)
    return {"kind": "text", "words": classes, "mask_token_id": classes, "segment": segment}


def segment_of(process: LearningProcess, x: np.ndarray) -> int:
    """Return the number of words of a row that the model reads at a time."""
    return int(process.input.length(x, 0))


def notes(process: LearningProcess, signatures: Collection[str]) -> list[str]:
    """Return sentences on the inputs for callers of the model."""
    spec = input_spec(process)
    sentences = [
        f"Token ids are 0..{spec['words'] - 1}, and {spec['mask_token_id']} for a masked word. A row with another id "
        "gets NaN.",
        f"Rows longer than {spec['segment']} are split into segments as in training; `serve_segment` takes one segment "
        "per row.",
    ]
    if "serve_text" in signatures:
        sentences.append(
            f"`serve_text` takes sentences with words separated by white space; `{MASK}` is a masked word, and words "
            "outside the vocabulary become `<ukn>`. A text without a word gets NaN."
        )
    return sentences


def calls(process: LearningProcess, signatures: Collection[str]) -> str:
    """Return three lines of Python that call the model inside the folder of its version."""
    name, call, output = "serving_default", f"token_ids=[[0, 1, {process.dataset.classes}]]", "logits"
    words = process.dataset.vocabulary
    if "serve_text" in signatures and words:
        word = words[-1]
        name, call, output = "serve_text", f"text=tf.constant([{f'{word} {MASK} {word}'!r}])", "topk_tokens"
    return (
        f'import tensorflow as tf\nserve = tf.saved_model.load(".").signatures["{name}"]\n'
        f'print(serve({call})["{output}"])\n'
    )
