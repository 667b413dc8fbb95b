"""Rolling: a window that moves by one coordinate each round, so that all are trained equally often."""

import tensorflow as tf


def keep(size, kept, round, client, seed):
    """`kept` coordinates from `round` on, wrapping at `size`; the same for all clients of a round.

    Reference: FedRolex (arXiv 2212.01548), section 3.2. Ascending order is irrelevant: equal axes wrap equally.
    """
    return (round + tf.range(kept)) % size
