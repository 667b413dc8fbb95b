"""Buffers: outputs of the frozen units of a stage for all examples of a client, read by the steps of the stage.

A buffer saves work and changes no result: the frozen units run once for each example instead of in every epoch.

Reference: FeDepth (Zhang et al. 2023, arXiv 2303.04887), which allows it if memory permits.
"""

from collections.abc import Callable

import numpy as np
import tensorflow as tf

from hetero_tf.base.errors import InputError
from hetero_tf.inputs import Input
from hetero_tf.inputs.examples import Pass
from hetero_tf.models.variables import is_seed
from hetero_tf.rounds.client_block import ClientBlock
from hetero_tf.rounds.gather import positions_in
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


def fill_buffer(
    forward: Callable,
    shape: tuple[int, ...],
    dtype: tf.DType,
    rows: tf.Tensor,
    first: tf.Tensor,
    end: tf.Tensor,
    num_examples: tf.Tensor,
    longest: Pass,
    examples: tf.Tensor,
) -> Callable:
    """Fill the buffer of a stage from the batches of its first epoch.

    Args:
        forward: `rows int32 [1, batch] -> [1, batch, *shape]`: reads examples and runs the frozen units of one client.
        shape: Of the frozen units' output for one example.
        dtype: Float type of the buffer.
        rows: int32 [ticks, batch], the client's examples, -1 = padding.
        first, end: Scalar int32, the half-open range of the stage's ticks.
        num_examples: Scalar int32, number of the client's examples.
        longest: The `Pass` of the client with the most examples.
        examples: Scalar int32, number of stored examples.

    Returns:
        A function with the results of `forward`, which reads the buffer.
    """
    # The batches of the first epoch, [batches, batch]: rows of `x`, then -1.
    ticks, count = tf.range(longest.batches), tf.minimum(-(-num_examples // longest.batch), end - first)
    batches = tf.gather(rows[:, : longest.batch], tf.minimum(first + ticks, tf.shape(rows)[0] - 1))
    batches = tf.ensure_shape(tf.where((ticks < count)[:, None], batches, -1), [longest.batches, longest.batch])

    def run(tick, buffer):
        # Padding repeats the first example, since the frozen units process each example independently.
        return tick + 1, buffer.write(tick, forward(tf.maximum(batches[tick], 0)[None])[0])

    buffer = tf.TensorArray(dtype, longest.batches, element_shape=[longest.batch, *shape])
    _, buffer = tf.while_loop(lambda tick, _: tick < count, run, (0, buffer), parallel_iterations=1)
    # [batches * batch, *shape], and the index of every stored example in it.
    buffer = tf.reshape(buffer.stack(), [-1, *shape])
    positions = positions_in(tf.reshape(batches, [-1]), examples)
    return lambda rows: tf.gather(buffer, tf.gather(positions, rows))


def check_buffers(source: Input, stored: np.ndarray, block: ClientBlock) -> None:
    """Refuse buffers that would change the result.

    Args:
        source: Makes batches of examples.
        stored: The training examples.
        block: Of one client.

    Raises:
        InputError: Batches are random or parts of examples, or frozen units mix the examples of a batch.
    """
    for before in (stage.before for stage in block.stages if stage.before is not None):
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
