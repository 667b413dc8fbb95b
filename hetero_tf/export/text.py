"""Export of models for text: rows of token ids, and texts that the graph splits into words."""

import abc
from collections.abc import Callable, Sequence
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

from hetero_tf.base import files, seeds
from hetero_tf.base.errors import InputError
from hetero_tf.data.inputs import all_labels
from hetero_tf.data.tokenizers import END
from hetero_tf.export.limits import assert_in_graph, max_words
from hetero_tf.export.task import ExportTask
from hetero_tf.export.tokens import NOUNS, GraphTokenizer
from hetero_tf.methods.losses.cross_entropy import softmax_cross_entropy
from hetero_tf.run.learning_process import LearningProcess

# Most likely words of a position.
TOP = 5


class TextTask(ExportTask):
    """Export of a model for text. A row with an unknown id and a text without a word get NaN.

    Attributes:
        ID_SIGNATURES: Signatures for `token_ids` int32 [n, length].
        classes: Number of words.
        segment: Number of words that the model reads at a time.
        special: Tokens that a text may contain; `<eos>`, if the vocabulary has it, ends a line.
    """

    INPUT_NAME = "token_ids"
    PREDICT_SIGNATURE, PREDICT_DATA = "serve_text", "a vocabulary"
    ID_SIGNATURES: tuple[str, ...]
    CHECKED_EXAMPLES = 4

    def __init__(self, process: LearningProcess, model: keras.Model):
        super().__init__(process, model)
        self.classes = process.dataset.classes
        self.segment = self.segment_of(process.dataset.train.x)
        self.special: tuple[str, ...] = (END,) if END in (process.dataset.vocabulary or ()) else ()

    def endpoints(self, scratch: Path) -> tuple[dict, tuple]:
        specs = [tf.TensorSpec((None, None), tf.int32, name="token_ids")]
        signatures: dict = {name: (getattr(self, name), specs) for name in self.ID_SIGNATURES}
        vocabulary = self.process.dataset.vocabulary
        if vocabulary is None:
            return signatures, ()
        numbers, names = tables(vocabulary, scratch)
        tokenizer = GraphTokenizer(self.process.dataset.tokenizer, numbers, vocabulary, 0, self.special)

        def serve_text(text):
            return self.serve_texts(tf.ensure_shape(text, (None,)), tokenizer, names)

        signatures["serve_text"] = (serve_text, [tf.TensorSpec((None,), tf.string, name="text")])
        return signatures, (numbers, names)

    @abc.abstractmethod
    def serve_texts(
        self, texts: tf.Tensor, tokenizer: GraphTokenizer, names: tf.lookup.StaticHashTable
    ) -> dict[str, tf.Tensor]:
        """Return the outputs for texts string [n].

        Args:
            texts: Texts.
            tokenizer: Splits the texts.
            names: Lookup table id -> token.
        """

    @property
    def text_spec(self) -> dict:
        """Description of the tokens for `export.json`."""
        return {"words": self.classes, "segment": self.segment, "tokenizer": self.process.dataset.tokenizer}

    @property
    def nouns(self) -> str:
        """Tokens into which `serve_text` splits a text, in words."""
        return f"{NOUNS[self.process.dataset.tokenizer]}; those outside the vocabulary become `<ukn>`"

    @property
    def max_batch_size(self) -> None:
        """None: padding of texts to the longest one would change the outputs."""
        return None

    @property
    def limits(self) -> dict[str, int]:
        return {"words": max_words(self.classes)}

    def segment_of(self, x: np.ndarray) -> int:
        """Return the number of words of a row that the model reads at a time."""
        return int(self.process.input.length(x, 0))

    def request(self, x: np.ndarray) -> dict[str, np.ndarray]:
        return {self.INPUT_NAME: self.model_inputs(x)}

    def model_inputs(self, x: np.ndarray) -> np.ndarray:
        """Return the first segment of stored rows."""
        return x[:, : self.segment_of(x)]

    def respond(self, token_ids: tf.Tensor, is_known: Callable, logits_of: Callable) -> dict[str, tf.Tensor]:
        """Return {"logits": float32 [n, length, words]} for rows of a request.

        Args:
            token_ids: int32 [n, length].
            is_known: Returns a bool for each id; a row with an unknown id gets NaN.
            logits_of: Returns the logits for (rows with known ids only, rows of the request).
        """
        rows = tf.ensure_shape(token_ids, (None, None))
        rows = check_words(rows, tf.shape(rows)[0], tf.shape(rows)[1], self.classes)
        known = is_known(rows)
        logits = logits_of(tf.where(known, rows, 0), rows)
        return {"logits": tf.where(tf.reduce_all(known, 1)[:, None, None], logits, np.nan)}

    def measure(self, predict: Callable) -> dict[str, float]:
        """Measure an exported model on the whole test set: "loss" and "perplexity".

        Masks are those of `global_metrics.build_text_metrics`, and perplexity is the mean over batches, as there.
        """
        process, test = self.process, self.process.dataset.test
        key, size = seeds.seed32(process.recipe.seed, "test masks"), process.recipe.evaluate.batch_size
        source, x = process.input, tf.constant(test.x)
        totals, count = np.zeros(2), 0
        for row in range(0, len(test.x), size):
            for start in source.starts(test.x):
                rows = tf.range(row, min(row + size, len(test.x)))
                noise = tf.constant([key, row, start])
                inputs, targets = source.batch(x, None, rows, start, noise, all_labels(self.classes), training=False)
                loss = _mean_loss(predict, inputs.numpy(), targets, self.classes)
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


def check_words(values: tf.Tensor, rows: tf.Tensor, longest: tf.Tensor, classes: int) -> tf.Tensor:
    """Return the values; the graph raises an error if their rows, padded to the longest, have too many words."""
    limit, received = max_words(classes), tf.stack([rows, longest])
    message = f"a request must have at most {limit} words, including the padding to its longest text."
    words = tf.reduce_prod(tf.cast(received, tf.int64))
    return assert_in_graph(values, words <= limit, message, ["texts and words of the longest", received])


def tables(
    words: Sequence[str], scratch: Path, unknown: int = 0
) -> tuple[tf.lookup.StaticHashTable, tf.lookup.StaticHashTable]:
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
