"""What the clients of a stack read in each tick of their training, inside the graph of a round."""

from collections.abc import Callable
from dataclasses import dataclass

import tensorflow as tf

from hetero_tf.rounds import buffers


@dataclass(frozen=True)
class Batches:
    """What the clients of a stack read in each tick.

    Attributes:
        read: `(tick, key, kind) -> (inputs, targets)`; key: int32 [K, words]; kind: one of `kinds`.
        buffered: `(stage, forward, shape, dtype) -> read` for the ticks of one stage, whose inputs are what `forward`
            makes of them, see `buffers.filled`; for one client.
        active: `tick -> bool [K]`, False for clients that idle; None: nobody ever idles.
        kinds: Every shape that a batch can have, for XLA, which needs them while it compiles; (None,): the shape is
            known when it is read.
        choose: `tick -> position in kinds`.
        stage: `tick -> position in the stages of the stack`.
        end: `stage -> tick` behind its last one, where the stages follow one another.
        ticks: Scalar int32, how many are trained; 0 leaves the weights as they are.
        most: Scalar int32 >= ticks, the length of what is recorded.
    """

    read: Callable
    buffered: Callable
    active: Callable | None
    kinds: tuple
    choose: Callable
    stage: Callable
    end: Callable
    ticks: tf.Tensor
    most: tf.Tensor


def build_batches(parts, clients, steps, axis):
    """The `Batches` of a stack.

    Args:
        parts: `stack_round.RoundParts`.
        clients: K.
        steps: ticks, rows, starts and stages of a `stack_update.StackPlan`.
        axis: `inputs.Labels` of the clients.
    """
    ticks, rows, starts, stages = steps

    def counts(tick):
        return tf.math.count_nonzero(rows[:, tick] >= 0, axis=1, dtype=tf.int32)

    def load(chosen, start, key, length):
        return parts.input.batch(parts.x, parts.y, chosen, start, key, axis, training=True, length=length)

    def examples(tick, kind):
        count = tf.reduce_max(counts(tick)) if kind is None else kind[0]
        return tf.maximum(rows[:, tick, :count], 0)

    def read(tick, key, kind):
        return load(examples(tick, kind), starts[tick], key, None if kind is None else kind[1])

    def buffered(stage, forward, shape, dtype):
        # Nothing is drawn where a buffer is allowed, so any key will do.
        once = buffers.filled(
            lambda chosen: forward(load(chosen, 0, tf.zeros([1, 1], tf.int32), 1)[0]),
            shape,
            dtype,
            rows[0],
            end(stage - 1),
            end(stage),
            parts.epochs,
            tf.shape(parts.x)[0],
        )
        return lambda tick, key, kind: (once(examples(tick, kind)), read(tick, key, kind)[1])

    def end(stage):
        return tf.math.count_nonzero(stages[:ticks] <= stage, dtype=tf.int32)

    def choose(tick):
        if len(parts.kinds) == 1:
            return 0
        found = tf.stack([tf.reduce_max(counts(tick)), parts.input.length(parts.x, starts[tick])])
        return tf.argmax(tf.reduce_all(found == tf.constant(parts.kinds), axis=1), output_type=tf.int32)

    active = (lambda tick: counts(tick) > 0) if clients > 1 else None
    return Batches(
        read, buffered, active, parts.kinds, choose, lambda tick: stages[tick], end, ticks, tf.shape(rows)[1]
    )
