"""Export of a masked language model: signatures for token ids and for sentences with `<mask>` words."""

from collections.abc import Collection

import keras
import numpy as np
import tensorflow as tf

from hetero_tf.export.limits import pad_if_empty
from hetero_tf.export.text import TOP, TextTask, check_words
from hetero_tf.export.tokens import GraphTokenizer
from hetero_tf.run.learning_process import LearningProcess

MASK = "<mask>"


class MaskedTextTask(TextTask):
    """Export of a masked language model; the id of the mask token is the number of words.

    Rows longer than the model's segment are split into segments as in training, and each segment is computed
    independently.
    """

    PORTABLE_SIGNATURE = "serve_segment"
    ID_SIGNATURES = ("serving_default", "serve_segment")

    def __init__(self, process: LearningProcess, model: keras.Model):
        super().__init__(process, model)
        self.special = (*self.special, MASK)

    def serving_default(self, token_ids: tf.Tensor) -> dict[str, tf.Tensor]:
        """Return logits for rows of any length."""
        return self._respond(token_ids, self._logits_of)

    def serve_segment(self, token_ids: tf.Tensor) -> dict[str, tf.Tensor]:
        """Return logits for rows of at most one segment."""
        return self._respond(token_ids, lambda ids: tf.cast(self.model(ids, training=False), tf.float32))

    def _respond(self, token_ids, logits_of):
        return self.respond(
            token_ids,
            lambda ids: (ids >= 0) & (ids <= self.classes),
            lambda ids, rows: logits_of(pad_if_empty(ids))[: tf.shape(rows)[0]],
        )

    def _logits_of(self, ids):
        return logits_of(self.model, ids, self.segment, self.classes)

    def serve_texts(
        self, texts: tf.Tensor, tokenizer: GraphTokenizer, names: tf.lookup.StaticHashTable
    ) -> dict[str, tf.Tensor]:
        """Return the most likely words of each position of texts [n].

        Returns:
            "token_ids", "is_mask", "topk_tokens" and "topk_probabilities" [n, longest(, 5)], most likely first, and
            "lengths" [n]. After the last word they are padded with -1, False, "" and 0. The probabilities of a text
            without a word are NaN.
        """
        ids, is_mask, lengths = encode(texts, tokenizer, self.classes)
        longest, top_count = tf.shape(ids)[1], min(TOP, self.classes)

        def fill(row):
            # Attention has no mask and would see the padding, so each row is computed separately.
            words, length = row
            best = tf.math.top_k(tf.nn.softmax(self._logits_of(words[None, :length])[0]), top_count)
            padding = [[0, longest - length], [0, 0]]
            return tf.pad(best.indices, padding, constant_values=-1), tf.pad(best.values, padding)

        best, probabilities = tf.map_fn(
            fill,
            # tf.map_fn fails on an empty batch, so append a row without words.
            (tf.pad(ids, [[0, 1], [0, 0]]), tf.pad(lengths, [[0, 1]])),
            fn_output_signature=tuple(tf.TensorSpec((None, top_count), dtype) for dtype in (tf.int32, tf.float32)),
        )
        return {
            "token_ids": ids,
            "is_mask": is_mask,
            "lengths": lengths,
            "topk_tokens": names.lookup(tf.cast(best[:-1], tf.int64)),
            "topk_probabilities": tf.where(lengths[:, None, None] > 0, probabilities[:-1], np.nan),
        }

    @property
    def input_spec(self) -> dict:
        return {"kind": "text", "mask_token_id": self.classes, **self.text_spec}

    def notes(self, signatures: Collection[str]) -> list[str]:
        sentences = [
            f"Token ids are 0..{self.classes - 1}, and {self.classes} for a masked word. A row with another id gets "
            "NaN.",
            f"Rows longer than {self.segment} are split into segments as in training; `serve_segment` takes one "
            "segment per row.",
        ]
        if "serve_text" in signatures:
            sentences.append(
                f"`serve_text` takes sentences and splits them into {self.nouns}. `{MASK}` is a masked token. A text "
                "without a word gets NaN."
            )
        return sentences

    def example_call(self, signatures: Collection[str]) -> tuple[str, str, str]:
        if "serve_text" in signatures and self.process.dataset.vocabulary:
            word = self.process.dataset.vocabulary[-1]
            return "serve_text", f"text=tf.constant([{f'{word} {MASK} {word}'!r}])", "topk_tokens"
        return "serving_default", f"token_ids=[[0, 1, {self.classes}]]", "logits"


def logits_of(model: keras.Model, ids: tf.Tensor, segment: int, classes: int) -> tf.Tensor:
    """Return logits float32 [n, length, classes] of ids [n, length], computed segment by segment."""
    shape = tf.shape(ids)
    full_length = shape[1] // segment * segment
    full_segments = model(tf.reshape(ids[:, :full_length], [-1, segment]), training=False)
    # The rest is a separate batch, possibly without columns: padding it would change the logits.
    rest = model(ids[:, full_length:], training=False)
    full_segments = tf.reshape(full_segments, [shape[0], full_length, classes])
    return tf.cast(tf.concat([full_segments, rest], 1), tf.float32)


def encode(text: tf.Tensor, tokenizer: GraphTokenizer, mask: int) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Return (ids int32 [n, longest], is_mask, lengths [n]) of texts [n], padded with -1 to at least one position.

    Args:
        text: Texts [n].
        tokenizer: Splits the texts as in training, but adds no `<eos>` to the end of a text.
        mask: Id of `<mask>`, which is the number of classes.
    """
    # `<mask>` without spaces around it, or in capitals, would silently become an unknown word.
    words = tokenizer.split(tokenizer.isolate(text, f"(?i){MASK}", MASK))
    longest = tf.reduce_max(tf.concat([words.row_lengths(), [1]], 0))
    words = words.with_flat_values(check_words(words.flat_values, words.nrows(), longest, mask))
    is_mask = tf.ragged.map_flat_values(tf.equal, words, MASK)
    ids = tf.ragged.map_flat_values(tf.where, is_mask, mask, tokenizer.encode(words))
    lengths = tf.cast(words.row_lengths(), tf.int32)
    shape = tf.stack([words.nrows(), longest])
    return ids.to_tensor(-1, shape=shape), is_mask.to_tensor(False, shape=shape), lengths
