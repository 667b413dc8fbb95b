"""Weighted exits: deeper exits have larger weights, and from a given round on all exits learn from the last one."""

import tensorflow as tf

from hetero_tf.base.constraints import CountOrZero, NotNegative, Positive
from hetero_tf.methods.couplings import divergence, log_softmax, teacher

READS_LOGITS = True
UNUSED = {
    "gamma is 0": {"gamma": 0, "temperature": True},
    "gamma 0 adds no divergences": {"gamma": 0, "from_round": True},
}


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

    For j < M, `L_j = loss_j + gamma * T^2 * KL(softmax(z_M / T) || softmax(z_j / T))` from `from_round` on; before,
    L_j is loss_j. The public code also averages the divergence over the classes (divide gamma by their number), and
    starts it after a quarter of the rounds.

    Args:
        gamma: weight of the divergences; 0: none.
        temperature: T, by which logits are divided.
        from_round: first round with divergences, counted from 0.
        detached: true: the divergences give the last exit no gradient; false: they do, as in the public code.

    Reference: ScaleFL (Ilhan et al., CVPR 2023).
    """
    exits = len(losses)
    shares = [2 * (index + 1) / (exits * (exits + 1)) for index in range(exits)]
    total = tf.add_n([share * loss for share, loss in zip(shares, losses, strict=True)])
    if exits == 1 or not gamma:
        return total
    *logs, last = (log_softmax(one / temperature) for one in logits)
    taught = teacher(last) if detached else (tf.exp(last), last)
    learned = tf.add_n([share * divergence(taught, student) for share, student in zip(shares, logs)])
    return total + gamma * temperature**2 * tf.cast(round >= from_round, total.dtype) * learned
