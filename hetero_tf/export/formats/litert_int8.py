"""LiteRT with weights and products in 8-bit integers where it has them; a quarter of the bytes, and less exact."""

from pathlib import Path

import tensorflow as tf

from hetero_tf.base.errors import InputError
from hetero_tf.data.described import DescribedDataset
from hetero_tf.export.formats import Converted
from hetero_tf.export.formats.litert import answering, check_loops, converter, write

FILE, NEEDS, EXTRA, EXACT = "model_int8.tflite", ("ai_edge_litert",), "litert", False

__all__ = ["answering", "convert"]


def convert(model: Converted, path: Path) -> dict:
    """Writes the file of one signature; its inputs and outputs stay 32-bit floats.

    Returns:
        {"float_bytes": size of the same file in 32-bit floats}.

    Raises:
        InputError: The model takes rows of a table: one scale for all features would erase the small ones; or it is
            recurrent.
    """
    if model.process.dataset.kind == "table":
        raise InputError(
            "--format litert_int8: not for tables, since 256 steps over the range of the widest feature would erase "
            "the others; use litert"
        )
    if isinstance(model.process.dataset, DescribedDataset):
        raise InputError(
            "--format litert_int8: needs training examples, by which the range of every value is found; give the data "
            "by --data_dir"
        )
    check_loops(model.model)
    float_bytes = len(converter(model.saved_model, [model.signature]).convert())
    made = converter(model.saved_model, [model.signature])
    made.optimizations = [tf.lite.Optimize.DEFAULT]
    made.representative_dataset = lambda: ((model.signature, given) for given in model.examples())
    write(made.convert(), path, {model.signature: next(model.examples())})
    return {"float_bytes": float_bytes}
