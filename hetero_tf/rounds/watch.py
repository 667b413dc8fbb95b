"""Tells the host, while a compiled round runs, how many steps its clients have done."""

from collections.abc import Callable

import numpy as np
import tensorflow as tf

# So often at most does the training of one stack of clients call the host.
MOST_CALLS = 64


def build_note(watch: Callable[[int, int], None] | None, ticks: tf.Tensor, rows: tf.Tensor) -> Callable | None:
    """Builds what the steps of one stack of clients call after each tick.

    Args:
        watch: `(steps of these clients since its last call, clients that are done now)`, called on threads of
            TensorFlow.
        ticks: Scalar int32, how many ticks the stack trains.
        rows: int32 [K, ticks, batch], the examples of its clients; -1 = padding.

    Returns:
        `tick -> 0`, an int32 that must be added to what the next tick reads, since only that makes it run; None where
        nobody watches.
    """
    if watch is None:
        return None
    every = ticks // MOST_CALLS + 1
    active = tf.reduce_any(rows >= 0, axis=2)

    def call(steps, clients):
        watch(int(steps), int(clients))
        return np.int32(0)

    def note(tick):
        done = tick + 1
        last, since = done >= ticks, tf.where(done % every == 0, every, done % every)

        def tell():
            steps = tf.math.count_nonzero(active[:, done - since : done], dtype=tf.int32)
            finished = tf.where(last, tf.math.count_nonzero(tf.reduce_any(active, 1), dtype=tf.int32), 0)
            # Stateless for TensorFlow: what it takes for stateful makes all clients wait for each other.
            return tf.numpy_function(call, [steps, finished], tf.int32, stateful=False)

        return tf.ensure_shape(tf.cond(last | (done % every == 0), tell, lambda: tf.constant(0)), [])

    return note
