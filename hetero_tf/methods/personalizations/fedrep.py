"""FedRep: local epochs of the personal values, usually the head, and then of the shared ones."""

import tensorflow as tf

from hetero_tf.methods.personalizations import LocalStep, LocalUpdate

TWIN = False
PASSES = 1
REQUIRES = {"round.personal": True, "client.epochs": True}
CONFLICTS = {"no value is shared": {"round.personal": "all"}}


def personalize(local: LocalStep, *, personal_epochs: int = 1) -> LocalUpdate:
    """Move the personal values in the first local epochs, and the others in the epochs after them.

    Neither momentum nor weight decay moves the values that are frozen.

    Args:
        personal_epochs: local epochs that train the personal values; must be less than client.epochs.

    Reference: Collins et al. 2021 (arXiv 2102.07078), algorithm 1.
    """
    trains_personal = local.epoch < personal_epochs
    return LocalUpdate(local.gradient(local.weights), moving=tf.equal(trains_personal[:, None], local.personal))
