"""Buffers: what the frozen units of a stage give for all examples of a client, read by the steps of the stage.

A buffer changes what is computed and no result: the frozen units run once for each example instead of in every epoch.

Reference: FeDepth (Zhang et al. 2023, arXiv 2303.04887), which allows it where memory permits.
"""

from dataclasses import dataclass

import numpy as np
import tensorflow as tf

from hetero_tf.base.errors import BadInput
from hetero_tf.models.variables import is_seed
from hetero_tf.rounds.cut import inverse

REFUSED = "client.stages.buffered must be false here, where a buffer would change the result: "


@dataclass(frozen=True)
class Epochs:
    """The passes of clients over their examples in one stage.

    Attributes:
        count: How many.
        batches: Of the client with the most examples, in one pass.
        batch: Most examples of a batch.
    """

    count: int
    batches: int
    batch: int


def filled(forward, shape, dtype, rows, first, end, epochs, examples):
    """Fills the buffer of a stage from the batches of its first epoch.

    Args:
        forward: `rows int32 [1, batch] -> [1, batch, *shape]`: reads examples and runs the frozen units of one client.
        shape: Of what these hand on for one example.
        dtype: Float type of what is kept.
        rows: int32 [ticks, batch], the client's examples, -1 = padding.
        first, end: Scalar int32, the first tick of the stage and the one behind its last.
        epochs: `Epochs`.
        examples: Scalar int32, how many are stored.

    Returns:
        A function that gives the same as `forward`.
    """
    ticks, count = tf.range(epochs.batches), (end - first) // epochs.count
    own = tf.gather(rows[:, : epochs.batch], tf.minimum(first + ticks, tf.shape(rows)[0] - 1))
    own = tf.ensure_shape(tf.where((ticks < count)[:, None], own, -1), [epochs.batches, epochs.batch])

    def run(tick, kept):
        # Padding repeats the first example: the frozen units look at each one alone.
        return tick + 1, kept.write(tick, forward(tf.maximum(own[tick], 0)[None])[0])

    kept = tf.TensorArray(dtype, epochs.batches, element_shape=[epochs.batch, *shape])
    _, kept = tf.while_loop(lambda tick, _: tick < count, run, (0, kept), parallel_iterations=1)
    kept = tf.reshape(kept.stack(), [-1, *shape])
    places = inverse(tf.reshape(own, [-1]), examples)
    return lambda rows: tf.gather(kept, tf.gather(places, rows))


def check(source, stored, stack):
    """Refuses buffers that would change the result.

    Args:
        source: `inputs.Input`.
        stored: The training examples.
        stack: `stacks.Stack` of one client.

    Raises:
        BadInput: Batches are random or parts of examples, or frozen units do not look at each example alone.
    """
    for net in (stage.before for stage in stack.stages if stage.before is not None):
        if source.random or source.starts(stored) != (0,):
            raise BadInput(REFUSED + "a client never reads the same input twice; leave out augmentation and masks")
        if any(is_seed(variable) for variable in net.model.variables):
            raise BadInput(REFUSED + "units that stand still have dropout; leave it out")
        if not _sees_each_alone(net):
            raise BadInput(
                REFUSED + "units that stand still look at the rest of the batch, as batch norms do; use "
                "other norms, such as gn, ln or none"
            )


def _sees_each_alone(net):
    """Whether the net gives for an example the same beside others, on random values."""
    rng, model = np.random.default_rng(0), net.model
    learned, moving = (
        [rng.normal(0, 0.1, variable.shape) for variable in group]
        for group in (model.trainable_variables, model.non_trainable_variables)
    )
    inputs = tf.constant(rng.normal(size=(3, *model.inputs[0].shape[1:])), model.inputs[0].dtype)

    def run(inputs):
        outputs, _ = model.stateless_call(learned, moving, inputs, training=True)
        return tf.cast(outputs, tf.float64).numpy()

    both, alone = run(inputs[:2]), run(inputs[1:])
    return np.allclose(both[1], alone[0], rtol=1e-2, atol=1e-3 * np.abs(both).max())
