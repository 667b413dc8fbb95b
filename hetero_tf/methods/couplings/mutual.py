"""Mutual distillation: every output learns from the labels and from the predictions of all others."""

import tensorflow as tf

from hetero_tf.base.constraints import Count, NotNegative
from hetero_tf.methods.couplings import divergence, log_softmax, teacher

READS_LOGITS = True


def couple(
    losses: list[tf.Tensor],
    logits: list[tf.Tensor],
    targets: tf.Tensor,
    round: tf.Tensor,
    *,
    weight: NotNegative = 1.0,
    ramp: Count | None = 300,
    floor: NotNegative = 0.0,
) -> tf.Tensor:
    """`sum over outputs i of loss_i + w / (M - 1) * sum over j != i of KL(softmax z_j || softmax z_i)`.

    z_j gets no gradient. w is `weight * exp(-5 * (1 - min(round, ramp) / ramp)^2)`. DepthFL has a ramp of 300
    and, in the public code, a floor of 1e-7; mutual knowledge distillation between peers (FeDepth) has no ramp.

    Args:
        weight: weight of the divergences after the ramp.
        ramp: number of rounds in which the weight grows from e^-5 of its value to its full value; null: full value
            from the first round.
        floor: added to every probability of a teacher.

    References: DepthFL (Kim et al., ICLR 2023); for peers, FeDepth (Zhang et al. 2023).
    """
    total = tf.add_n(losses)
    if len(losses) == 1:
        return total
    logs = [log_softmax(one) for one in logits]
    teachers = [teacher(one, floor) for one in logs]
    pairs = [
        divergence(teachers[teacher_index], student)
        for index, student in enumerate(logs)
        for teacher_index in range(len(logs))
        if teacher_index != index
    ]
    return total + ramped(round, weight, ramp, total.dtype) / (len(logs) - 1) * tf.add_n(pairs)


def ramped(round: tf.Tensor, weight: float, ramp: int | None, dtype: tf.DType) -> tf.Tensor:
    """Return the weight of the divergences in a round, a scalar; arguments as in `couple`."""
    if ramp is None:
        return tf.constant(weight, dtype)
    remaining = 1 - tf.cast(tf.minimum(round, ramp), dtype) / ramp
    return weight * tf.exp(-5 * tf.square(remaining))
