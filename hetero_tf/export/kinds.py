"""Export tasks by the kind of data."""

import keras

from hetero_tf.base import registry
from hetero_tf.export.arrays import ArraysTask
from hetero_tf.export.audio import AudioTask
from hetero_tf.export.images import ImageTask
from hetero_tf.export.masked_text import MaskedTextTask
from hetero_tf.export.next_word import NextWordTask
from hetero_tf.export.sequences import SequenceTask
from hetero_tf.export.series import SeriesTask
from hetero_tf.export.table import TableTask
from hetero_tf.export.task import ExportTask
from hetero_tf.run.learning_process import LearningProcess

TASKS: dict[str, type[ExportTask]] = {
    "arrays": ArraysTask,
    "audio": AudioTask,
    "images": ImageTask,
    "next_word": NextWordTask,
    "sequences": SequenceTask,
    "series": SeriesTask,
    "table": TableTask,
    "text": MaskedTextTask,
}


def task_of(process: LearningProcess, model: keras.Model) -> ExportTask:
    """Return the export task of a model: from its input, see `inputs`, or by its kind of data."""
    source = registry.find("inputs", process.recipe.input.name)
    if hasattr(source, "export_task"):
        return source.export_task(process, model)
    return TASKS[getattr(source, "TASK", process.dataset.kind)](process, model)
