"""Export of a model for examples of several named arrays: signatures with an input for each array."""

from collections.abc import Collection
from pathlib import Path

import numpy as np
import tensorflow as tf

from hetero_tf.base.escaping import quote_markdown
from hetero_tf.data.named_arrays import unpack
from hetero_tf.export.labelled import LabelledTask
from hetero_tf.models.preprocessed import pack_tensors


class ArraysTask(LabelledTask):
    """Export of a model with several inputs.

    An example with a number that is not finite, or with an id outside the range of the training examples, is invalid.
    """

    NOUN = "examples"
    PREDICT_SIGNATURE, PREDICT_DATA = "predict_items", "one array"

    @property
    def arrays(self):
        """Arrays of the examples."""
        return self.process.dataset.arrays

    def endpoints(self, scratch: Path) -> tuple[dict, tuple]:
        """Return the signatures, whose inputs are the arrays by name, and no lookup tables."""
        specs = [tf.TensorSpec((None, *array.shape), array.dtype, name=array.name) for array in self.arrays]
        return {"serving_default": (self.serving_default, specs), "serve_numbers": (self.serve_numbers, specs)}, ()

    def serving_default(self, *tensors: tf.Tensor) -> dict[str, tf.Tensor]:
        """Return outputs with class names for arrays as the data set has them, in its order."""
        return self.add_class_names(self.serve_numbers(*tensors))

    def serve_numbers(self, *tensors: tf.Tensor) -> dict[str, tf.Tensor]:
        """Return outputs for arrays as the data set has them, in its order."""
        checked = {array.name: self.check(tensor, *array.shape) for array, tensor in zip(self.arrays, tensors)}
        x = pack_tensors(list(checked), checked)
        low, high = self.ranges
        is_valid = tf.reduce_all((x >= low) & (x <= high), 1)
        # A lookup of an id outside its range would fail for the whole request.
        return self.classify_valid(tf.where(is_valid[:, None], x, self.process.dataset.train.x[0]), is_valid)

    @property
    def ranges(self) -> tuple[np.ndarray, np.ndarray]:
        """Smallest and largest valid number of each packed value, float32 each."""
        largest = np.finfo(np.float32).max
        bounds = [
            np.tile([[array.low], [array.high]] if array.dtype == "int32" else [[-largest], [largest]], array.size)
            for array in self.arrays
        ]
        low, high = np.concatenate(bounds, 1).astype(np.float32)
        return low, high

    def request(self, x: np.ndarray) -> dict[str, np.ndarray]:
        return unpack(self.arrays, x)

    @property
    def input_spec(self) -> dict:
        """Description of the model's inputs for `export.json`."""
        arrays = [{"name": array.name, "shape": list(array.shape), "dtype": array.dtype} for array in self.arrays]
        return {"kind": "arrays", "arrays": arrays}

    def notes(self, signatures: Collection[str]) -> list[str]:
        inputs = ", ".join(f"{quote_markdown(array.name)} {array.dtype} {list(array.shape)}" for array in self.arrays)
        return [
            f"Inputs and their shapes for one example: {inputs}. The model normalises them.",
            f"An example with a number that is not finite, or with an id that no training example has, gets "
            f"{self.invalid}.",
            *self.target_notes,
        ]

    def example_call(self, signatures: Collection[str]) -> tuple[str, str, str]:
        arguments = [f'{array.name}=tf.zeros({[1, *array.shape]}, "{array.dtype}")' for array in self.arrays]
        return "serving_default", ", ".join(arguments), self.targets.prediction_name
