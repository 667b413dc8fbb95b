"""`ExportTask`: what an export must know about a kind of data."""

import abc
from collections.abc import Callable, Collection
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

from hetero_tf.run.learning_process import LearningProcess


class ExportTask(abc.ABC):
    """Export of the model of one level; each kind of data has a subclass.

    A signature of the SavedModel is a method of its name. Servers do not check shapes, and a wrong rank may abort the
    process inside a kernel, so signatures begin with `tf.ensure_shape`. An invalid example gets NaN and does not affect
    the other examples of a request.

    Attributes:
        INPUT_NAME: Input of the signature "serving_default".
        PORTABLE_SIGNATURE: Signature without loops and strings, which other formats convert.
        CHECKED_EXAMPLES: Test examples in one request when outputs are compared with those of the Keras model.
        PREDICT_SIGNATURE, PREDICT_DATA: Signature for the items of `predict`, and the data set that it requires.
        output_name: Name of the model's unchanged outputs in the results of a signature.
        process: Process that trained the model.
        model: The Keras model.
    """

    INPUT_NAME: str
    PORTABLE_SIGNATURE: str
    CHECKED_EXAMPLES: int
    PREDICT_SIGNATURE: str
    PREDICT_DATA: str
    output_name = "logits"

    def __init__(self, process: LearningProcess, model: keras.Model):
        self.process, self.model = process, model

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
    def request(self, x: np.ndarray) -> dict[str, np.ndarray]:
        """Return the request of "serving_default" for stored examples."""

    @abc.abstractmethod
    def model_inputs(self, x: tf.Tensor) -> tf.Tensor:
        """Return the inputs of the Keras model for examples of a request or data set."""

    @abc.abstractmethod
    def measure(self, predict: Callable) -> dict[str, float]:
        """Measure an exported model on the whole test set: "loss", and "accuracy" in percent or "perplexity".

        Args:
            predict: `(**inputs) -> outputs` of the signature "serving_default".
        """

    @property
    @abc.abstractmethod
    def input_spec(self) -> dict:
        """Description of the model's input for `export.json`."""

    @abc.abstractmethod
    def notes(self, signatures: Collection[str]) -> list[str]:
        """Return sentences on the inputs for callers of the model."""

    @abc.abstractmethod
    def example_call(self, signatures: Collection[str]) -> tuple[str, str, str]:
        """Return a signature, the arguments of a call as Python, and the output to print."""

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
