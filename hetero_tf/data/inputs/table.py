"""Input pipeline for labelled table rows."""

from typing import Literal

import numpy as np
import tensorflow as tf

from hetero_tf.data.inputs import Input

DATA = "table"
FORM = "vector"
TARGETS = "label"
ON_DEVICE = True

# Mean and standard deviation without normalisation.
UNCHANGED = (np.zeros(1), np.ones(1))


def build(dtype: tf.DType, *, normalise: Literal["standard", "none"] = "standard", statistics=UNCHANGED) -> Input:
    """Make batches of table rows.

    Args:
        normalise: standard: subtract the mean of each feature and divide by its standard deviation, both over all
            training rows; or none.
        statistics: mean and standard deviation of each feature, float `[features]`, from
            `Dataset.feature_statistics`.
    """
    mean, std = UNCHANGED if normalise == "none" else statistics

    def batch(x, y, rows, start, key, labels, training, length=None):
        # Subtract the mean first: after a division, a large mean would cost precision.
        features = (tf.cast(tf.gather(x, rows), dtype) - tf.constant(mean, dtype)) / tf.constant(std, dtype)
        return features, labels.local(tf.gather(y, rows))

    return Input(
        batch,
        normalised_by={} if normalise == "none" else {"mean": np.ravel(mean).tolist(), "std": np.ravel(std).tolist()},
    )
