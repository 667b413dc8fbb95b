"""Ditto: the shared model trains as usual; a personal model trains beside it, pulled towards the global values."""

from hetero_tf.base.constraints import NotNegative
from hetero_tf.methods.personalizations import LocalStep, LocalUpdate

TWIN = True
PASSES = 2


def personalize(local: LocalStep, *, strength: NotNegative = 0.1) -> LocalUpdate:
    """Step the twin along its gradient plus `strength * (twin - start)`, on the batch of the shared model.

    `start` is the global model at the beginning of the round, not the shared model that trains beside the twin.

    Args:
        strength: the pull towards the global values, lambda of the paper; 0: the twin trains alone.

    Reference: Li et al. 2021 (arXiv 2012.04221), algorithm 1, and the authors' code.
    """
    pull = strength * (local.twin - local.start)
    twin = local.step(local.twin, local.gradient(local.twin).values + pull)
    return LocalUpdate(local.gradient(local.weights), twin)
