"""What the export of a masked language model answers to: word numbers, or sentences with `<mask>` words."""

from collections.abc import Callable, Collection, Sequence
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

from hetero_tf.base import files, seeds
from hetero_tf.base.errors import InputError
from hetero_tf.data.words import END
from hetero_tf.export.limits import checked, filled, most_words
from hetero_tf.inputs import all_labels
from hetero_tf.methods.losses.cross_entropy import softmax_cross_entropy
from hetero_tf.process.learning_process import LearningProcess

# What a client of `serving_default` gives.
GIVEN = "token_ids"
# The signature that other runtimes get.
PORTABLE = "serve_segment"
# Test rows in one request when answers are compared with the model's.
COMPARED = 4
MASK = "<mask>"
TOP = 5
# Everything that Python's `str.split` splits at, which training used; TensorFlow's own knows ASCII only.
SPACES = r"[\p{Z}\t\n\x{b}\f\r\x{1c}-\x{1f}\x{85}]+"


def endpoints(process: LearningProcess, model: keras.Model, scratch: Path) -> tuple[dict, tuple]:
    """`{signature: (function, input specs)}`, and the lookup tables that they use.

    `serving_default`: `token_ids` int32 [n, length], the mask token is the number of words -> logits
    [n, length, words]. `serve_segment`: the same of at most a segment a row, without cutting, for converters.
    `serve_text` (where the data set has a vocabulary): `text` string [n] -> for the words of
    each text token_ids, is_mask, topk_tokens and topk_probabilities [n, longest(, 5)], best first, padded behind
    `lengths` [n] with -1, False, "" and 0; the probabilities of a text without a word are NaN.

    Rows longer than the model's segment are cut into segments as in training, and each is answered by itself. The
    rows of a text batch run one by one, because attention has no mask and would see the padding.

    A row with an id outside of 0..words is answered by NaN, the others as ever. A request of more than `most_words`
    words, or of another shape, is an error.

    Args:
        process: `process.LearningProcess`.
        model: The Keras model.
        scratch: Folder for the vocabulary, which the SavedModel copies.
    """
    words, classes = process.dataset.vocabulary, process.dataset.classes
    segment = segment_of(process, process.dataset.train.x)

    def answer(token_ids, known_logits):
        # Servers hand on any shape, and kernels may end the process over a wrong rank.
        ids = tf.ensure_shape(token_ids, (None, None))
        ids = few(ids, tf.shape(ids)[0], tf.shape(ids)[1], classes)
        known = (ids >= 0) & (ids <= classes)
        logits = known_logits(filled(tf.where(known, ids, 0)))[: tf.shape(ids)[0]]
        return {"logits": tf.where(tf.reduce_all(known, 1)[:, None, None], logits, np.nan)}

    def serving_default(token_ids):
        return answer(token_ids, lambda ids: logits_of(model, ids, segment, classes))

    def serve_segment(token_ids):
        return answer(token_ids, lambda ids: tf.cast(model(ids, training=False), tf.float32))

    made = {
        "serving_default": (serving_default, [tf.TensorSpec((None, None), tf.int32, name="token_ids")]),
        "serve_segment": (serve_segment, [tf.TensorSpec((None, None), tf.int32, name="token_ids")]),
    }
    if words is None:
        return made, ()
    numbers, names = tables(words, scratch)

    def fill(row, length, longest):
        """The best words at each place of one row [longest], of which `length` are words."""
        chances = tf.nn.softmax(logits_of(model, row[None, :length], segment, classes)[0])
        best = tf.math.top_k(chances, min(TOP, classes))
        room = [[0, longest - length], [0, 0]]
        return tf.pad(best.indices, room, constant_values=-1), tf.pad(best.values, room)

    def serve_text(text):
        ids, is_mask, lengths = encode(tf.ensure_shape(text, (None,)), numbers, classes, END in words)
        longest = tf.shape(ids)[1]
        many = min(TOP, classes)
        best, chances = tf.map_fn(
            lambda work: fill(*work, longest),
            # One row without words more than there are: TensorFlow cannot map over nothing.
            (tf.pad(ids, [[0, 1], [0, 0]]), tf.pad(lengths, [[0, 1]])),
            fn_output_signature=(tf.TensorSpec((None, many), tf.int32), tf.TensorSpec((None, many), tf.float32)),
        )
        return {
            "token_ids": ids,
            "is_mask": is_mask,
            "lengths": lengths,
            "topk_tokens": names.lookup(tf.cast(best[:-1], tf.int64)),
            "topk_probabilities": tf.where(lengths[:, None, None] > 0, chances[:-1], np.nan),
        }

    made["serve_text"] = (serve_text, [tf.TensorSpec((None,), tf.string, name="text")])
    return made, (numbers, names)


