"""Which level every client has: fixed for the run, or drawn anew each round."""

import numpy as np

from hetero_tf import seeds


def assign(levels, clients, seed, round):
    """The level of every registered client, as positions in `levels.mix`.

    Args:
        levels: `recipe.schema.Levels`.
        clients: Number of registered clients.
        seed, round: The run's seed and the round, for dynamic assignment.

    Returns:
        int32 [clients].

    Reference: HeteroFL authors' code. Fix: consecutive clients in the order of the mix, those left over have the
    last level. Dynamic: every client draws independently with the shares as chances.
    """
    shares = np.asarray([share for _, share in levels.mix], float)
    if levels.assignment == "dynamic":
        draws = seeds.rng(seed, "levels", round).choice(len(shares), size=clients, p=shares / shares.sum())
        return draws.astype(np.int32)
    whole = np.all(shares == np.round(shares))
    counts = shares * (clients // shares.sum()) if whole else np.floor(shares / shares.sum() * clients)
    found = np.full(clients, len(shares) - 1, np.int32)
    fixed = np.repeat(np.arange(len(shares)), counts.astype(int))
    found[:len(fixed)] = fixed
    return found
