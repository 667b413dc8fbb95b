"""Rolling: a window that moves by one coordinate per round, so all coordinates are trained equally often."""

import tensorflow as tf


def keep(size: int, count: int, round: tf.Tensor, client: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
    """Return the coordinates `(i - round) mod size` for i < `count`, the same for all clients of a round.

    The window moves towards smaller coordinates and wraps; a level of full width gets the rotated axis. Both follow
    the public code. The order is irrelevant, because equal axes are rotated equally.

    Reference: FedRolex (arXiv 2212.01548), section 3.2.
    """
    return (tf.range(count) - round) % size
