"""Personalizations: the local steps of clients that have a model of their own.

`personalize(local, *, options) -> LocalUpdate` defines one local step of K clients. It evaluates gradients of the loss
on the batch of the step wherever it needs them. The values that the client returns then take a step of the optimizer;
correction, clipping and frozen units apply as without a personalization.

A module with `TWIN = True` keeps a second model of each client, its twin, between rounds. It starts from the initial
global values, has the entries of the client's sub-model, and is never sent. The client is tested with its own model,
`alpha * twin + (1 - alpha) * global values`; alpha is the client's too. It starts as the option `alpha`, else as 1. A
client that never trained is tested with the global model. Modules with `TWIN = False` need `round.personal`.

With `PREVIOUS = True` beside it, the twin is the values that the client returned last, or the initial global ones. No
step moves it, and clients are tested with the global model.

`PASSES` is the number of gradients that a step evaluates: a number, or the name of an option. `local` has some of the
clients of a round, and padding: each row of the result must depend on the same row of `local` alone.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import tensorflow as tf

CONFLICTS = {
    "a client has one personal model": {"levels.members": True},
    "stages train the client's model part by part": {"client.stages": "blockwise"},
    "they train, merge or replace parts of the values": {"round.adapters": True},
}


class Gradient(NamedTuple):
    """The gradient of the loss on the batch of a step.

    Attributes:
        loss: [K].
        values: [K, P].
        statistics: The running statistics after the step, a tuple with one tensor; empty if they do not change.
    """

    loss: tf.Tensor
    values: tf.Tensor
    statistics: tuple[tf.Tensor, ...] = ()


@dataclass(frozen=True)
class LocalStep:
    """The state of K clients before a local step; P is the number of trainable values.

    Attributes:
        weights: [K, P], the values that the clients return.
        start: [K, P], the same values at the beginning of the round.
        twin: [K, P], those of the twins; of `weights` without twins.
        alpha: [K, 1].
        personal: bool [P], the values that `round.personal` names.
        number: int32 [K], the number of the clients' steps before this one.
        epoch: int32 [K], the number of the local epoch, from 0.
        rate: Scalar, the learning rate.
        evaluate: As `gradient`; returns the fields of `Gradient`, without statistics if there are none.
        step: `(values [K, P], gradient [K, P]) -> (values, slots)`, a step of the twins' optimizer.
    """

    weights: tf.Tensor
    start: tf.Tensor
    twin: tf.Tensor
    alpha: tf.Tensor
    personal: tf.Tensor
    number: tf.Tensor
    epoch: tf.Tensor
    rate: tf.Tensor
    evaluate: Callable[..., tuple]
    step: Callable[[tf.Tensor, tf.Tensor], tuple]

    def gradient(
        self, values: tf.Tensor, contrast: Callable | None = None, anchors: tuple[tf.Tensor, ...] = ()
    ) -> Gradient:
        """Return the gradient of the loss on the batch of the step.

        Args:
            values: [K, P], where it is evaluated.
            contrast: `(features, *features of anchors) -> [K]`, added to the loss. Features are the representations of
                the examples, the input of the model's last layer, [K, batch, ...].
            anchors: Other values [K, P], whose features have no gradient.
        """
        loss, gradients, *statistics = self.evaluate(values, contrast, anchors)
        return Gradient(loss, gradients, tuple(statistics))


class LocalUpdate(NamedTuple):
    """The result of a personalization.

    Attributes:
        gradient: That of the next step of the returned values, and the loss that is reported.
        twin: The values and the slots of the twins after the step, such as those of `step`; None if no step moves
            twins. A step without the optimizer has no slots, ().
        alpha: [K, 1] after the step; None if it does not change.
        moving: bool [K, P], the returned values that the step moves; None: all.
    """

    gradient: Gradient
    twin: tuple | None = None
    alpha: tf.Tensor | None = None
    moving: tf.Tensor | None = None
