"""Batches that the clients of a block read in each tick of their training, inside the graph of a round."""

import functools
from collections.abc import Callable
from dataclasses import dataclass

import tensorflow as tf

from hetero_tf.inputs import Labels
from hetero_tf.inputs.examples import Examples
from hetero_tf.rounds.buffers import fill_buffer


@dataclass(frozen=True)
class Batches:
    """Functions that read the batches of a block's clients.

    Attributes:
        read: `(tick, key, shape) -> (inputs, targets)`; key: int32 [K, words]; shape: one of `shapes`.
        buffered: `(stage, forward, shape, dtype) -> read` for the ticks of one stage, with the outputs of `forward` as
            inputs, see `buffers.fill_buffer`; for one client.
        active: `tick -> bool [K]`, False for idle clients; None: no client ever idles.
        shapes: Every (examples, positions) of a batch, for XLA, which compiles each of them; None as the only entry:
            the shapes are dynamic.
        shape_at: `tick -> position in shapes`.
        stage: `tick -> position in the stages of the block`.
        end: `stage -> tick` after its last one, if the stages follow one another.
        ticks: Scalar int32, number of trained ticks; 0 leaves the weights unchanged.
        max_ticks: Scalar int32 >= ticks, the length of the records.
    """

    read: Callable
    buffered: Callable
    active: Callable | None
    shapes: tuple
    shape_at: Callable
    stage: Callable
    end: Callable
    ticks: tf.Tensor
    max_ticks: tf.Tensor


def build_batches(examples: Examples, clients: tf.Tensor, steps: tuple[tf.Tensor, ...], label_axis: Labels) -> Batches:
    """Build the `Batches` of a block.

    Args:
        clients: int32 [K], their rows in tables.
        steps: ticks, rows, starts and stages of a `block_training.BlockPlan`.
        label_axis: Of the clients.
    """
    ticks, rows, starts, stages = steps
    shape_at = functools.partial(_shape_at, examples, rows, starts)

    def load(rows_of_batch, start, key, length):
        return examples.input.batch(
            examples.x, examples.y, rows_of_batch, start, key, label_axis, training=True, length=length
        )

    def rows_at(tick, shape):
        """Return int32 [K, batch] without padding; an idle client reads the first row."""
        count = tf.reduce_max(_counts(rows, tick)) if shape is None else shape[0]
        rows_of_batch = tf.maximum(rows[:, tick, :count], 0)
        return rows_of_batch if shape is None else tf.ensure_shape(rows_of_batch, [rows.shape[0], count])

    def read(tick, key, shape):
        return load(rows_at(tick, shape), starts[tick], key, None if shape is None else shape[1])

    def buffered(stage, forward, shape, dtype):
        # Buffered inputs are deterministic, so the key is unused.
        from_buffer = fill_buffer(
            lambda rows_of_batch: forward(load(rows_of_batch, 0, tf.zeros([1, 1], tf.int32), 1)[0]),
            shape,
            dtype,
            rows[0],
            end(stage - 1),
            end(stage),
            examples.sizes[clients[0]],
            examples.longest,
            tf.shape(examples.x)[0],
        )
        # Targets are read as usual: only the inputs are buffered.
        return lambda tick, key, shape: (from_buffer(rows_at(tick, shape)), read(tick, key, shape)[1])

    def end(stage):
        return tf.math.count_nonzero(stages[:ticks] <= stage, dtype=tf.int32)

    # A single client is active in each of its ticks.
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
    """Return int32 [K], the number of examples that each client reads in a tick; 0 if it is idle."""
    return tf.math.count_nonzero(rows[:, tick] >= 0, axis=1, dtype=tf.int32)


def _shape_at(examples, rows, starts, tick):
    """Return the position of a tick's batch shape in `batch_shapes`."""
    shapes = examples.batch_shapes
    if len(shapes) == 1:
        return 0
    # The largest client of the block determines the number of examples.
    shape = tf.stack([tf.reduce_max(_counts(rows, tick)), examples.input.length(examples.x, starts[tick])])
    return tf.argmax(tf.reduce_all(shape == tf.constant(shapes), axis=1), output_type=tf.int32)
