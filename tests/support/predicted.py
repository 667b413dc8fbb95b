"""Predictions of a process for items of the command line or files."""

import pytest

from hetero_tf.export.predictions import predict, predictor_of_process


def run(predictor, inputs, top=3):
    """Predict items whose files have no ignored columns."""
    return list(predict(predictor, [*map(str, inputs)], top, pytest.fail))


def of_process(process, model, inputs, top=3):
    """Predict items with a model of a process."""
    return run(predictor_of_process(process, model), inputs, top)
