"""One of the texts of a column, stored as its index or one feature for each category."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from hetero_tf.base.errors import InputError, find_nearest
from hetero_tf.base.formatting import escape_markdown, quote_markdown
from hetero_tf.data.codecs import Assets, ColumnCodec, Form, lookup_table
from hetero_tf.data.columns import MISSING, Notation, is_listed, is_missing, normalize, to_plain_number

MAX_LISTED = 50


@dataclass(frozen=True)
class Codec(ColumnCodec):
    """Categories; other texts are invalid.

    Attributes:
        categories: The texts, in order.
        one_hot: Whether there is a feature for each category; else one, its index.
        fill: Category that replaces a missing one; None if it is invalid.
        notation: Notation of categories that are numbers in files.
        missing_values: Further texts that denote a missing category, see `columns.is_listed`.
    """

    categories: tuple[str, ...]
    one_hot: bool = True
    fill: str | None = None
    notation: Notation = "plain"
    missing_values: tuple[str, ...] = ()

    def __post_init__(self):
        super().__post_init__()
        if not self.categories or self.fill not in (None, *self.categories):
            raise ValueError(f"`fill` must be one of the categories. Received: fill={self.fill!r:.80}")

    def forms(self, name: str, assets: Assets) -> dict[str, Form]:
        """Return the form: a text; an empty one or NA is missing."""
        import tensorflow as tf

        table, missing = lookup_table(self.categories), lookup_table(MISSING)
        assets.tables.extend([table, missing])
        listed = tf.constant(self.missing_values, tf.string)

        def decode(texts):
            texts = tf.strings.strip(texts)
            if self.fill is not None:
                is_missing_text = missing.lookup(tf.strings.lower(texts)) >= 0
                is_missing_text |= tf.reduce_any(texts[:, None] == listed, 1)
                texts = tf.where(is_missing_text & (table.lookup(texts) < 0), self.fill, texts)
            indices = table.lookup(texts)[:, None]
            features = tf.one_hot(indices[:, 0], len(self.categories)) if self.one_hot else tf.cast(indices, tf.float32)
            return tf.where(indices < 0, np.float32(np.nan), features)

        return {"serving_default": Form(name, "string", (), decode)}

    def send(self, name: str, stored: np.ndarray) -> dict[str, np.ndarray]:
        indices = stored.argmax(1) if self.one_hot else stored[:, 0].astype(int)
        return {name: np.array([text.encode() for text in self.categories], object)[indices]}

    @property
    def texts(self) -> tuple[str, ...]:  # type: ignore[override]
        return self.categories

    def repair(self, stored: np.ndarray) -> np.ndarray:
        # The category of the largest number.
        if self.one_hot:
            return np.eye(len(self.categories))[stored.argmax(1)]
        return np.clip(np.round(stored), 0, len(self.categories) - 1)

    def features(self, name: str) -> tuple[str, ...]:
        return tuple(f"{name}={category}" for category in self.categories) if self.one_hot else (name,)

    def notes(self, name: str, invalid: str) -> list[str]:
        shown = [escape_markdown(text) for text in self.categories[:MAX_LISTED]]
        listed = ", ".join(shown if self.one_hot else [f"{code} {text}" for code, text in enumerate(shown)])
        more = ", ..." if len(self.categories) > MAX_LISTED else ""
        feature = "a feature for each category, 1 or 0" if self.one_hot else "the number of the category"
        missing = "" if self.fill is None else f" A missing one becomes {escape_markdown(self.fill)}."
        return [f"{quote_markdown(name)} is one of {listed}{more}; encoded as {feature}.{missing}"]

    def parse(self, name: str, text: str) -> str:
        text = normalize(text)
        is_empty = is_missing(text) or is_listed(text, self.missing_values)
        if self.fill is not None and is_empty and text not in self.categories:
            return self.fill
        text = text if self.notation == "plain" else to_plain_number(text, self.notation)
        if text not in self.categories:
            more, nearest = ", ..." if len(self.categories) > 10 else "", find_nearest(text, self.categories)
            raise InputError(
                f"column {name!r} must be one of {', '.join(self.categories[:10])}{more}. Received: {text!r}"
                + (f"; did you mean {nearest!r}?" if nearest else "")
            )
        return text

    def example(self) -> Any:
        return self.categories[0]
