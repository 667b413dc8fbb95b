"""Rows of running text, stored as ids of their tokens."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hetero_tf.data.codecs import Field, words


@dataclass(frozen=True)
class Codec(words.Codec):
    """Rows of a text, whose tokens are also the targets.

    Attributes:
        count: Number of tokens, if the vocabulary is unknown.
    """

    count: int = 0

    KIND, EXAMPLE, STORED = "text", "row", "words int32 [rows, length]"
    STEPS = ("adam", 0.003, 40)
    PIPELINES = {"text": "fill-mask", "next_word": "text-generation"}

    def check(self, location: str, stored: np.ndarray) -> None:
        # The tokens are the targets, which are checked.
        return

    def draw(self, rng: np.random.Generator, count: int) -> np.ndarray:
        return rng.integers(0, len(self.texts) or self.count, (count, self.length)).astype(np.int32)

    def describe(self, fields: Sequence[Field], x: Any, summary: Any) -> list[str]:
        unit, words_known = self.tokenizer, f"{len(self.texts):,} {self.tokenizer} in the vocabulary"
        return [f"text: {len(x):,} training rows of {self.length:,} {unit}, {words_known}"]
