"""Input pipeline for labelled examples of several named arrays, such as a picture and a row of numbers."""

from typing import Literal

import tensorflow as tf

from hetero_tf.data.inputs import Input, table

DATA = "arrays"
FORM = "vector"
TARGETS = "label"


def build(dtype: tf.DType, *, normalise: Literal["standard", "none"] = "standard", statistics=table.UNCHANGED) -> Input:
    """Make batches of packed examples; a custom model receives them as a dictionary of its inputs.

    Args:
        normalise: standard: divide uint8 pixels by 255; subtract the mean of floats and divide by their standard
            deviation, both over all other axes of the training examples than the last; other whole numbers stay ids;
            or none.
        statistics: number to subtract from each value and its divisor, float `[values]`, from
            `Dataset.feature_statistics`.
    """
    return table.build(dtype, normalise=normalise, statistics=statistics)
