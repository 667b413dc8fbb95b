"""Sentences, stored as ids of their tokens."""

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hetero_tf.base.constraints import Tokenizer
from hetero_tf.base.errors import InputError
from hetero_tf.data.codecs import Assets, BaseCodec, Field, Form, Positive
from hetero_tf.data.targets import check_range

# Id of a token outside the vocabulary.
UNKNOWN_ID = 1


@dataclass(frozen=True)
class Codec(BaseCodec):
    """Rows of tokens, padded with 0: the lower-case sentences of `data.words`.

    Attributes:
        length: Tokens of a row.
        vocabulary: Tokens in the order of their ids; None if they are unknown, such as in an export, where they are a
            file.
        tokenizer: Tokens of the vocabulary, see `words.build_tokenizer`.
    """

    length: Positive
    vocabulary: tuple[str, ...] | None = None
    tokenizer: Tokenizer = "words"

    KIND, EXAMPLE, STORED = "sequences", "sequence", "words int32 [n, length]"
    DTYPES, HAS_ONE_SCALE, STEPS = (np.int32,), True, ("adam", 0.002, 20)
    LOCAL = ("vocabulary",)
    PIPELINES = {"classification": "text-classification"}
    ITEMS, PREDICT, ITEM_NEEDS = "serve_text", "serve_text", "a vocabulary"

    @property
    def texts(self) -> tuple[str, ...]:  # type: ignore[override]
        return self.vocabulary or ()

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.length,)

    def check(self, location: str, stored: np.ndarray) -> None:
        if self.vocabulary is not None:
            check_range(location, "word id", stored, len(self.vocabulary))

    def draw(self, rng: np.random.Generator, count: int) -> np.ndarray:
        return rng.integers(0, len(self.texts), (count, self.length)).astype(np.int32)

    def describe(self, fields: Sequence[Field], x: Any, summary: Any) -> list[str]:
        lengths, unit = np.count_nonzero(x, 1), self.tokenizer
        extent = f"{lengths.min()} to {lengths.max()} {unit}, {np.median(lengths):g} in the median"
        return [f"texts: {extent}; {len(self.texts):,} {unit} in the vocabulary"]

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
        return np.zeros(self.shape, np.int32)

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
            return unicodedata.normalize("NFC", text).encode()
        except UnicodeEncodeError as error:
            raise InputError("is not valid Unicode") from error

    def example(self) -> Any:
        return "this is a sentence"
