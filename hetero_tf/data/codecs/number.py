"""A number of a column, stored as a feature."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from hetero_tf.base.errors import InputError
from hetero_tf.base.formatting import escape_markdown, quote_markdown
from hetero_tf.data.codecs import Assets, ColumnCodec, Form
from hetero_tf.data.columns import Notation, is_listed, is_missing, normalize, parse_number, to_float, to_plain_number


@dataclass(frozen=True)
class Codec(ColumnCodec):
    """Numbers, of which missing ones are invalid or have a value that replaces them.

    Attributes:
        fill: Number that replaces a missing one; None if it is invalid.
        marks_missing: Whether a further feature is 1 for a missing number, else 0.
        notation: Notation of numbers in files, see `columns.to_plain_number`.
        missing_values: Further texts that denote a missing number, see `columns.is_listed`.
    """

    fill: float | None = None
    marks_missing: bool = False
    notation: Notation = "plain"
    missing_values: tuple[str, ...] = ()

    LOCAL = ("scale",)

    def forms(self, name: str, assets: Assets) -> dict[str, Form]:
        """Return the form: a number, or NaN for a missing one."""
        import tensorflow as tf

        listed = [listed for text in self.missing_values if (listed := to_float(text)) is not None]

        def decode(numbers):
            for each in listed:
                numbers = tf.where(numbers == each, tf.constant(np.nan, numbers.dtype), numbers)
            features, missing = tf.cast(numbers, tf.float32)[:, None], tf.math.is_nan(numbers)[:, None]
            if self.fill is not None:
                features = tf.where(missing, np.float32(self.fill), features)
            return tf.concat([features, tf.cast(missing, tf.float32)], 1) if self.marks_missing else features

        return {"serving_default": Form(name, "float64", (), decode)}

    def send(self, name: str, stored: np.ndarray) -> dict[str, np.ndarray]:
        numbers = stored[:, 0].astype(np.float64)
        return {name: np.where(stored[:, 1] == 1, np.nan, numbers) if self.marks_missing else numbers}

    def repair(self, stored: np.ndarray) -> np.ndarray:
        # No number is missing.
        return stored * [1, 0][: 1 + self.marks_missing]

    def features(self, name: str) -> tuple[str, ...]:
        return (name, f"{name}.missing") if self.marks_missing else (name,)

    def notes(self, name: str, invalid: str) -> list[str]:
        if self.fill is None:
            return []
        others = "".join(f" or {escape_markdown(text)}" for text in self.missing_values)
        sign = f", and marks it by 1 in `{name}.missing`" if self.marks_missing else ""
        return [
            f"{quote_markdown(name)}: a missing number is NaN{others}, which the model replaces by {self.fill:g}{sign}."
        ]

    def parse(self, name: str, text: str) -> float:
        text = normalize(text)
        if is_missing(text) or is_listed(text, self.missing_values):
            if self.fill is None:
                raise InputError(f"column {name!r} must be a finite number. Received: {text!r}")
            return float("nan")
        return parse_number(text if self.notation == "plain" else to_plain_number(text, self.notation), name)

    def example(self) -> Any:
        return float(f"{self.mean[0] if self.mean else 0.0:.3g}")
