"""Numbers without a codec of their own, such as an array of a model with several inputs."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from hetero_tf.base.formatting import LINE, quote_markdown, shorten
from hetero_tf.data.codecs import Assets, BaseCodec, Field, Form, Positive, mean_and_std


@dataclass(frozen=True)
class Codec(BaseCodec):
    """Numbers of one shape: uint8 pixels, int32 ids from `low` to `high`, or float32.

    Pixels have the divisor 255 and floats their statistics; the last axis has one of each.
    "string" is for positions among the `texts`, which `preprocessed.encode_strings` replaces.
    """

    shape: tuple[Positive, ...]
    dtype: Literal["uint8", "int32", "float32", "string"] = "float32"
    low: float = 0.0
    high: float = 0.0
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    texts: tuple[str, ...] = ()

    KIND, EXAMPLE, STORED = "arrays", "example", "packed arrays float32 [n, values]"
    IS_PACKED, ITEM_NEEDS = True, "one array"
    LOCAL = ("mean", "std")

    def __post_init__(self):
        channels = self.shape[-1] if self.shape else 1
        if self.low > self.high or {len(self.mean), len(self.std)} not in ({0}, {channels}):
            raise ValueError("the limits and statistics must fit the shape")

    @property
    def statistics(self) -> tuple[tuple[float, ...], tuple[float, ...]] | None:
        times = self.size // max(len(self.mean), 1)
        return (self.mean * times, self.std * times) if self.mean else None

    def fit(self, stored: np.ndarray) -> "Codec":
        channels = self.shape[-1] if self.shape else 1
        mean, std = np.zeros(channels), np.full(channels, 255.0 if self.dtype == "uint8" else 1.0)
        if self.dtype == "float32":
            mean, std = mean_and_std(np.ascontiguousarray(stored).reshape(-1, channels))
        return replace(self, mean=tuple(mean.tolist()), std=tuple(std.tolist()))

    def draw(self, rng: np.random.Generator, count: int) -> np.ndarray:
        values = rng.uniform(self.low, self.high, (count, self.size))
        return (values if self.dtype == "float32" else np.round(values)).astype(np.float32)

    def describe(self, fields: Sequence[Field], x: Any, summary: Any) -> list[str]:
        arrays = [f"input: {field.name}, {field.codec.dtype} {list(field.codec.shape)}" for field in fields]
        lines = [f"inputs: {len(fields):,} arrays of {len(x):,} training examples", *arrays]
        return [shorten(line, LINE) for line in lines]

    def forms(self, name: str, assets: Assets) -> dict[str, Form]:
        """Return the form: the numbers as the data set has them."""
        import tensorflow as tf

        def decode(values):
            numbers = tf.cast(values, tf.float32)
            if self.dtype != "int32":
                return numbers
            return tf.where((values >= int(self.low)) & (values <= int(self.high)), numbers, np.nan)

        form = Form(name, self.dtype, self.shape, decode)
        return {"serving_default": form, "serve_numbers": form}

    def send(self, name: str, stored: np.ndarray) -> dict[str, np.ndarray]:
        values = np.array(self.texts, object)[stored.astype(int)] if self.texts else stored.astype(self.dtype)
        return {name: values.reshape(-1, *self.shape)}

    @property
    def blank(self) -> np.ndarray:
        return np.full(self.shape, self.low if self.dtype == "int32" else 0, np.float32)

    def notes(self, name: str, invalid: str) -> list[str]:
        return [
            f"Input {quote_markdown(name)} {self.dtype} {list(self.shape)}; a number that is not finite, or an id that "
            f"no training example has, gets {invalid}."
        ]

    def example(self) -> Any:
        return np.full(self.shape, self.low if self.dtype == "int32" else 0, self.dtype).tolist()
