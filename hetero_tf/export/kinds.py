"""Export tasks by the kind of data."""

import keras

from hetero_tf.export.images import ImageTask
from hetero_tf.export.masked_text import MaskedTextTask
from hetero_tf.export.next_word import NextWordTask
from hetero_tf.export.sequences import SequenceTask
from hetero_tf.export.table import TableTask
from hetero_tf.export.task import ExportTask
from hetero_tf.process.learning_process import LearningProcess

TASKS: dict[str, type[ExportTask]] = {
    "images": ImageTask,
    "sequences": SequenceTask,
    "table": TableTask,
    "text": MaskedTextTask,
}


def task_of(process: LearningProcess, model: keras.Model) -> ExportTask:
    """Return the export task of a model, by the kind of its data set, or by its input if a kind has several."""
    if process.recipe.input.name == "next_word":
        return NextWordTask(process, model)
    return TASKS[process.dataset.kind](process, model)
