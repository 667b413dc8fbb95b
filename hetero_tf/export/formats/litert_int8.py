"""LiteRT with weights and matrix products in 8-bit integers: a quarter of the size, and less exact."""

from pathlib import Path

import tensorflow as tf

from hetero_tf.base.errors import InputError
from hetero_tf.data.described import DescribedDataset
from hetero_tf.export.formats import ConversionSource
from hetero_tf.export.formats.litert import check_loops, converter, load_runtime, write

FILE, NEEDS, EXTRA, EXACT = "model_int8.tflite", ("ai_edge_litert",), "litert", False

__all__ = ["convert", "load_runtime"]


def convert(source: ConversionSource, path: Path) -> dict:
    """Write the file of one signature; its inputs and outputs stay 32-bit floats.

    Returns:
        {"float_bytes": size of the same file in 32-bit floats}.
    """
    if not source.task.codec.HAS_ONE_SCALE:
        raise InputError(
            "--format litert_int8: not available for tables, series, audio and arrays, because one 8-bit scale for all "
            "features would erase the small ones; use litert"
        )
    if isinstance(source.task.process.dataset, DescribedDataset):
        raise InputError(
            "--format litert_int8: needs training examples to calibrate the ranges of values; set --data_dir"
        )
    check_loops(source.task.model)
    signature = source.task.portable_signature
    float_bytes = len(converter(source.saved_model, [signature]).convert())
    int8_converter = converter(source.saved_model, [signature])
    int8_converter.optimizations = [tf.lite.Optimize.DEFAULT]
    int8_converter.representative_dataset = lambda: ((signature, inputs) for inputs in source.examples())
    write(int8_converter.convert(), path, {signature: next(source.examples())})
    return {"float_bytes": float_bytes}