def most_at_once(model: keras.Model) -> None:
    """A server must not join requests: their texts differ in length, and padding would change the answers."""


def few(values: tf.Tensor, rows: tf.Tensor, longest: tf.Tensor, classes: int) -> tf.Tensor:
    """The values themselves, refused by the graph where their rows, padded to the longest, are too many words."""
    most, received = most_words(classes), tf.stack([rows, longest])
    sentence = f"a request must have at most {most} words, the padding to its longest text included."
    words = tf.reduce_prod(tf.cast(received, tf.int64))
    return checked(values, words <= most, sentence, ["texts and words of the longest", received])


def logits_of(model: keras.Model, ids: tf.Tensor, segment: int, classes: int) -> tf.Tensor:
    """Logits float32 [n, length, classes] of ids [n, length], segment by segment."""
    shape = tf.shape(ids)
    whole = shape[1] // segment * segment
    full = model(tf.reshape(ids[:, :whole], [-1, segment]), training=False)
    # The rest is a batch of its own, perhaps of no columns: padding it would change the answer.
    rest = model(ids[:, whole:], training=False)
    full = tf.reshape(full, [shape[0], whole, classes])
    return tf.cast(tf.concat([full, rest], 1), tf.float32)


def encode(
    text: tf.Tensor, numbers: tf.lookup.StaticHashTable, mask: int, ends_lines: bool
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Words of texts [n] as (ids int32 [n, longest], at least one position, -1 behind the words; is_mask; lengths [n]).

    Args:
        numbers: Table of words; unknown ones are `<ukn>`.
        mask: Id of `<mask>`, which is the number of classes.
        ends_lines: Whether a line break becomes `<eos>`, as in training. None is added to the end of a text.
    """
    # Stuck to another word, or in capitals, it would be an unknown word, and the answer would look like any other.
    text = tf.strings.regex_replace(text, f"(?i){MASK}", f" {MASK} ")
    words = split(text, ends_lines)
    longest = tf.reduce_max(tf.concat([words.row_lengths(), [1]], 0))
    words = words.with_flat_values(few(words.flat_values, words.nrows(), longest, mask))
    hidden = tf.ragged.map_flat_values(tf.equal, words, MASK)
    ids = tf.ragged.map_flat_values(
        lambda word: tf.where(word == MASK, mask, tf.cast(numbers.lookup(word), tf.int32)), words
    )
    lengths = tf.cast(words.row_lengths(), tf.int32)
    shape = tf.stack([words.nrows(), longest])
    return ids.to_tensor(-1, shape=shape), hidden.to_tensor(False, shape=shape), lengths


def split(text: tf.Tensor, ends_lines: bool) -> tf.RaggedTensor:
    """Returns the words of texts [n], ragged; `ends_lines`: whether a line break becomes `<eos>`, as in training."""
    if ends_lines:
        text = tf.strings.regex_replace(text, r"\n", f" {END} ")
    return tf.strings.split(tf.strings.regex_replace(text, SPACES, " "))


def tables(words: Sequence[str], scratch: Path, unknown: int = 0) -> tuple[tf.lookup.StaticHashTable, ...]:
    """Returns lookup tables word -> number and number -> word over a file that becomes an asset of the SavedModel.

    Args:
        words: In order of their number.
        scratch: Folder for the file.
        unknown: Number of every other word.

    Raises:
        InputError: A word is no single word, or stands twice.
    """
    for place, word in enumerate(words):
        if word.split() != [word]:
            raise InputError(
                f"a word of the vocabulary must be one word without white space to be looked up. "
                f"Received: {word!r} at place {place}"
            )
    if len(set(words)) != len(words):
        twice = next(word for place, word in enumerate(words) if word in words[:place])
        raise InputError(f"every word of the vocabulary must stand in it once. Received: {twice!r} twice")
    path = str(scratch / "vocabulary.txt")
    files.write_new(path, "".join(f"{word}\n" for word in words).encode())
    index = tf.lookup.TextFileIndex
    line, number = (tf.string, index.WHOLE_LINE), (tf.int64, index.LINE_NUMBER)
    return (
        tf.lookup.StaticHashTable(tf.lookup.TextFileInitializer(path, *line, *number), unknown),
        tf.lookup.StaticHashTable(tf.lookup.TextFileInitializer(path, *number, *line), ""),
    )


def request(process: LearningProcess, x: np.ndarray) -> dict[str, np.ndarray]:
    """The first segment of stored rows as a client of `serving_default` sends it."""
    return {GIVEN: model_inputs(process, x)}


def model_inputs(process: LearningProcess, x: np.ndarray) -> np.ndarray:
    """The first segment of stored rows, which is what the model takes."""
    return x[:, : segment_of(process, x)]


def limits(process: LearningProcess, model: keras.Model) -> dict[str, int]:
    """What a request may hold, for `export.json`."""
    return {"words": most_words(process.dataset.classes)}


def measure(process: LearningProcess, ask: Callable) -> dict[str, float]:
    """Measures answers on the whole test set: "loss" and "perplexity".

    As `global_metrics.build_text_metrics`: the same masks, and perplexity as the mean over batches.
    """
    test, size, classes = process.dataset.test.x, process.recipe.evaluate.batch_size, process.dataset.classes
    source, key, x = process.input, seeds.seed32(process.recipe.seed, "test masks"), tf.constant(process.dataset.test.x)
    totals, count = np.zeros(2), 0
    for row in range(0, len(test), size):
        for start in source.starts(test):
            chosen = tf.range(row, min(row + size, len(test)))
            noise = tf.constant([key, row, start])
            inputs, targets = source.batch(x, None, chosen, start, noise, all_labels(classes), training=False)
            loss = _mean_loss(ask, inputs.numpy(), targets, classes)
            totals += len(chosen) * np.array([loss, np.exp(loss)])
            count += len(chosen)
    loss, perplexity = totals / count
    return {"loss": float(loss), "perplexity": float(perplexity)}


def _mean_loss(ask, inputs, targets, classes):
    """The mean cross-entropy over all positions, in requests that the model allows."""
    rows = max(most_words(classes) // inputs.shape[1], 1)
    losses = [
        softmax_cross_entropy(
            tf.constant(ask(token_ids=inputs[first : first + rows])["logits"]), targets[first : first + rows]
        )
        for first in range(0, len(inputs), rows)
    ]
    return float(np.mean(np.concatenate(losses), dtype=np.float64))


def input_spec(process: LearningProcess) -> dict:
    """What the model takes, ready for JSON."""
    classes, segment = process.dataset.classes, segment_of(process, process.dataset.train.x)
    return {"kind": "text", "words": classes, "mask_token_id": classes, "segment": segment}


def segment_of(process: LearningProcess, x: np.ndarray) -> int:
    """Returns how many words of a split's rows are read at a time."""
    return int(process.input.length(x, 0))


def notes(process: LearningProcess, signatures: Collection[str]) -> list[str]:
    """What callers must know of the inputs, a sentence each."""
    spec = input_spec(process)
    found = [
        f"Token ids are 0..{spec['words'] - 1}, and {spec['mask_token_id']} for a hidden word. A row with another id "
        "is answered by NaN.",
        f"Rows longer than {spec['segment']} are cut into segments as in training; `serve_segment` takes one segment "
        "a row.",
    ]
    if "serve_text" in signatures:
        found.append(
            f"`serve_text` takes sentences whose words stand between white space; `{MASK}` is a hidden one, and words "
            "that the vocabulary lacks are `<ukn>`. A text without a word is answered by NaN."
        )
    return found


def calls(process: LearningProcess, signatures: Collection[str]) -> str:
    """Three lines of Python that call the model inside the folder of its version."""
    name, call, answer = "serving_default", f"token_ids=[[0, 1, {process.dataset.classes}]]", "logits"
    words = process.dataset.vocabulary
    if "serve_text" in signatures and words:
        word = words[-1]
        name, call, answer = "serve_text", f"text=tf.constant([{f'{word} {MASK} {word}'!r}])", "topk_tokens"
    return (
        f'import tensorflow as tf\nserve = tf.saved_model.load(".").signatures["{name}"]\n'
        f'print(serve({call})["{answer}"])\n'
    )
