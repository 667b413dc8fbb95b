"""Input pipeline for labelled series, such as windows of measurements over time."""

from typing import Literal

import tensorflow as tf

from hetero_tf.data.inputs import Input, table

DATA = "series"
FORM = "tokens"
TARGETS = "label"
ON_DEVICE = True


def build(dtype: tf.DType, *, normalise: Literal["standard", "none"] = "standard", statistics=table.UNCHANGED) -> Input:
    """Make batches of series.

    Args:
        normalise: standard: subtract the mean of each channel and divide by its standard deviation, both over all
            positions of the training series; or none.
        statistics: mean and standard deviation of each channel, float `[channels]`, from
            `Dataset.feature_statistics`.
    """
    # The statistics of channels broadcast over the positions.
    return table.build(dtype, normalise=normalise, statistics=statistics)
