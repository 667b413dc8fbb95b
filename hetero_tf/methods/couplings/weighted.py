"""Weighted exits: deeper ones count more, and after some rounds all of them learn from the last."""

import tensorflow as tf

from hetero_tf.base.constraints import CountOrZero, NotNegative, Positive
from hetero_tf.methods.couplings.distillation import divergence, log_softmax, teacher

READS_LOGITS = True


def couple(
    losses: list[tf.Tensor],
    logits: list[tf.Tensor],
    targets: tf.Tensor,
    round: tf.Tensor,
    *,
    gamma: NotNegative = 0.0,
    temperature: Positive = 3.0,
    from_round: CountOrZero = 0,
    detached: bool = True,
) -> tf.Tensor:
    """`sum over exits j = 1..M of j / (M (M + 1) / 2) * L_j`, L_M = loss_M.

    For j < M, `L_j = loss_j + gamma * T^2 * KL(softmax(z_M / T) || softmax(z_j / T))` from `from_round` on, and loss_j
    before. The public code averages the divergence over the classes too (divide gamma by their number) and begins after
    a quarter of the rounds.

    Args:
        gamma: weight of the divergences; 0: none.
        temperature: T, what logits are divided by.
        from_round: first round, counted from 0, with divergences.
        detached: true: the last exit does not follow the others; false: it does, as in the public code.

    Reference: ScaleFL (Ilhan et al., CVPR 2023).
    """
    exits = len(losses)
    shares = [2 * (place + 1) / (exits * (exits + 1)) for place in range(exits)]
    total = tf.add_n([share * loss for share, loss in zip(shares, losses, strict=True)])
    if exits == 1 or not gamma:
        return total
    *logs, last = (log_softmax(one / temperature) for one in logits)
    taught = teacher(last) if detached else (tf.exp(last), last)
    learned = tf.add_n([share * divergence(taught, own) for share, own in zip(shares, logs)])
    return total + gamma * temperature**2 * tf.cast(round >= from_round, total.dtype) * learned
