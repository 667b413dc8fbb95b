"""Conditions of buffers, which store the outputs of a stage's frozen units, see `batches.Batches.through_buffer`.

A buffer saves work and must not change a result.
"""

import numpy as np
import tensorflow as tf

from hetero_tf.base.errors import InputError
from hetero_tf.data.inputs import Input
from hetero_tf.models.variables import is_seed
from hetero_tf.rounds.client_block import ClientBlock
from hetero_tf.rounds.row_model import RowModel


def is_per_example(routed: RowModel) -> bool:
    """Return whether the output for an example is independent of the batch, tested on random values."""
    rng, model = np.random.default_rng(0), routed.model
    trainable, state = (
        [rng.normal(0, 0.1, variable.shape) for variable in group]
        for group in (model.trainable_variables, model.non_trainable_variables)
    )
    inputs = tf.constant(rng.normal(size=(3, *model.inputs[0].shape[1:])), model.inputs[0].dtype)

    def run(inputs):
        outputs, _ = model.stateless_call(trainable, state, inputs, training=True)
        return tf.cast(outputs, tf.float64).numpy()

    both, single = run(inputs[:2]), run(inputs[1:])
    return np.allclose(both[1], single[0], rtol=1e-2, atol=1e-3 * np.abs(both).max())


REFUSAL_PREFIX = "client.stages.buffered must be false here, where a buffer would change the result: "


def check_buffers(source: Input, stored: np.ndarray, block: ClientBlock) -> None:
    """Refuse buffers that would change the result.

    Args:
        source: Makes batches of examples.
        stored: The training examples.
        block: Block of one client.

    Raises:
        InputError: Batches are random or parts of examples, or frozen units mix the examples of a batch.
    """
    for before in (stage.before.models[0] for stage in block.stages if stage.before is not None):
        if source.random or source.starts(stored) != (0,):
            raise InputError(
                REFUSAL_PREFIX + "the input is random or a part of an example; remove augmentation and masks"
            )
        if any(is_seed(variable) for variable in before.model.variables):
            raise InputError(REFUSAL_PREFIX + "frozen units have dropout; remove it")
        if not is_per_example(before):
            raise InputError(
                REFUSAL_PREFIX + "frozen units read the whole batch, as batch norms do; use other norms, "
                "such as gn, ln or none"
            )
