"""Rolling: a window that moves by one coordinate each round, so that all are trained equally often."""

import tensorflow as tf


def keep(size: int, kept: int, round: tf.Tensor, client: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
    """Coordinate i is `(i - round) mod size`; the same for all clients of a round.

    The window moves towards smaller coordinates and wraps, and a level that keeps everything gets the axis rotated,
    both as in the public code. The order is no matter: equal axes wrap equally.

    Reference: FedRolex (arXiv 2212.01548), section 3.2.
    """
    return (tf.range(kept) - round) % size
