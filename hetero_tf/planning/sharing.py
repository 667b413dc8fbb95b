"""Distributes the blocks of a round to replicas with about equal work."""

import numpy as np

from hetero_tf.planning.packing import EMPTY, PackedRounds


def share_blocks(packed: PackedRounds, slots: np.ndarray, costs: np.ndarray, replicas: int) -> PackedRounds:
    """Return the packed round with a replica for each block; replicas without one get an empty block.

    Args:
        packed: One round.
        slots: [cohort], index of each client of its plan among the slots of all blocks.
        costs: [cohort], training cost of each client.
        replicas: Number of replicas.
    """
    _, blocks, largest = packed.clients.shape
    block_costs = np.zeros(max(blocks, replicas))
    np.add.at(block_costs, slots // largest, costs)
    missing = len(block_costs) - blocks
    empty = EMPTY._replace(submodels=packed.submodels[0, -1])
    padded = PackedRounds(
        *(
            np.pad(array, [[0, 0], [0, missing], *[[0, 0]] * (array.ndim - 2)], constant_values=value)
            for array, value in zip(packed, empty)
        )
    )
    return padded._replace(replicas=assign_jobs(block_costs, replicas)[None])


def assign_jobs(costs: np.ndarray, replicas: int) -> np.ndarray:
    """Assign jobs to replicas, longest first, each to the least loaded replica; int32 [jobs].

    Args:
        costs: [jobs], at least as many as replicas.
        replicas: Number of replicas.

    Every replica gets a job. The result is deterministic.

    Reference: longest processing time first (Graham 1969), at most 4/3 of the optimum.
    """
    assignment, loads, jobs = np.zeros(len(costs), np.int32), np.zeros(replicas), np.zeros(replicas, int)
    for job in np.argsort(-costs, kind="stable"):
        # Costs may be 0, so replicas without a job come first.
        replica = min(range(replicas), key=lambda candidate: (jobs[candidate] > 0, loads[candidate], jobs[candidate]))
        assignment[job] = replica
        loads[replica] += costs[job]
        jobs[replica] += 1
    return assignment
