"""`ExportTask`: what an export must know about a kind of data."""

import abc
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from hetero_tf.data.codecs import Field
from hetero_tf.data.fields import input_names
from hetero_tf.run.learning_process import LearningProcess


class ExportTask(abc.ABC):
    """Export of the model of one level: labelled examples, or the positions of texts.

    Servers do not check shapes, and a wrong rank may abort the process inside a kernel, so signatures begin with
    `tf.ensure_shape`. An invalid example gets NaN and does not affect the other examples of a request.

    Attributes:
        CHECKED_EXAMPLES: Test examples in one request when outputs are compared with those of the Keras model.
        output_name: Name of the model's unchanged outputs in the results of a signature.
        fields: Fields of the data set.
    """

    CHECKED_EXAMPLES: int
    output_name = "logits"

    def __init__(self, process: LearningProcess, model: keras.Model):
        self.process, self.model = process, model
        self.fields: tuple[Field, ...] = process.dataset.fitted_fields
        self.codec = self.fields[0].codec

    @property
    @abc.abstractmethod
    def portable_signature(self) -> str:
        """Signature without loops and strings, which other formats convert."""

    @property
    def portable_input(self) -> str:
        """Name of the first input of that signature."""
        return next(iter(self.request(self.process.dataset.train.x[:1], self.portable_signature)))

    @abc.abstractmethod
    def endpoints(self, scratch: Path) -> tuple[dict[str, tuple[Callable, list[tf.TensorSpec]]], tuple]:
        """Return `{signature: (function, input specs)}` and the lookup tables of the signatures.

        Args:
            scratch: Folder for the vocabulary file, which the SavedModel copies.
        """

    @property
    @abc.abstractmethod
    def max_batch_size(self) -> int | None:
        """Examples of several requests that a server may batch; None if batching would change the outputs."""

    @property
    @abc.abstractmethod
    def limits(self) -> dict[str, int]:
        """Limits of a request for `export.json`."""

    @abc.abstractmethod
    def request(self, x: np.ndarray, signature: str = "serving_default") -> dict[str, np.ndarray]:
        """Return the request of a signature for stored examples."""

    @abc.abstractmethod
    def model_inputs(self, x: tf.Tensor) -> tf.Tensor:
        """Return the inputs of the Keras model for examples of a request or data set."""

    @abc.abstractmethod
    def measure(self, predict: Callable, signature: str) -> dict[str, float]:
        """Measure an exported model on the whole test set: "loss", and "accuracy" in percent or "perplexity".

        Args:
            predict: `(**inputs) -> outputs` of a signature.
        """

    @property
    def input_spec(self) -> dict[str, Any]:
        """Description of the model's input for `export.json`: its kind, and the fields with their inputs."""
        fields = zip(self.fields, input_names(self.fields))
        described = [{**field.describe(), "input": name} for field, name in fields]
        return {"kind": self.codec.KIND, "fields": described}

    @abc.abstractmethod
    def notes(self, signatures: Collection[str]) -> list[str]:
        """Return sentences on the inputs for callers of the model."""

    @abc.abstractmethod
    def example_call(self, signatures: Collection[str]) -> tuple[str, str, str]:
        """Return a signature, the arguments of a call as Python, and the output to print."""

    @property
    def items(self) -> dict[str, Any]:
        """Description of the items of `predict` for `export.json`: their signature, and options of the loader."""
        options = self.process.recipe.data.loader.options
        labels = options.get("label") or ()
        return {
            "signature": self.codec.PREDICT,
            "targets": self.process.recipe.targets,
            "text": options.get("text", "text"),
            "labels": [labels] if isinstance(labels, str) else list(labels),
            "header": options.get("header", True),
        }

    def outputs_of(self, results: dict) -> np.ndarray:
        """Return the model's unchanged outputs among the results of a call; a Keras file has no others."""
        return results.get(self.output_name, next(iter(results.values())))

    def calls(self, signatures: Collection[str]) -> str:
        """Return three lines of Python that call the model inside the folder of its version."""
        name, arguments, output = self.example_call(signatures)
        return (
            f'import tensorflow as tf\nserve = tf.saved_model.load(".").signatures["{name}"]\n'
            f'print(serve({arguments})["{output}"])\n'
        )
