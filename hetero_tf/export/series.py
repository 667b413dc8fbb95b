"""Export of a model for series: signatures for numbers over time."""

from collections.abc import Collection
from pathlib import Path

import tensorflow as tf

from hetero_tf.base.escaping import quote_markdown
from hetero_tf.data.columns import feature_names
from hetero_tf.export.labelled import LabelledTask


class SeriesTask(LabelledTask):
    """Export of a model for series. A series with a number that is not finite is invalid."""

    INPUT_NAME = "series"
    NOUN = "series"
    PREDICT_SIGNATURE, PREDICT_DATA = "serving_default", "series"

    def endpoints(self, scratch: Path) -> tuple[dict, tuple]:
        """Return the signatures for `series` float32 [n, time, channels], and no lookup tables."""
        specs = [tf.TensorSpec((None, *self.shape), tf.float32, name="series")]
        return {"serving_default": (self.serving_default, specs), "serve_numbers": (self.serve_numbers, specs)}, ()

    def serving_default(self, series: tf.Tensor) -> dict[str, tf.Tensor]:
        """Return outputs with class names for series in the units of the data."""
        return self.add_class_names(self.serve_numbers(series))

    def serve_numbers(self, series: tf.Tensor) -> dict[str, tf.Tensor]:
        """Return outputs for series in the units of the data."""
        outputs, base = self.classify(self.check(series, *self.shape)), self.process.dataset.base_channels
        if base is None:
            return outputs
        name = self.targets.prediction_name
        return {**outputs, name: outputs[name] + tf.gather(series[:, -1], base, axis=1)}

    def model_inputs(self, x: tf.Tensor) -> tf.Tensor:
        """Return the inputs of the Keras model; windows of the data set are relative to their last values already."""
        return super().model_inputs(x if self.process.dataset.base_channels is None else x - x[:, -1:])

    @property
    def channels(self) -> tuple[str, ...] | None:
        """Names of the channels; None if they are unknown."""
        columns = self.process.dataset.columns
        return None if columns is None else feature_names(columns)

    @property
    def input_spec(self) -> dict:
        """Description of the model's input for `export.json`; "channels" is None if their names are unknown."""
        return {
            "kind": "series",
            "shape": list(self.shape),
            "channels": None if self.channels is None else list(self.channels),
            "normalised_by": self.process.input.normalised_by,
            "base_channels": self.process.dataset.base_channels,
        }

    def notes(self, signatures: Collection[str]) -> list[str]:
        time, channels = self.shape
        numbers = "one number" if channels == 1 else f"{channels} numbers"
        sentences = [
            f"A series has {time} positions, the oldest first, with {numbers} each in the units of the data. The model "
            "normalises them.",
            f"A series with a number that is not finite gets {self.invalid}.",
        ]
        if self.process.dataset.base_channels is not None:
            sentences.append(
                f"Forecasts are relative to the last position: the model subtracts it from the series, and adds it to "
                f"the `{self.targets.prediction_name}`. The file model.keras does neither."
            )
        if self.channels is not None:
            sentences.append(f"Order of the channels: {', '.join(map(quote_markdown, self.channels))}.")
        return sentences + self.target_notes

    def example_call(self, signatures: Collection[str]) -> tuple[str, str, str]:
        return "serving_default", f"series=tf.zeros({[1, *self.shape]})", self.targets.prediction_name
