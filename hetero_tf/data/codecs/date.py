"""A day of the calendar, stored as features such as the month and the weekday, see `dates.date_features`."""

import datetime
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from hetero_tf.base.errors import InputError
from hetero_tf.base.formatting import quote_markdown
from hetero_tf.data.codecs import Assets, ColumnCodec, Form
from hetero_tf.data.columns import is_missing
from hetero_tf.data.dates import DATE_EXAMPLES, PARTS, DateOrder, date_features, parse_date

PATTERN = r"(\d{4})-(\d\d)-(\d\d)(?:[T ].*)?"


@dataclass(frozen=True)
class Codec(ColumnCodec):
    """Dates.

    Attributes:
        order: Order of year, month and day in files.
        fill: Date that replaces a missing one, in that order; None if it is invalid.
        missing_values: Further texts that denote a missing date.
    """

    order: DateOrder
    fill: str | None = None
    missing_values: tuple[str, ...] = ()

    def __post_init__(self):
        super().__post_init__()
        if self.order not in DATE_EXAMPLES or self.fill is not None and parse_date(self.fill, self.order) is None:
            raise ValueError(f"a date has invalid options. Received: {self!r:.80}")

    def forms(self, name: str, assets: Assets) -> dict[str, Form]:
        """Return the form: a date in the notation of ISO 8601, such as 2024-12-31; an empty text is missing."""
        import tensorflow as tf

        def decode(texts):
            texts = tf.strings.strip(texts)
            if self.fill is not None:
                is_empty = tf.reduce_any(texts[:, None] == tf.constant(["", *self.missing_values]), 1)
                texts = tf.where(is_empty, self.parse(name, self.fill), texts)
            return _encode(texts)

        return {"serving_default": Form(name, "string", (), decode)}

    def send(self, name: str, stored: np.ndarray) -> dict[str, np.ndarray]:
        days = stored[:, :3].astype(int).tolist()
        return {name: np.array([b"%04d-%02d-%02d" % (year, month, day) for year, month, day in days], object)}

    def repair(self, stored: np.ndarray) -> np.ndarray:
        # The nearest days.
        days = np.clip(np.round(stored[:, :3]), 1, [9999, 12, 28]).astype(int).tolist()
        return np.array([date_features(datetime.date(*day)) for day in days])

    def features(self, name: str) -> tuple[str, ...]:
        return tuple(f"{name}.{part}" for part in PARTS)

    def notes(self, name: str, invalid: str) -> list[str]:
        missing = "" if self.fill is None else f" A missing one is an empty text, which becomes {self.fill}."
        return [
            f"{quote_markdown(name)} is a date such as 2024-12-31; encoded as its year, month (1 to 12), day and "
            f"weekday (Monday is 0), then sine and cosine of 2 pi (month - 1) / 12 and of 2 pi weekday / 7.{missing}"
        ]

    def parse(self, name: str, text: str) -> str:
        if self.fill is not None and (is_missing(text) or text.strip() in self.missing_values):
            text = self.fill
        date = parse_date(text, self.order)
        if date is None:
            example = DATE_EXAMPLES[self.order]
            raise InputError(f"column {name!r} must be a date such as {example}. Received: {text.strip()!r}")
        return date.isoformat()

    def example(self) -> Any:
        return self.parse("", self.fill or DATE_EXAMPLES[self.order])


def _encode(texts):
    """Return the features float32 [n, 8] of dates in the notation of ISO 8601; NaN for other texts."""
    import tensorflow as tf

    is_date = tf.strings.regex_full_match(texts, PATTERN)
    texts = tf.where(is_date, texts, "2000-01-01")
    year, month, day = (
        tf.strings.to_number(tf.strings.substr(texts, first, size), tf.int32)
        for first, size in ((0, 4), (5, 2), (8, 2))
    )
    is_leap = (year % 4 == 0) & ((year % 100 != 0) | (year % 400 == 0))
    days = tf.gather([31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31], tf.clip_by_value(month - 1, 0, 11))
    days += tf.cast(is_leap & (month == 2), tf.int32)
    is_valid = is_date & (year >= 1) & (month >= 1) & (month <= 12) & (day >= 1) & (day <= days)
    # The weekday of a Gregorian date by the method of Sakamoto (1992).
    shifted = year - tf.cast(month < 3, tf.int32)
    shift = tf.gather([0, 3, 2, 5, 0, 3, 5, 1, 4, 6, 2, 4], tf.clip_by_value(month - 1, 0, 11))
    weekday = (shifted + shifted // 4 - shifted // 100 + shifted // 400 + shift + day + 6) % 7
    angles = [2 * math.pi * tf.cast(month - 1, tf.float64) / 12, 2 * math.pi * tf.cast(weekday, tf.float64) / 7]
    cyclic = [function(angle) for angle in angles for function in (tf.sin, tf.cos)]
    features = tf.stack([tf.cast(part, tf.float32) for part in (year, month, day, weekday, *cyclic)], 1)
    return tf.where(is_valid[:, None], features, np.float32(np.nan))
