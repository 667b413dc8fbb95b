"""Numbers without a codec of their own, such as an array of a model with several inputs."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from hetero_tf.base.escaping import quote_markdown
from hetero_tf.data.codecs import Assets, BaseCodec, Form, typical


@dataclass(frozen=True)
class Codec(BaseCodec):
    """Numbers of one shape.

    Attributes:
        shape: Shape of one value.
        dtype: "uint8" for pixels, "int32" for other whole numbers, such as ids of words, or "float32".
        low, high: Smallest and largest valid whole number.
        mean, std: Mean and standard deviation of each number, or one for all.
    """

    shape: tuple[int, ...]
    dtype: str = "float32"
    low: float = 0.0
    high: float = 0.0
    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (0.0,)

    ITEM_NEEDS = "one array"

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
        return {name: stored.reshape(-1, *self.shape).astype(self.dtype)}

    @property
    def blank(self) -> np.ndarray:
        return np.full(self.shape, self.low if self.dtype == "int32" else 0, np.float32)

    def notes(self, name: str, invalid: str) -> list[str]:
        return [
            f"Input {quote_markdown(name)} {self.dtype} {list(self.shape)}; a number that is not finite, or an id that "
            f"no training example has, gets {invalid}."
        ]

    def example(self) -> Any:
        if self.dtype != "float32" or not self.shape or len(self.mean) not in (1, self.shape[-1]):
            return np.full(self.shape, self.low, self.dtype).tolist()
        return typical(self.mean, self.std, self.shape)

    def call(self, name: str) -> str:
        return f'{name}=tf.zeros({[1, *self.shape]}, "{self.dtype}")'
