"""The kinds of data that can be exported, a module each.

A module has `GIVEN`, the input of "serving_default"; `PORTABLE`, the signature that other runtimes get; `COMPARED`, how
many test examples are compared; and these functions: `endpoints(process, model, scratch)`, `most_at_once(model)`,
`limits(process, model)`, `request(process, x)`, `model_inputs(process, x)`, `measure(process, ask)`,
`input_spec(process)`, `notes(process, signatures)` and `calls(process, signatures)`.
"""

from types import ModuleType

from hetero_tf.data.dataset import Dataset
from hetero_tf.export import images, table, text

KINDS = {"images": images, "table": table, "text": text}


def kind_of(dataset: Dataset) -> ModuleType:
    """Returns the module of a data set's kind."""
    return KINDS[dataset.kind]
