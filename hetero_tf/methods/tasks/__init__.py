"""Tasks: the form of the targets, and the meaning of a model's outputs.

Each module has a function `task(*, options...) -> Task`; one that declares the parameter `statistics` receives
`Dataset.target_statistics`. Its constants are plain values, which recipe checks read without importing it:

- `TARGETS`: the form of the targets, see `data.targets`.
- `LOSS`: the default of `client.loss`; others are the losses with the same targets.
- `TEST_LOSS`: the loss of evaluations, over all outputs.
- `METRICS`: metrics that every evaluation measures; the first one selects the best round by default.
- `CUTS_LABELS`: True if an example has one label, so that a client needs only the logits of its labels.
- `REQUIRES`, `CONFLICTS`, `UNUSED`: rules for other keys of the recipe, see `methods`.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import tensorflow as tf


@dataclass(frozen=True)
class Task:
    """Converts targets for losses, and outputs for metrics and users.

    Attributes:
        encode: `targets -> targets of the losses`, both NumPy arrays with one entry per example.
        decode: `outputs -> scores` in the graph, the values that metrics compare with the targets.
        predict: `(outputs [n, ...], valid) -> {name: tensor}` in the graph, the outputs of an exported model by name.
            Written predictions read "class" and "probabilities" of labels and label maps, "labels" and "probabilities"
            of label sets, and "values" of numbers. The outputs of an example that is not valid, bool [n], are NaN;
            integers of its predictions are -1.
        output_name: Name of the unchanged outputs among the predictions.
        prediction_name: Name of the values that users read.
        index_name: Name of the integers among them, -1 for an invalid example; None: there are none.
        scaling: Mean and standard deviation float64 [targets] by which `encode` scales numbers; None: `encode` only
            changes the type, so devices without TensorFlow can repeat it.
    """

    encode: Callable[[np.ndarray], np.ndarray]
    decode: Callable[[tf.Tensor], tf.Tensor]
    predict: Callable[[tf.Tensor, tf.Tensor], dict[str, tf.Tensor]]
    output_name: str = "logits"
    prediction_name: str = "probabilities"
    index_name: str | None = "class"
    scaling: tuple[np.ndarray, np.ndarray] | None = None


def identity(values):
    """Return values unchanged."""
    return values
