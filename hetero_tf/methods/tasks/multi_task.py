"""One target for each output of a Keras model, whose losses, weights and metrics `compile` defines."""

import numpy as np

from hetero_tf.methods.tasks import Task, identity

TARGETS = "several_targets"
LOSS_TARGETS = "numbers"
# Those of `compile` take their place.
LOSS = "mean_squared_error"
TEST_LOSS = "mean_squared_error"
METRICS = ()
CUTS_LABELS = False


def task() -> Task:
    """Return the task; the outputs of a model are packed as one row, which `compiled` splits."""
    return Task(
        encode=lambda targets: targets.astype(np.float32),
        decode=identity,
        predict=lambda outputs, valid: {"outputs": outputs},
        output_name="outputs",
        prediction_name="outputs",
        index_name=None,
    )
