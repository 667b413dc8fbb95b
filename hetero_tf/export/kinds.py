"""Export tasks: one module for each kind of data.

A module has `INPUT_NAME`, the input of "serving_default"; `PORTABLE_SIGNATURE`, the signature that other formats
convert; `CHECKED_EXAMPLES`, the number of test examples that are compared in one request; and these functions:
`endpoints(process, model, scratch)`, `max_batch_size(model)`,
`limits(process, model)`, `request(process, x)`, `model_inputs(process, x)`, `measure(process, ask)`,
`input_spec(process)`, `notes(process, signatures)` and `calls(process, signatures)`.
"""

from types import ModuleType

from hetero_tf.export import images, next_word, sequences, table, text
from hetero_tf.process.learning_process import LearningProcess

TASKS = {"images": images, "sequences": sequences, "table": table, "text": text}


def task_of(process: LearningProcess) -> ModuleType:
    """Return the module of a model's task, by the kind of its data set, or by its input if a kind has several."""
    return next_word if process.recipe.input.name == "next_word" else TASKS[process.dataset.kind]
