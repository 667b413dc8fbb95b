"""Export of a model for sequences of words: signatures for token ids and for sentences."""

from collections.abc import Collection
from pathlib import Path

import tensorflow as tf

from hetero_tf.data.sentences import SIGNS
from hetero_tf.export import text
from hetero_tf.export.labelled import LabelledTask
from hetero_tf.export.limits import pad_if_empty
from hetero_tf.export.tokens import NOUNS, GraphTokenizer

UNKNOWN = 1


class SequenceTask(LabelledTask):
    """Export of a model for sequences of words.

    A row with an unknown id and a sentence without a word are invalid. A row that consists of padding is computed as in
    the evaluation.
    """

    INPUT_NAME = "token_ids"
    PREDICT_SIGNATURE, PREDICT_DATA = "serve_text", "a vocabulary"

    @property
    def words(self) -> tuple[str, ...]:
        """Vocabulary of the data set."""
        return self.process.dataset.vocabulary or ()

    def endpoints(self, scratch: Path) -> tuple[dict, tuple]:
        """Return the signatures for `token_ids` int32 [n, length] or `text` string [n], and their lookup table."""
        numbers, _ = text.tables(self.words, scratch, UNKNOWN)
        tokenizer = GraphTokenizer(self.process.dataset.tokenizer, numbers, self.words, UNKNOWN)

        def serve_text(text):
            texts = self.check(text, noun="texts")
            ids = tf.ensure_shape(encode(texts, tokenizer, *self.shape), (None, *self.shape))
            # Words never have the id of padding, so only a sentence without words begins with it.
            return self.add_class_names(self._respond(ids, ids[:, 0] > 0))

        specs = [tf.TensorSpec((None, *self.shape), tf.int32, name="token_ids")]
        signatures = {
            "serving_default": (self.serving_default, specs),
            "serve_numbers": (self.serve_numbers, specs),
            "serve_text": (serve_text, [tf.TensorSpec((None,), tf.string, name="text")]),
        }
        return signatures, (numbers,)

    def serving_default(self, token_ids: tf.Tensor) -> dict[str, tf.Tensor]:
        """Return outputs with class names for token ids, 0 after the last word."""
        return self.add_class_names(self.serve_numbers(token_ids))

    def serve_numbers(self, token_ids: tf.Tensor) -> dict[str, tf.Tensor]:
        """Return outputs for token ids, 0 after the last word."""
        ids = self.check(token_ids, *self.shape)
        return self._respond(ids, tf.fill(tf.shape(ids)[:1], True))

    def _respond(self, token_ids, is_valid):
        known = is_valid & tf.reduce_all((token_ids >= 0) & (token_ids < len(self.words)), 1)
        return self.classify_valid(pad_if_empty(tf.where(known[:, None], token_ids, 0)), known)

    @property
    def input_spec(self) -> dict:
        tokenizer = self.process.dataset.tokenizer
        return {"kind": "sequences", "words": len(self.words), "length": self.shape[0], "tokenizer": tokenizer}

    def notes(self, signatures: Collection[str]) -> list[str]:
        spec, tokenizer = self.input_spec, self.process.dataset.tokenizer
        nouns = "words and signs" if tokenizer == "words" else NOUNS[tokenizer]
        return [
            f"Token ids are 0..{spec['words'] - 1}, the lines of `assets/vocabulary.txt` from 0: 0 pads a row to "
            f"{spec['length']} tokens, and 1 is every unknown token. A row with another id gets {self.invalid}.",
            f"`serve_text` takes sentences, makes them lower-case and splits them into {nouns}; it reads the first "
            f"{spec['length']} of them. A sentence without a word gets {self.invalid}.",
            *self.target_notes,
        ]

    def example_call(self, signatures: Collection[str]) -> tuple[str, str, str]:
        return "serve_text", f"text=tf.constant([{self.words[-1]!r}])", self.targets.prediction_name


def encode(sentences: tf.Tensor, tokenizer: GraphTokenizer, length: int) -> tf.Tensor:
    """Return the token ids int32 [n, length] of sentences [n], the same as `data.sentences` makes."""
    lower = tf.strings.lower(sentences, "utf-8")
    if tokenizer.name != "characters":
        # `<pad>` in a sentence is split at its signs, so it does not become padding.
        lower = tf.strings.regex_replace(lower, SIGNS, r" \1 ")
    return tokenizer.encode(tokenizer.split(lower)).to_tensor(0, shape=(None, length))
