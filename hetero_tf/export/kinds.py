"""The kinds of data that can be exported, a module each.

A module has `GIVEN`, the input of "serving_default"; `PORTABLE`, the signature that other runtimes get; `COMPARED`, how
many test examples are compared in one request; and these functions:
`endpoints(process, model, scratch)`, `most_at_once(model)`,
`limits(process, model)`, `request(process, x)`, `model_inputs(process, x)`, `measure(process, ask)`,
`input_spec(process)`, `notes(process, signatures)` and `calls(process, signatures)`.
"""

from types import ModuleType

from hetero_tf.export import images, next_word, sequences, table, text
from hetero_tf.process.learning_process import LearningProcess

KINDS = {"images": images, "sequences": sequences, "table": table, "text": text}


def kind_of(process: LearningProcess) -> ModuleType:
    """Returns the module of what a model is for: of its kind of data, or of its input where one kind has several."""
    return next_word if process.recipe.input.name == "next_word" else KINDS[process.dataset.kind]
