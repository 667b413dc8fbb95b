"""Numbers over time."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from hetero_tf.base.escaping import quote_markdown
from hetero_tf.data.codecs import Assets, BaseCodec, Form, typical


@dataclass(frozen=True)
class Codec(BaseCodec):
    """Series of one length, such as windows of measurements.

    Attributes:
        shape: Positions and channels.
        channels: Names of the channels; None if they are unknown.
        base_channels: Channel whose last value was subtracted from each target, see `Dataset`; None for other targets.
        mean: Mean of each channel.
        std: Standard deviation of each channel.
    """

    shape: tuple[int, int]
    channels: tuple[str, ...] | None = None
    base_channels: tuple[int, ...] | None = None
    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (0.0,)

    NOUN = "series"

    def forms(self, name: str, assets: Assets) -> dict[str, Form]:
        """Return the form: numbers in the units of the data."""
        import tensorflow as tf

        form = Form("series", "float32", self.shape, tf.identity)
        return {"serving_default": form, "serve_numbers": form}

    def send(self, name: str, stored: np.ndarray) -> dict[str, np.ndarray]:
        return {"series": stored}

    @property
    def blank(self) -> np.ndarray:
        return np.zeros(self.shape, np.float32)

    def subtract_base(self, x: Any) -> Any:
        """Return series relative to their last position, if the targets are; NumPy arrays or tensors."""
        return x if self.base_channels is None else x - x[:, -1:]

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
        return typical(self.mean, self.std, self.shape)

    def call(self, name: str) -> str:
        return f"series=tf.zeros({[1, *self.shape]})"
