"""Predictions of a trained model for pictures, rows or sentences, by the signatures of its export."""

from collections.abc import Sequence

import keras

from hetero_tf.base.errors import InputError
from hetero_tf.base.exits import temporary_folder
from hetero_tf.export.kinds import task_of
from hetero_tf.process.learning_process import LearningProcess


def predict(process: LearningProcess, model: keras.Model, inputs: Sequence[str]) -> list[dict]:
    """Return a prediction for each input.

    Args:
        process: `process.LearningProcess`.
        model: Keras model of the level, see `process.network`.
        inputs: Depending on the model: paths of pictures, rows of a table in the form of `columns.parse_row`,
            sentences, beginnings of sentences, or sentences with `<mask>` words.

    Returns:
        {"input", "answers"} for each input. "answers" holds the most likely labels, or next words, as
        `[name, percent]`; for a sentence with `<mask>` words, a list of such pairs for each of them.

    Raises:
        InputError: An input cannot be read, or the data set has neither pictures, a table nor a vocabulary.
    """
    task = task_of(process, model)
    with temporary_folder() as scratch:
        endpoints, _ = task.endpoints(scratch)
        if task.PREDICT_SIGNATURE not in endpoints:
            raise InputError(f"predict needs a data set with {task.PREDICT_DATA}. Received: {process.dataset.source}")
        serve, _ = endpoints[task.PREDICT_SIGNATURE]
        return [{"input": item, "answers": task.predict(serve, item)} for item in inputs]
