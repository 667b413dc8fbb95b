"""Export of a next-word model: signatures for token ids and for beginnings of sentences."""

from collections.abc import Collection

import numpy as np
import tensorflow as tf

from hetero_tf.export.limits import pad_if_empty
from hetero_tf.export.text import TOP, TextTask, check_words
from hetero_tf.export.tokens import GraphTokenizer


class NextWordTask(TextTask):
    """Export of a model whose logits at a position are those of the next word, given the words up to the position."""

    PORTABLE_SIGNATURE = "serving_default"
    ID_SIGNATURES = ("serving_default",)

    def serving_default(self, token_ids: tf.Tensor) -> dict[str, tf.Tensor]:
        """Return logits for rows of any length."""
        return self.respond(
            token_ids, lambda ids: (ids >= 0) & (ids < self.classes), lambda ids, rows: self._logits_of(ids)
        )

    def _logits_of(self, ids):
        return tf.cast(self.model(pad_if_empty(ids), training=False), tf.float32)[: tf.shape(ids)[0]]

    def serve_texts(
        self, texts: tf.Tensor, tokenizer: GraphTokenizer, names: tf.lookup.StaticHashTable
    ) -> dict[str, tf.Tensor]:
        """Return "next_words" and "next_probabilities" [n, 5] of texts [n], most likely first, and "lengths" [n]."""
        ids, lengths = encode(texts, tokenizer, self.classes)
        # The model is causal, so padding after the last word has no effect on its logits.
        logits = tf.gather(self._logits_of(ids), tf.maximum(lengths - 1, 0), axis=1, batch_dims=1)
        probabilities, best = tf.math.top_k(tf.nn.softmax(logits), min(TOP, self.classes))
        has_words = lengths[:, None] > 0
        return {
            "lengths": lengths,
            "next_words": tf.where(has_words, names.lookup(tf.cast(best, tf.int64)), ""),
            "next_probabilities": tf.where(has_words, probabilities, np.nan),
        }

    @property
    def input_spec(self) -> dict:
        return {"kind": "next_word", **self.text_spec}

    def notes(self, signatures: Collection[str]) -> list[str]:
        sentences = [
            f"Token ids are 0..{self.classes - 1}. A row with another id gets NaN. The logits at a position are "
            "those of the next token.",
            f"Clients trained on {self.segment} tokens at a time; longer rows are accepted and processed in one pass.",
        ]
        if "serve_text" in signatures:
            sentences.append(
                f"`serve_text` takes beginnings of sentences and splits them into {self.nouns}. A text without a word "
                "gets NaN."
            )
        return sentences

    def example_call(self, signatures: Collection[str]) -> tuple[str, str, str]:
        if "serve_text" in signatures and self.process.dataset.vocabulary:
            return "serve_text", f"text=tf.constant([{self.process.dataset.vocabulary[-1]!r}])", "next_words"
        return "serving_default", "token_ids=[[0, 1]]", "logits"


def encode(sentences: tf.Tensor, tokenizer: GraphTokenizer, classes: int) -> tuple[tf.Tensor, tf.Tensor]:
    """Return (ids int32 [n, longest], lengths [n]) of texts [n], padded with 0 to at least one position."""
    words = tokenizer.split(sentences)
    longest = tf.reduce_max(tf.concat([words.row_lengths(), [1]], 0))
    flat = check_words(words.flat_values, words.nrows(), longest, classes)
    ids = tokenizer.encode(words.with_flat_values(flat)).to_tensor(0)
    return tf.pad(ids, [[0, 0], [0, tf.cast(longest, tf.int32) - tf.shape(ids)[1]]]), tf.cast(
        words.row_lengths(), tf.int32
    )
