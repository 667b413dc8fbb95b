"""Texts, stored as ids of their tokens."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from hetero_tf.base.errors import InputError
from hetero_tf.data.codecs import Assets, BaseCodec, Form

# Id of a token outside the vocabulary.
UNKNOWN_ID = 1


@dataclass(frozen=True)
class Codec(BaseCodec):
    """Rows of tokens, padded with 0: the lower-case sentences of `data.sentences`, or running text.

    Attributes:
        vocabulary: Tokens in the order of their ids; None if they are unknown.
        tokenizer: Tokens of the vocabulary, see `words.build_tokenizer`.
        length: Tokens of a row.
    """

    vocabulary: tuple[str, ...] | None
    tokenizer: str
    length: int

    ITEMS, PREDICT, ITEM_NEEDS = "serve_text", "serve_text", "a vocabulary"

    def options(self) -> dict[str, Any]:
        # The vocabulary is a file of the export.
        return {**super().options(), "vocabulary": None}

    def send(self, name: str, stored: np.ndarray) -> dict[str, np.ndarray]:
        return {"token_ids": stored}

    def forms(self, name: str, assets: Assets) -> dict[str, Form]:
        """Return the forms: ids of tokens, 0 after the last one, and sentences."""
        import tensorflow as tf

        from hetero_tf.data.graph_tokenizer import GraphTokenizer, encode_sentences, vocabulary_tables

        words = self.vocabulary or ()
        numbers, _ = vocabulary_tables(words, assets.folder, UNKNOWN_ID)
        assets.tables.append(numbers)
        tokenizer = GraphTokenizer(self.tokenizer, numbers, words, UNKNOWN_ID)

        def check_ids(ids):
            return tf.where((ids >= 0) & (ids < len(words)), ids, -1)

        def decode(texts):
            ids = tf.ensure_shape(encode_sentences(texts, tokenizer, self.length), (None, self.length))
            # Words never have the id of padding, so only a sentence without words begins with it.
            return tf.where(ids[:, :1] > 0, ids, -1)

        form = Form("token_ids", "int32", (self.length,), check_ids)
        return {"serving_default": form, "serve_numbers": form, "serve_text": Form("text", "string", (), decode)}

    @property
    def blank(self) -> np.ndarray:
        return np.zeros(self.length, np.int32)

    def notes(self, name: str, invalid: str) -> list[str]:
        from hetero_tf.data.graph_tokenizer import NOUNS

        nouns = "words and signs" if self.tokenizer == "words" else NOUNS[self.tokenizer]
        return [
            f"Token ids are 0..{len(self.vocabulary or ()) - 1}, the lines of `assets/vocabulary.txt` from 0: 0 pads a "
            f"row to {self.length} tokens, and 1 is every unknown token. A row with another id gets {invalid}.",
            f"`serve_text` takes sentences, makes them lower-case and splits them into {nouns}; it reads the first "
            f"{self.length} of them. A sentence without a word gets {invalid}.",
        ]

    def parse(self, name: str, text: str) -> bytes:
        try:
            return text.encode()
        except UnicodeEncodeError as error:
            raise InputError("is not valid Unicode") from error

    def example(self) -> Any:
        return "this is a sentence"
