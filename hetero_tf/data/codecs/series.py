"""Numbers over time."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hetero_tf.base.formatting import LINE, quote_markdown, shorten
from hetero_tf.data.codecs import Assets, BaseCodec, Field, Form, Positive, mean_and_std, typical
from hetero_tf.data.inspection import TableSummary


@dataclass(frozen=True)
class Codec(BaseCodec):
    """Series of one length, such as windows of measurements.

    Attributes:
        shape: Positions and channels.
        channels: Names of the channels; None if they are unknown.
        base_channels: Channel whose last value was subtracted from each target, after the last values of a
            series were subtracted from it; None for unchanged values.
        mean: Mean of each channel.
        std: Standard deviation of each channel.
    """

    shape: tuple[Positive, Positive]
    channels: tuple[str, ...] | None = None
    base_channels: tuple[int, ...] | None = None
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()

    KIND, NOUN, EXAMPLE, STORED = "series", "series", "series", "series float32 [n, time, channels]"
    PIPELINES = {"regression": "time-series-forecasting"}

    def __post_init__(self):
        channels = self.shape[1]
        sizes = {len(self.mean), len(self.std)}
        if sizes not in ({0}, {channels}) or len(self.channels or range(channels)) != channels:
            raise ValueError(f"the names and statistics must be those of {channels} channels")
        if any(channel not in range(channels) for channel in self.base_channels or ()):
            raise ValueError(f"base_channels must be below {channels}")

    @property
    def texts(self) -> tuple[str, ...]:  # type: ignore[override]
        return self.channels or ()

    @property
    def statistics(self) -> tuple[tuple[float, ...], tuple[float, ...]] | None:
        return (self.mean, self.std) if self.mean else None

    def features(self, name: str) -> tuple[str, ...]:
        return self.channels or ()

    def fit(self, stored: np.ndarray) -> "Codec":
        mean, std = mean_and_std(stored.reshape(-1, stored.shape[-1]))
        return replace(self, mean=tuple(mean.tolist()), std=tuple(std.tolist()))

    def draw(self, rng: np.random.Generator, count: int) -> np.ndarray:
        noise = rng.standard_normal((count, *self.shape))
        x = np.array(self.mean or 0.0) + np.array(self.std or 1.0) * noise
        return self.subtract_base(x).astype(np.float32)

    def describe(self, fields: Sequence[Field], x: Any, summary: TableSummary | None) -> list[str]:
        time, channels = self.shape
        relative = "" if self.base_channels is None else ", relative to the last one"
        line = f"series: {len(x):,} training windows of {time:,} positions{relative}, channels: {channels:,}"
        return [shorten(line, LINE), *(summary.lines() if summary else [])]

    def forms(self, name: str, assets: Assets) -> dict[str, Form]:
        """Return the form: numbers in the units of the data."""
        import tensorflow as tf

        form = Form("series", "float32", self.shape, tf.identity)
        return {"serving_default": form, "serve_numbers": form}

    def send(self, name: str, stored: np.ndarray) -> dict[str, np.ndarray]:
        return {"series": stored}

    def subtract_base(self, x: Any) -> Any:
        return x if self.base_channels is None else x - x[:, -1:]

    def add_base(self, x: Any, values: Any) -> Any:
        import tensorflow as tf

        return values if self.base_channels is None else values + tf.gather(x[:, -1], self.base_channels, axis=1)

    def notes(self, name: str, invalid: str) -> list[str]:
        time, channels = self.shape
        numbers = "one number" if channels == 1 else f"{channels} numbers"
        sentences = [
            f"A series has {time} positions, the oldest first, with {numbers} each in the units of the data. The model "
            "normalises them.",
            f"A series with a number that is not finite gets {invalid}.",
        ]
        if self.base_channels is not None:
            sentences.append(
                "Forecasts are relative to the last position: the model subtracts it from the series, and adds it to "
                "the `values`. The file model.keras does neither."
            )
        if self.channels is not None:
            sentences.append(f"Order of the channels: {', '.join(map(quote_markdown, self.channels))}.")
        return sentences

    def example(self) -> Any:
        return typical(self.mean or 0.0, self.std or 0.0, self.shape)
