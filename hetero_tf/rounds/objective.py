"""What the steps of clients make smaller."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import tensorflow as tf

if TYPE_CHECKING:
    from hetero_tf.rounds.parts import Algorithm


@dataclass(frozen=True)
class Objective:
    """What the steps of clients make smaller.

    Attributes:
        algorithm: Has the loss, and the coupling of several outputs.
        outside: How many classes have no place on the label axis.
        present: bool [K, label axis], which labels of its label axis each client has.
        round: Scalar int32.
    """

    algorithm: "Algorithm"
    outside: int
    present: tf.Tensor
    round: tf.Tensor

    def __call__(self, outputs: list[tf.Tensor], targets: tf.Tensor) -> tf.Tensor:
        """Returns each client's mean, [K], for a list of logits and targets [K, batch, ...]."""
        losses = [self._loss(logits, targets) for logits in outputs]
        losses = self.algorithm.couple(losses, outputs, targets, self.round)
        return tf.reduce_mean(losses, axis=list(range(1, losses.shape.rank)))

    def _loss(self, logits, targets):
        shape = [self.present.shape[0], *[1] * (logits.shape.rank - 2), self.present.shape[1]]
        return self.algorithm.loss(logits, targets, tf.reshape(self.present, shape), self.outside)
