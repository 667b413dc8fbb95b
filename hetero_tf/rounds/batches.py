"""What the clients of a stack read in each tick of their training, inside the graph of a round."""

import functools
from collections.abc import Callable
from dataclasses import dataclass

import tensorflow as tf

from hetero_tf.inputs import Labels
from hetero_tf.inputs.examples import Examples
from hetero_tf.rounds.buffers import fill_buffer


@dataclass(frozen=True)
class Batches:
    """What the clients of a stack read in each tick.

    Attributes:
        read: `(tick, key, shape) -> (inputs, targets)`; key: int32 [K, words]; shape: one of `shapes`.
        buffered: `(stage, forward, shape, dtype) -> read` for the ticks of one stage, whose inputs are what `forward`
            makes of them, see `buffers.fill_buffer`; for one client.
        active: `tick -> bool [K]`, False for clients that idle; None: nobody ever idles.
        shapes: Every (examples, positions) that a batch can have, for XLA, which needs them while it compiles;
            (None,): the shape is known when it is read.
        shape_at: `tick -> position in shapes`.
        stage: `tick -> position in the stages of the stack`.
        end: `stage -> tick` behind its last one, where the stages follow one another.
        ticks: Scalar int32, how many are trained; 0 leaves the weights as they are.
        most: Scalar int32 >= ticks, the length of what is recorded.
    """

    read: Callable
    buffered: Callable
    active: Callable | None
    shapes: tuple
    shape_at: Callable
    stage: Callable
    end: Callable
    ticks: tf.Tensor
    most: tf.Tensor


def build_batches(examples: Examples, clients: tf.Tensor, steps: tuple[tf.Tensor, ...], label_axis: Labels) -> Batches:
    """Builds the `Batches` of a stack.

    Args:
        clients: int32 [K], their rows in tables.
        steps: ticks, rows, starts and stages of a `stack_update.BlockPlan`.
        label_axis: Of the clients.
    """
    ticks, rows, starts, stages = steps
    shape_at = functools.partial(_shape_at, examples, rows, starts)

    def load(chosen, start, key, length):
        return examples.input.batch(
            examples.x, examples.y, chosen, start, key, label_axis, training=True, length=length
        )

    def rows_at(tick, shape):
        """int32 [K, batch] without padding; a client that idles reads the first row."""
        count = tf.reduce_max(_counts(rows, tick)) if shape is None else shape[0]
        chosen = tf.maximum(rows[:, tick, :count], 0)
        return chosen if shape is None else tf.ensure_shape(chosen, [rows.shape[0], count])

    def read(tick, key, shape):
        return load(rows_at(tick, shape), starts[tick], key, None if shape is None else shape[1])

    def buffered(stage, forward, shape, dtype):
        # Nothing is drawn where a buffer is allowed, so any key will do.
        from_buffer = fill_buffer(
            lambda chosen: forward(load(chosen, 0, tf.zeros([1, 1], tf.int32), 1)[0]),
            shape,
            dtype,
            rows[0],
            end(stage - 1),
            end(stage),
            examples.sizes[clients[0]],
            examples.longest,
            tf.shape(examples.x)[0],
        )
        return lambda tick, key, shape: (from_buffer(rows_at(tick, shape)), read(tick, key, shape)[1])

    def end(stage):
        return tf.math.count_nonzero(stages[:ticks] <= stage, dtype=tf.int32)

    active = (lambda tick: _counts(rows, tick) > 0) if clients.shape[0] > 1 else None
    return Batches(
        read,
        buffered,
        active,
        examples.batch_shapes,
        shape_at,
        lambda tick: stages[tick],
        end,
        ticks,
        tf.shape(rows)[1],
    )


def _counts(rows, tick):
    """int32 [K], how many examples each client reads in a tick; 0 where it idles."""
    return tf.math.count_nonzero(rows[:, tick] >= 0, axis=1, dtype=tf.int32)


def _shape_at(examples, rows, starts, tick):
    """The position among the known shapes of the batch of a tick."""
    shapes = examples.batch_shapes
    if len(shapes) == 1:
        return 0
    shape = tf.stack([tf.reduce_max(_counts(rows, tick)), examples.input.length(examples.x, starts[tick])])
    return tf.argmax(tf.reduce_all(shape == tf.constant(shapes), axis=1), output_type=tf.int32)
