"""One or more numbers for each example."""

from typing import Literal

import numpy as np
import tensorflow as tf

from hetero_tf.methods.tasks import Task

TARGETS = "numbers"
LOSS = "mean_squared_error"
TEST_LOSS = "mean_squared_error"
METRICS = ("rmse", "mae", "r2")
CUTS_LABELS = False

# Mean and standard deviation of targets in their own unit.
UNSCALED = (np.zeros(1), np.ones(1))


def task(*, scale: Literal["standard", "none"] = "standard", statistics=UNSCALED) -> Task:
    """Return the task; exported models and metrics use the units of the data.

    Args:
        scale: unit of the outputs and losses: standard, the deviation from the mean of the training targets in their
            standard deviations; none, the unit of the data.
        statistics: mean and standard deviation of each target, float `[targets]`, from `Dataset.target_statistics`.
    """
    mean, std = UNSCALED if scale == "none" else statistics

    def decode(outputs):
        return outputs * tf.constant(std, outputs.dtype) + tf.constant(mean, outputs.dtype)

    return Task(
        encode=lambda targets: ((targets - mean) / std).astype(np.float32),
        decode=decode,
        predict=lambda outputs, valid: {"outputs": outputs, "values": decode(outputs)},
        prediction_scores=decode,
        output_name="outputs",
        prediction_name="values",
        index_name=None,
        scaling=(mean, std),
    )
