"""The loss that local steps minimise."""

from collections.abc import Callable
from dataclasses import dataclass

import tensorflow as tf


@dataclass(frozen=True)
class Objective:
    """The loss that local steps minimise.

    Attributes:
        loss: Loss of one output, see `methods.losses`.
        couple: Combines the losses of several outputs into one, see `methods.couplings`.
        outside: Number of classes that are not on the label axis.
        present: bool [K, label axis], which labels of its label axis each client has.
        round: Scalar int32.
    """

    loss: Callable
    couple: Callable
    outside: int
    present: tf.Tensor
    round: tf.Tensor

    def __call__(self, outputs: list[tf.Tensor], targets: tf.Tensor) -> tf.Tensor:
        """Return the mean loss of each client, [K], for a list of logits and targets [K, batch, ...]."""
        losses = [self._loss(logits, targets) for logits in outputs]
        losses = self.couple(losses, outputs, targets, self.round)
        return tf.reduce_mean(losses, axis=list(range(1, losses.shape.rank)))

    def _loss(self, logits, targets):
        shape = [self.present.shape[0], *[1] * (logits.shape.rank - 2), self.present.shape[1]]
        return self.loss(logits, targets, tf.reshape(self.present, shape), self.outside)
