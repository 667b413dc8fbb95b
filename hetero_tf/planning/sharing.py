"""Deals the stacks of a round to the replicas that share it, so that all of them have about equally much to do."""

import numpy as np

from hetero_tf.planning.packing import PackedRounds


def share_stacks(packed: PackedRounds, costs: np.ndarray, replicas: int) -> PackedRounds:
    """Returns the packed round with the replica of each stack; a replica without any gets an empty one.

    Args:
        packed: One round.
        costs: [cohort], what each client of its plan costs to train.
        replicas: How many share the round.
    """
    largest = packed.clients.shape[2]
    of_stacks = np.zeros(max(packed.clients.shape[1], replicas))
    np.add.at(of_stacks, packed.slots[0] // largest, costs)
    missing = len(of_stacks) - packed.clients.shape[1]

    def longer(array, empty):
        return np.pad(array, [[0, 0], [0, missing], *[[0, 0]] * (array.ndim - 2)], constant_values=empty)

    return PackedRounds(
        clients=longer(packed.clients, -1),
        members=longer(packed.members, 0),
        submodels=longer(packed.submodels, packed.submodels[0, -1]),
        ticks=longer(packed.ticks, 0),
        rows=longer(packed.rows, -1),
        starts=longer(packed.starts, 0),
        stages=longer(packed.stages, 0),
        slots=packed.slots,
        replicas=deal(of_stacks, replicas)[None],
    )


def deal(costs: np.ndarray, replicas: int) -> np.ndarray:
    """Deals jobs, the longest first, each to the replica that has least to do; int32 [jobs].

    Args:
        costs: [jobs], at least as many as replicas.
        replicas: How many there are.

    Everyone gets a job. Equal arguments give equal results.

    Reference: the longest processing time first rule (Graham 1969), at most 4/3 of the best there is.
    """
    dealt, loads, jobs = np.zeros(len(costs), np.int32), np.zeros(replicas), np.zeros(replicas, int)
    for job in np.argsort(-costs, kind="stable"):
        # A job may cost nothing: who has none comes first.
        replica = min(range(replicas), key=lambda each: (jobs[each] > 0, loads[each], jobs[each]))
        dealt[job] = replica
        loads[replica] += costs[job]
        jobs[replica] += 1
    return dealt
