"""Tasks: the form of the targets, and the meaning of a model's outputs.

Each module has a function `task(*, options...) -> Task`; one that declares the parameter `statistics` or `classes`
without annotation receives `Dataset.target_statistics` or the number of classes. Its constants are plain values, which
recipe checks read without importing it:

- `TARGETS`: the form of the targets, see `data.targets`.
- `LOSS_TARGETS`: the form of the encoded targets, which losses support; absent: `TARGETS`.
- `OUTPUTS`: "thresholds", one output between each class and the next one; absent: one for each class or target.
- `CLASSES`: the only supported number of classes; absent: any.
- `LOSS`: the default of `client.loss`; others are the losses that support the encoded targets.
- `TEST_LOSS`: the loss of evaluations, over all outputs.
- `METRICS`: metrics that every evaluation measures; the first one selects the best round by default, else the loss.
- `ORDERED`: True if the order of the classes counts.
- `CUTS_LABELS`: True if an example has one label, so that a client needs only the logits of its labels.
- `REQUIRES`, `CONFLICTS`, `UNUSED`: rules for other keys of the recipe, see `methods`.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import tensorflow as tf


def identity(values):
    """Return values unchanged."""
    return values


@dataclass(frozen=True)
class Task:
    """Converts targets for losses, and outputs for metrics and users.

    Attributes:
        encode: `targets -> targets of the losses`, both NumPy arrays with one entry per example.
        decode: `outputs -> scores` in the graph: numbers in the unit of the targets, or one score for each class or
            label, whose softmax (of labels: whose sigmoids) are the probabilities.
        predict: `(outputs [n, ...], valid) -> {name: tensor}` in the graph, the outputs of an exported model by name.
            Written predictions read "class" and "probabilities" of labels and label maps, "labels" and "probabilities"
            of label sets, and "values" of numbers. The outputs of an example that is not valid, bool [n], are NaN;
            integers of its predictions are -1.
        present_outputs: `bool [..., classes] -> bool [..., outputs]` of NumPy: the outputs that the masked losses train
            on a client with these classes.
        prediction_scores: `outputs -> scores` in the graph, of which the highest one is the predicted class, or the
            positive ones are the labels; numbers as for `decode`.
        output_name: Name of the unchanged outputs among the predictions.
        prediction_name: Name of the values that users read.
        index_name: Name of the integers among them, -1 for an invalid example. If None, there are none.
        scaling: Mean and standard deviation float64 [targets] by which `encode` scales numbers. If None, `encode` only
            changes the type, so devices without TensorFlow can repeat it.
    """

    encode: Callable[[np.ndarray], np.ndarray]
    decode: Callable[[tf.Tensor], tf.Tensor]
    predict: Callable[[tf.Tensor, tf.Tensor], dict[str, tf.Tensor]]
    present_outputs: Callable[[np.ndarray], np.ndarray] = identity
    prediction_scores: Callable[[tf.Tensor], tf.Tensor] = identity
    output_name: str = "logits"
    prediction_name: str = "probabilities"
    index_name: str | None = "class"
    scaling: tuple[np.ndarray, np.ndarray] | None = None
